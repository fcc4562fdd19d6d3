"""What the kernels answer, asked through public names alone, against the whole matrix in float64.

On a CPU ``SIGHTLINE_KERNELS=interpret`` sends its tensors through them, in Triton's interpreter; on a GPU
the same file runs without it.
"""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch import nn

import sightline as sl
from tests.oracle.check import agrees_at_all, agrees_at_top, near
from tests.oracle.dense import Dense, repeated
from tests.oracle.draw import qkv, randn
from tests.oracle.gradients import agree_in_gradients
from tests.oracle.masks import MASKS
from tests.oracle.questions import QUESTIONS, STATISTICS
from tests.oracle.scores import plain_scores, score_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on inf - inf in the interpreter

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter has no bfloat16
T, S, D = 67, 71, 17
FAST = ("window", "causal_and_padding")
OF_POSITIONS = ("nothing", "causal", "causal_from_start", "window", "window_from_start", "both_ends")
BIASES = ("bias", "bias_of_heads", "bias_with_inf")
OF_TENSORS = ("dense", "dense_of_batch", "dense_of_all", "from_ones")  # whose maxima are not asked of kernels
KNOWN = (*OF_POSITIONS, "padding", "causal_and_padding", *BIASES)
NO_MAXIMA = {x: y for x, y in QUESTIONS.items() if x not in {"peak", "logit", "their maximum"}}
OF_QUERIES = {x: STATISTICS[x] for x in ("lse", "entropy", "peak", "logit")}
SUMS = {x: STATISTICS[x] for x in ("lse", "received", "entropy")}
BOTH = (torch.float32, HALF)


@pytest.fixture(autouse=True)
def _through_the_kernels(monkeypatch):
    if not ON_GPU:
        monkeypatch.setenv("SIGHTLINE_KERNELS", "interpret")


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that have run; on a GPU nobody counts."""
    if ON_GPU:
        return None
    from triton.runtime.interpreter import GridExecutor

    names, real = set(), GridExecutor.__call__

    def call(self, *args, **kwargs):
        names.add(self.fn.__name__)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", call)
    return names


class Drawn(NamedTuple):
    """Inputs, and their matrix."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: object
    dense: Dense


def drawn(mask, dtype=torch.float32, *, t=T, s=S, d=D, grad=False, score=None):
    """As many items and heads as a mask tells apart: the interpreter's time is by both."""
    lead = (2, 1) if mask in {"padding", "causal_and_padding", "dense_of_batch"} else (1, 2)
    q, k, v = (x.to(DEVICE).requires_grad_(grad) for x in qkv(lead, t, s, d, 5, kv_heads=1, dtype=dtype))
    given, added = MASKS[mask](lead, t, s)
    added = added.to(dtype).double().to(DEVICE)
    scores = None if score is None else plain_scores(*score, q.double(), repeated(q, k).double())
    return Drawn(q, k, v, on_device(given), Dense.of(q, repeated(q, k), added, scores=scores))


def on_device(mask):
    """A mask with its tensors where the queries are."""
    if not isinstance(mask, sl.Mask):
        return None if mask is None else mask.to(DEVICE)
    parts = ([x.to(DEVICE) for x in tensors] for tensors in (mask.lengths, mask.allowed, mask.added))
    return sl.Mask(mask.bands, *map(tuple, parts))


def ran(launched, *words):
    """Check that kernels have run whose names hold these words."""
    if launched is not None:
        missing = [word for word in words if not any(word in name for name in launched)]
        assert not missing, f"no kernel ran for {missing}, only {sorted(launched)}"


# The kernels of a look


def statistics_and_map(mask, dtype, launched):
    """Without gradients, by the log-sum-exp of the fused call where it is exact, then all later questions."""
    made = drawn(mask, dtype)
    peak = mask not in OF_TENSORS
    with torch.no_grad():
        sight = sl.look(*made[:4], measure=sl.Look(map=(3, 5), peak=peak))
    agrees_at_all(sight, made.dense, questions=QUESTIONS if peak else NO_MAXIMA)
    near(sight.forget().map((3, 5)), made.dense.map((3, 5)), 1e-5, 2e-6, "the measured map")
    ran(launched, "weights", "finish", "mass", "received", "diagonals", "band")


