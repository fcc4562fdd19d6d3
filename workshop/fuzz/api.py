"""Calls of the public functions: attention and look against the equation in float64; watch is in watching.py.

Sizes, dtypes, masks and leading dimensions are random, zeros among them; what torch would answer is answered,
and a watched model gives what it gives unwatched, bit for bit, its exceptions too.
"""

import warnings

import torch

import sightline as sl
from workshop.fuzz.report import Report
from workshop.fuzz.watching import watched

ERRORS = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}
SIDES = (0, 1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33)


def fuzz(cases, place):
    """Call, once for each case."""
    report = Report(cases.name, cases.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a watch names what it can't see; it must not break it
        for _, chance in cases:
            kind = chance.choice([_attention, _attention, _look, watched])
            torch.manual_seed(chance.randrange(1 << 30))
            case, faults = kind(chance)
            report.add(case, kind.__name__.strip("_"), faults)
    return report


def _inputs(chance):
    lead = [chance.choice([1, 2, 3]) for _ in range(chance.choice([0, 1, 2, 2, 2, 3]))]
    if lead and chance.random() < 0.05:
        lead[chance.randrange(len(lead))] = 0
    t, s, d, dv = (chance.choice(SIDES) for _ in range(4))
    d, dv = max(1, d), max(1, dv)
    dtype = chance.choice(list(ERRORS))
    scale = chance.choice([0.1, 1.0, 5.0])
    q, k, v = (torch.randn(*lead, *x).mul(scale).to(dtype) for x in ((t, d), (s, d), (s, dv)))
    return q, k, v, lead


def _mask(chance, q, k, lead):
    """A mask as it is given, and the same as booleans and what is added."""
    t, s = q.size(-2), k.size(-2)
    kind = chance.choice(["none", "causal", "window", "dense", "tensor", "bias", "both"])
    allowed = torch.rand(t, s) < chance.choice([0.1, 0.5, 0.9])
    rows, columns = torch.arange(t)[:, None] + s - t, torch.arange(s)[None]  # the last query has the last key
    if kind == "causal":
        return sl.masks.causal(), columns <= rows, None
    if kind == "window":
        left, right = chance.randrange(4), chance.randrange(4)
        return sl.masks.window(left, right), (rows - columns <= left) & (columns - rows <= right), None
    if kind == "dense":
        return sl.masks.dense(allowed), allowed, None
    if kind == "tensor":
        return allowed, allowed, None
    if kind == "both":
        return sl.masks.causal() & sl.masks.dense(allowed), (columns <= rows) & allowed, None
    if kind == "bias":
        added = torch.randn(t, s) * 3 - 0.123
        return sl.masks.bias(added), None, added
    return None, None, None


def _expected(q, k, v, allowed, added):
    """The equation, in float64; a query with nothing to look at gets zeros."""
    scores = q.double() @ k.double().mT / q.size(-1) ** 0.5
    if added is not None:
        scores = scores + added.double()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0) if k.size(-2) else scores
    return weights @ v.double(), weights


def _attention(chance):
    q, k, v, lead = _inputs(chance)
    mask, allowed, added = _mask(chance, q, k, lead)
    case = f"attention {tuple(q.shape)} {tuple(k.shape)} {tuple(v.shape)} {q.dtype} {mask!r:.60}"
    found, problem = _called(lambda: sl.attention(q, k, v, mask))
    if problem:
        return case, problem
    output, _ = _expected(q, k, v, allowed, added)
    return case, _differs(found, output, v)


def _look(chance):
    q, k, v, lead = _inputs(chance)
    mask, allowed, added = _mask(chance, q, k, lead)
    case = f"look {tuple(q.shape)} {tuple(k.shape)} {tuple(v.shape)} {q.dtype} {mask!r:.60}"
    sight, problem = _called(lambda: sl.look(q, k, v, mask))
    if problem:
        return case, problem
    output, weights = _expected(q, k, v, allowed, added)
    faults = _differs(sight.output, output, v)
    for name, wanted in (
        ("received", weights.sum(-2)),
        ("entropy", -(weights * weights.clamp_min(1e-300).log()).sum(-1)),
    ):
        found = getattr(sight, name)
        if found.shape != wanted.shape:
            faults.append(f"{name} has shape {tuple(found.shape)}, not {tuple(wanted.shape)}")
        elif wanted.numel() and (found.double() - wanted).abs().max() > 0.2 * (
            1 + wanted.abs().max()
        ) * _loose(q):
            faults.append(f"wrong {name}")
    return case, faults


def _loose(q):
    return {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 0.06, torch.float16: 0.01}[q.dtype]


def _differs(found, wanted, v):
    if found.shape != wanted.shape:
        return [f"shape {tuple(found.shape)}, not {tuple(wanted.shape)}"]
    if not wanted.numel():
        return []
    error = (found.double() - wanted).abs().max().item()
    most = 1 + v.double().abs().max().item() if v.numel() else 1.0
    return [] if error <= ERRORS[found.dtype] * most else [f"wrong by {error:.2g}"]


def _called(call):
    try:
        return call(), []
    except Exception as problem:  # noqa: BLE001 - what it raises is the question
        return None, [f"{type(problem).__name__}: {problem}"[:200]]
