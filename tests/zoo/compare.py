"""Compare what was seen with what is true: statistics where nothing was kept, and rows where q and k were."""

import math

import torch

from tests.zoo import truth
from tests.zoo.runs import seeded, sights_of, tensors, watched

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
FLOOR = 1e-7  # errors below it are all written down as it


def compared(entry, model, inputs, close, real=None):
    """Compare what is seen with each oracle that there is: how many sights, and how far they are apart."""
    real = entry.real if real is None else real
    lean, kept = (sights_of(watched(model, inputs, keep=keep)) for keep in (False, True))
    assert len(lean) == len(kept) > 0, "nothing was seen"
    facts = {}
    for name, weights in truths(entry, model, inputs).items():
        pairs = matched(kept, weights)
        if pairs is None:
            continue
        both = [(sight, x) for sights in (lean, kept) for sight, x in zip(sights, pairs, strict=True)]
        errors = [agrees(sight, x, real, close) for sight, x in both if x is not None]
        facts[name] = {"sights": len(errors) // 2, "error": magnitude(max(errors))}
    assert facts, "no oracle has anything to compare"
    return facts


def truths(entry, model, inputs):
    """The weights by each oracle."""
    with torch.no_grad():
        if entry.weights is not None:
            overheard = [] if entry.compiles else truth.overheard(model, inputs)
            return {"formula": entry.weights(model, inputs), "overheard": overheard}
        seeded()
        blind = next(tensors(model(**inputs)))
        found = {"overheard": truth.overheard(model, inputs), "returned": truth.returned(model, inputs)}
        if entry.is_hugging_face and found["returned"]:
            truth.set_attention(model, "eager")
            seeded()
            apart = (next(tensors(model(**inputs))) - blind).abs().max()
            truth.set_attention(model, entry.attention)
            if not apart < truth.SAME * blind.abs().max():  # another computation, with other q and k
                del found["returned"]
        return found


def matched(sights, weights):
    """The weights of each sight, None for those that an oracle has not; None where they can't be matched.

    Models that read images return the weights of their text alone, which comes last. Where more was overheard
    than can be seen, what fits no sight is left out.
    """
    if len(weights) > len(sights):
        left = iter(weights)
        fitting = ((truth.fitted(x, sight) for x in left) for sight in sights)
        pairs = [next((x for x in some if x is not None), None) for some in fitting]
        return None if any(x is None for x in pairs) else pairs
    missing = len(sights) - len(weights)
    pairs = [truth.fitted(x, sight) for x, sight in zip(weights, sights[missing:], strict=True)]
    return None if not pairs or any(x is None for x in pairs) else [None] * missing + pairs


def agrees(sight, dense, real, close):
    """Check a sight against weights, or their mean over heads, NaN for padded queries; the largest error."""
    hidden = sight.is_padding.expand(*sight.lead, sight.t)
    if real is not None and real.shape == (sight.lead[0], sight.t) and sight.padding not in {"", "unknown"}:
        assert torch.equal(hidden, ~real[:, None].expand_as(hidden)), "other queries are padding"
    is_mean = dense.shape != (*sight.lead, sight.t, sight.s)
    names = ("received",) if is_mean else ("received", "entropy", "peak")
    found = {name: getattr(sight, name) for name in names}
    if sight.kept_nbytes:
        found["rows"] = sight.rows(range(sight.t))
    for name in found.keys() - {"received"}:
        is_nan = found[name].isnan()
        assert torch.equal(is_nan.any(-1) if name == "rows" else is_nan, hidden), f"{name} of padded queries"
    shown = dense.masked_fill((hidden[:, :1] if is_mean else hidden)[..., None], 0.0)
    expected, errors = truth.statistics(shown) | {"rows": shown}, []
    for name, x in found.items():
        mine = x.double().nan_to_num(0.0)
        mine = mine.mean(1, keepdim=True) if is_mean else mine
        torch.testing.assert_close(
            mine, expected[name], **close, msg=lambda text, name=name: f"{sight.name}, {name}: {text}"
        )
        errors.append((mine - expected[name]).abs().max().item())
    return max(errors)


def magnitude(error):
    """An error rounded up to a power of ten."""
    return float(f"1e{math.ceil(math.log10(max(error, FLOOR)) - 1e-9)}")


def put_together(steps, whole):
    """Compare the steps of each module, as one sight, with the sight of the whole text; the largest error."""
    assert sorted(steps.names()) == sorted(whole.names())
    errors = []
    for name in whole.names():
        (run_,), expected = steps.runs(name), whole[name]
        mine, truth_ = run_.rows(range(run_.t)), expected.rows(range(expected.t))
        torch.testing.assert_close(mine, truth_, **CLOSE)
        torch.testing.assert_close(run_.received, expected.received, **CLOSE)
        errors.append((mine - truth_).abs().max().item())
    assert errors
    return magnitude(max(errors))