def statistics_of_queries(mask, dtype, launched):
    """What needs no sum over queries."""
    made = drawn(mask, dtype)
    with torch.no_grad():
        sight = sl.look(*made[:4], measure=sl.Look(received=False), keep=False)
    agrees_at_all(sight, made.dense, questions=OF_QUERIES)
    ran(launched, "finish")


def largest(mask, dtype, launched):
    made = drawn(mask, dtype)
    with torch.no_grad():
        sight = sl.look(*made[:4], measure=sl.Look(top=5))
    for k in (5, 1):
        agrees_at_top(sight.top(k), made.dense, k)
    agrees_at_top(sight.top(11), made.dense, 11)
    if launched is not None and mask in BIASES:  # Triton 3.6 compiles their maxima into wrong ones
        assert not launched & {"groups_kernel", "choose_kernel"}
    else:
        ran(launched, "groups", "choose")


def gradients(mask, dtype, launched):
    made = drawn(mask, dtype, grad=True)
    sight = sl.look(*made[:4])
    agrees_at_all(sight, made.dense, questions=STATISTICS)
    some = {x: STATISTICS[x] for x in ("lse", "received", "entropy", "peak")}
    rtol = 1e-4 if dtype == torch.float32 else 2e-2
    agree_in_gradients(sight, made.dense, (made.q, made.k), questions=some, rtol=rtol, atol=rtol)
    ran(launched, "by_query", "by_key")


class Attend(nn.Module):
    def forward(self, q, k, v, mask):
        return sl.attention(q, k, v, mask)


def relevance(mask, dtype, launched):
    made, model = drawn(mask, dtype, grad=True), Attend()
    with sl.watch(model, grad=True) as seen:
        output = model(*made[:4])
    gradient = randn(*output.shape, seed=41, dtype=dtype).to(DEVICE)
    output.backward(gradient)
    keys, queries = made.dense.relevance(made.v, gradient)
    found = seen[""].relevance
    near(found.keys, keys, 1e-5, 1e-5, "relevance of keys")
    near(found.queries, queries, 1e-5, 1e-5, "relevance of queries")
    ran(launched, "relevance")


# Those of the mechanism


def additive(mask, dtype, launched):
    torch.manual_seed(0)
    score = score_of("additive", D, dtype).to(DEVICE)
    made = drawn(mask, dtype, grad=True, score=("additive", score))
    output = sl.attention(*made[:4], score=score)
    coarse = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    near(output, made.dense.context(made.v), **({"rtol": 1e-5, "atol": 5e-6} | coarse))
    upstream = randn(*output.shape, seed=5, dtype=dtype).to(DEVICE)
    of = (made.q, made.k, made.v, *score.parameters())
    found = torch.autograd.grad(output, of, upstream)
    truth = torch.autograd.grad(made.dense.context(made.v), of, upstream.double())
    for x, y in zip(found, truth, strict=True):
        near(x, y, **({"rtol": 1e-4, "atol": 1e-4} | coarse))
    ran(launched, "forward")


def average(mask, dtype, launched):
    """The weights of ``sl.nn.MultiheadAttention``, which are their mean over the heads."""
    torch.manual_seed(0)
    n = T if not ON_GPU else 2081  # on a GPU the kernel is for large inputs
    module = sl.nn.MultiheadAttention(3 * D + 1, 2, batch_first=True).to(DEVICE, dtype).eval()
    x = randn(2, n, 3 * D + 1, seed=1, dtype=dtype).to(DEVICE)
    with torch.no_grad():
        _, weights = module(x, x, x)
        q, k, _ = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
        q, k = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in (q, k))
    near(weights, Dense.of(q, k).weights.mean(1), 5e-3, 5e-4)
    ran(launched, "average")


TABLE = {  # what -> the check, its masks, the two of them that are fast, its dtypes
    "statistics and map": (
        statistics_and_map,
        KNOWN + OF_TENSORS,
        ("window", "bias_with_inf"),
        (torch.float32, HALF),
    ),
    "of queries": (statistics_of_queries, KNOWN, ("nothing", "causal_and_padding"), BOTH),
    "largest": (largest, KNOWN, ("causal", "bias_of_heads"), BOTH),
    "gradients": (gradients, KNOWN[:-3], ("causal", "padding"), BOTH),
    "relevance": (relevance, OF_POSITIONS, ("nothing", "window"), BOTH),
    "additive": (additive, KNOWN, ("causal", "padding"), BOTH),
    "average": (average, ("nothing",), ("nothing",), (HALF,)),
}


def cases():
    """Each kernel with two masks is fast; the other masks and dtypes are long."""
    for what, (_, masks, fast, dtypes) in TABLE.items():
        for mask in masks:
            for n, dtype in enumerate(dtypes):
                is_fast = mask in fast and (fast.index(mask) + n) % len(dtypes) == 0
                name = f"{what}, {mask}, {str(dtype).removeprefix('torch.')}"
                yield pytest.param(what, mask, dtype, id=name, marks=() if is_fast else pytest.mark.long)


@pytest.mark.parametrize(("what", "mask", "dtype"), list(cases()))
def test_a_kernel_answers_as_the_matrix_does(what, mask, dtype, launched):
    TABLE[what][0](mask, dtype, launched)


@pytest.mark.long
@pytest.mark.parametrize(("t", "s", "d"), [(1, 83, 16), (131, 41, 64), (37, 131, 129), (64, 128, 64)])
def test_other_sizes(t, s, d, launched):
    made = drawn("causal", t=t, s=s, d=d)
    with torch.no_grad():
        sight = sl.look(*made[:4], measure=sl.Look(map=1))
    agrees_at_all(sight, made.dense, questions=QUESTIONS)
    ran(launched, "weights")


@pytest.mark.parametrize(("peak", "d"), [(True, 129), (False, 129), (True, 64)])
def test_peaks_under_a_bias_are_left_to_torch_where_heads_are_wide(peak, d, launched):
    made = drawn("bias", d=d)
    with torch.no_grad():
        sight = sl.look(*made[:4], measure=sl.Look(peak=peak), keep=False)
    agrees_at_all(sight, made.dense, questions=STATISTICS if peak else SUMS)
    ran(launched, "rows")


# The switch


@pytest.mark.bad_input
def test_another_word_is_refused(monkeypatch):
    monkeypatch.setenv("SIGHTLINE_KERNELS", "fast")
    x = torch.zeros(1, 1, 3, 5)
    with pytest.raises(ValueError, match=r"^SIGHTLINE_KERNELS must be 'interpret', or not set, got 'fast'$"):
        sl.look(x, x, x)


_SCRIPT = """
import os, sys{first}
import torch, sightline as sl
x = torch.randn(1, 1, 5, 16)
try:
    print(sl.look(x, x, x, measure=sl.Look(map=1)).map(1).item(), "triton" in sys.modules)
except ValueError as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.skipif(ON_GPU, reason="on a GPU there is no need of it")
@pytest.mark.parametrize(
    ("first", "expected"),
    [("", "0.2"), (", triton", "SIGHTLINE_KERNELS=interpret comes too late")],
)
def test_a_process_of_its_own_is_interpreted(first, expected):
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["SIGHTLINE_KERNELS"] = "interpret"
    script = [sys.executable, "-c", _SCRIPT.format(first=first)]
    done = subprocess.run(script, capture_output=True, text=True, check=True, env=environment)  # noqa: S603
    assert done.stdout.startswith(expected), done.stdout
    assert first or "True" in done.stdout
