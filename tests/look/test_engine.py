"""Every statistic of every source, mask, score and dtype against the whole matrix in float64.

A source is a way to a sight: looked at, watched, measured beforehand, cut, saved, stacked, with threads. Each
is asked everything (``tests/oracle/questions.py``), at 13 x 11 and at 521 x 523, which several tiles share.
"""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from tests.oracle.check import agrees_at_all, agrees_at_top, agrees_on_average, near
from tests.oracle.dense import Dense, repeated
from tests.oracle.draw import qkv, randn
from tests.oracle.gradients import agree_in_gradients
from tests.oracle.masks import MASKS, as_added
from tests.oracle.questions import LATER, QUESTIONS, STATISTICS
from tests.oracle.scores import SCORES, plain_scores, score_of
from tests.watch.flash_stand_ins import HUB

pytestmark = pytest.mark.plain

SMALL, LARGE = (13, 11), (521, 523)
D = 5
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OF_BATCH = {"padding", "dense_of_batch", "causal_and_padding", "all_together"}
BY_POSITION = ("nothing", "causal", "window")
EXACT = {torch.float64: (1e-9, 1e-11), torch.float32: (1e-5, 2e-6)}  # half precision rounds the inputs alone,
COARSE = {torch.float16: (2e-2, 2e-2), torch.bfloat16: (1e-1, 1e-1)}  # and what a score makes of them
OUTPUT = {torch.float64: 1e-11, torch.float32: 5e-6, torch.float16: 5e-3, torch.bfloat16: 4e-2}


class Case(NamedTuple):
    source: str
    mask: str
    score: str
    dtype: torch.dtype
    size: tuple[int, int]

    def __str__(self):
        dtype, (t, s) = str(self.dtype).removeprefix("torch."), self.size
        return f"{self.source}, {self.mask}, {self.score}, {dtype}, {t} x {s}"

    @property
    def tolerance(self):
        """What the digits of the dtype allow, and those of projections."""
        if self.score in {"dot", "scaled_dot"} or self.dtype in EXACT:
            return EXACT.get(self.dtype, EXACT[torch.float32])
        return COARSE[self.dtype]


class Drawn:
    """The inputs of a case, and its matrix."""

    def __init__(self, case, lead=None, size=None, grad=False):
        t, s = size or case.size
        batch_first = (2, 1) if case.mask in OF_BATCH else (1, 2)
        self.lead = lead = lead if lead is not None else (2, 4) if case.size == SMALL else batch_first
        self.t, self.s, self.case = t, s, case
        kv_heads = 2 if lead == (2, 4) and len(case.mask) % 2 else None
        self.q, self.k, self.v = qkv(lead, t, s, D, kv_heads=kv_heads, dtype=case.dtype)
        for x in (self.q, self.k, self.v):
            x.requires_grad_(grad)
        self.mask, added = MASKS[case.mask](lead, t, s)
        self.added = added.to(case.dtype).double()  # a bias is rounded to the dtype of q
        torch.manual_seed(3)
        self.score = score_of(case.score, D, case.dtype)

    @property
    def given(self):
        """What ``sl.look`` and ``sl.attention`` are given."""
        score = None if self.case.score == "scaled_dot" else self.score
        return (self.q, self.k, self.v, self.mask), {"score": score}

    @property
    def dense(self):
        q, k = self.q.double(), repeated(self.q, self.k).double()
        return Dense.of(q, k, self.added, scores=plain_scores(self.case.score, self.score, q, k))

    @property
    def as_tensor(self):
        """The mask as torch's own function takes it."""
        name, shown = self.case.mask, self.added
        shown = shown if name in OF_BATCH | {"dense_of_all"} else shown[:1]
        shown = shown if name in {"bias_of_heads", "dense_of_all", "all_together"} else shown[:, :1]
        is_boolean = bool(((shown == 0) | (shown == -torch.inf)).all())
        return shown == 0 if is_boolean else shown.to(self.case.dtype)

    def look(self, **options):
        args, own = self.given
        return sl.look(*args, **own, **options)


# The sources: each gives sights, and what they must agree with


class Source(NamedTuple):
    """A way to sights.

    Attributes:
        run: Checks the sights of a case.
        masks, scores, dtypes: What it takes.
    """

    run: Callable[[Case], None]
    masks: tuple[str, ...] = tuple(MASKS)
    scores: tuple[str, ...] = SCORES
    dtypes: tuple[torch.dtype, ...] = DTYPES


SOURCES: dict[str, Source] = {}


def source(name, **takes):
    """Register a function as a source."""

    def register(run):
        SOURCES[name] = Source(run, **takes)
        return run

    return register


def check(case, sight, dense, questions=QUESTIONS):
    rtol, atol = case.tolerance
    agrees_at_all(sight, dense, rtol=rtol, atol=atol, questions=questions)


@source("look")
def look(case):
    made = Drawn(case)
    with torch.no_grad():
        sight = made.look()
        args, own = made.given
        assert torch.equal(sight.output, sl.attention(*args, **own))
    check(case, sight, made.dense)
    near(sight.output, made.dense.context(made.v), 0, max(OUTPUT[case.dtype], case.tolerance[1]), "output")


@source("gradients")
def look_with_gradients(case):
    made = Drawn(case, grad=True)
    sight = made.look()
    check(case, sight, made.dense)
    if case.dtype != torch.float64 or case.mask == "bias_with_huge":  # there torch's kernel has other ones
        return
    of = [made.q, made.k]
    of += made.score.parameters() if isinstance(made.score, nn.Module) else ()
    some = QUESTIONS if case.size == SMALL else STATISTICS | {"mass": LATER["mass"]}
    agree_in_gradients(sight, made.dense, of, questions=some, rtol=1e-8, atol=1e-9)


@source("ranks", masks=tuple(x for x in MASKS if x not in {"dense_of_all", "all_together"}))
def look_at_any_rank(case):
    for lead in ((), (3,), (2, 1, 2)) if case.size == SMALL else ((2,), (1, 2, 1)):
        made = Drawn(case, lead)
        if lead or case.mask not in OF_BATCH | {"bias_of_heads"}:
            check(case, made.look(), made.dense)


@source("beforehand")
def measured_beforehand(case):
    made = Drawn(case)
    sight = made.look(measure=sl.Look(map=(3, 5), top=5), keep=False)
    assert not sight.kept_nbytes
    check(case, sight, made.dense, STATISTICS | {"map": LATER["map"]})
    for k in (5, 2):
        agrees_at_top(sight.top(k), made.dense, k, *case.tolerance)


@source("one thing")
def measured_alone(case):
    made = Drawn(case)
    for name in ("received", "entropy", "peak"):
        only = {x: x == name for x in ("received", "entropy", "peak")}
        some = {x: STATISTICS[x] for x in ("lse", name)}
        check(case, made.look(measure=sl.Look(**only)), made.dense, some)


@source("slices")
def slices(case):
    made = Drawn(case)
    sight = made.look()
    dense = made.dense
    for index in (0, -1, (slice(None), -1), (0, slice(0, None, 2)), (slice(-1, None), slice(-1, None))):
        check(case, sight[index], dense[index])
        assert torch.equal(sight[index].output, sight.output[index])
    check(case, sight[0][-1], dense[0][-1])


@source("saved", scores=("dot", "scaled_dot", "cosine", "general", "low_rank"))
def saved(case, tmp_path):
    made = Drawn(case)
    with torch.no_grad():
        sight = made.look()
    sight.save(tmp_path / "kept.safetensors", keep=True)
    sight.save(tmp_path / "not.safetensors")
    loaded = sl.Sight.load(tmp_path / "kept.safetensors")
    check(case, loaded, made.dense)
    for name, question in STATISTICS.items():
        assert torch.equal(question.ask(loaded), question.ask(sight)), name
    check(case, sl.Sight.load(tmp_path / "not.safetensors"), made.dense, STATISTICS)


@source("copied")
def copied(case):
    made = Drawn(case)
    with torch.no_grad():
        sight = made.look()
    sent = pickle.loads(pickle.dumps(sight))  # noqa: S301
    for copy_of in (copy.deepcopy(sight), sent, sight.to("cpu"), sight.forget()):
        check(case, copy_of, made.dense, QUESTIONS if copy_of.kept else STATISTICS)


@source("mean of heads")
def mean_of_heads(case):
    made = Drawn(case)
    rtol, atol = case.tolerance
    agrees_on_average(made.look().mean_heads(), made.dense, rtol=rtol, atol=atol)


@source("two threads")
def two_threads(case):
    _threads(case, 2)


@source("three threads")
def three_threads(case):
    _threads(case, 3)


def _threads(case, n):
    made = Drawn(case)
    with torch.no_grad():
        alone = made.look(measure=sl.Look(map=3, top=2))
        answers = {name: question.ask(alone) for name, question in QUESTIONS.items()}
        torch.set_num_threads(n)
        sight = made.look(measure=sl.Look(map=3, top=2))
        check(case, sight, made.dense)
        for name, question in QUESTIONS.items():
            assert torch.equal(question.ask(sight), answers[name]), f"{name} with {n} threads"


# Watched


class Attend(nn.Module):
    """``sl.attention`` in a module."""

    def forward(self, *args, **options):
        return sl.attention(*args, **options)


class Kernel(nn.Module):
    """Torch's own function in a module."""

    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=q.size(1) != k.size(1))


class ByHand(nn.Module):
    """The weights computed in single steps, perhaps with a sink."""

    def __init__(self, sink=None):
        super().__init__()
        self.sink = sink

    def forward(self, q, k, v, added):
        scores = q @ k.mT * q.size(-1) ** -0.5 + added
        if self.sink is None:
            return scores.softmax(-1) @ v
        sink = self.sink.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ v


@source("watched")
def watched(case):
    made, model = Drawn(case), Attend()
    args, own = made.given
    with torch.no_grad():
        with sl.watch(model) as seen:
            output = model(*args, **own)
        assert torch.equal(output, sl.attention(*args, **own))
    check(case, seen[""], made.dense, STATISTICS)


@source("watched and kept")
def watched_and_kept(case):
    made, model = Drawn(case), Attend()
    args, own = made.given
    for keep in (True, "cpu"):
        with sl.watch(model, keep=keep, measure=sl.Look(map=2)) as seen:
            model(*args, **own)
        check(case, seen[""], made.dense)


@source("torch's kernel", scores=("scaled_dot",))
def torchs_kernel(case):
    made, model = Drawn(case), Kernel()
    args = (made.q, made.k, made.v, made.as_tensor)
    for keep in (False, True):
        with torch.no_grad(), sl.watch(model, keep=keep) as seen:
            output = model(*args)
        assert torch.equal(output, model(*args))
        check(case, seen[""], made.dense, QUESTIONS if keep else STATISTICS)


@source("stored", masks=("nothing", "bias"), scores=("scaled_dot",), dtypes=DTYPES[:2])
def stored(case):
    made = Drawn(case)
    q, k, v = made.q, repeated(made.q, made.k), repeated(made.q, made.v)
    model = ByHand()
    with sl.watch(model, keep=True) as seen:
        model(q, k, v, made.added.to(case.dtype))
    assert seen[""].source == "weights"
    check(case, seen[""], made.dense)


@source("stored with sinks", masks=("nothing", "bias"), scores=("scaled_dot",), dtypes=DTYPES[:2])
def stored_with_sinks(case):
    made = Drawn(case)
    q, k, v = made.q, repeated(made.q, made.k), repeated(made.q, made.v)
    sink = randn(q.size(1), seed=9, dtype=case.dtype)
    model = ByHand(sink)
    with sl.watch(model, keep=True) as seen:
        model(q, k, v, made.added.to(case.dtype))
    assert seen[""].source == "weights"
    check(case, seen[""], Dense.of(q, k, made.added, sink=sink))


@source("sinks", masks=BY_POSITION, scores=("scaled_dot",), dtypes=DTYPES[:2])
def sinks(case):
    made = Drawn(case)
    sink = randn(made.lead[-1], seed=9, dtype=case.dtype)
    causal, (left, right) = case.mask == "causal", (2, 1) if case.mask == "window" else (-1, -1)

    class Flash(nn.Module):
        def forward(self, q, k, v):
            return HUB(q, k, v, None, None, None, D**-0.5, causal, left, right, sink)[0]

    model, by_time = Flash(), [x.transpose(1, 2) for x in (made.q, made.k, made.v)]
    for keep in (False, True):
        with sl.watch(model, keep=keep) as seen:
            model(*by_time)
        dense = Dense.of(made.q, made.k, made.added, sink=sink)
        check(case, seen[""], dense, QUESTIONS if keep else STATISTICS)


OF_KEYS = ("received", "received_from", "received_from a window", "their maximum", "offsets", "all offsets")
OF_QUERIES = ("lse", "entropy", "peak", "logit", "is_looking", "columns", "mass", "mass of ids")


@source("padded", masks=BY_POSITION, scores=("scaled_dot",))
def padded(case):
    """Queries that are known to be padding are left out of all sums."""
    n = case.size[1]
    made = Drawn(case, (2, 2), (n, n))
    lengths, model = [n - n // 3, n], Attend()
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    made.added = made.added + as_added(real[:, None, None])
    args, own = made.given
    mask = sl.masks.padding(lengths) if made.mask is None else made.mask & sl.masks.padding(lengths)
    with sl.watch(model, keep=True, lengths=lengths) as seen:
        model(*args[:3], mask, **own)
    sight, dense = seen[""], made.dense
    left_out = Dense(dense.weights * real[:, None, :, None], dense.lse)
    assert torch.equal(sight.is_padding, (~real)[:, None].expand(2, 2, n))
    assert bool(sight.entropy.masked_select(~real[:, None]).isnan().all())
    rtol, atol = case.tolerance
    for name in OF_KEYS:
        near(QUESTIONS[name].ask(sight), QUESTIONS[name].ask(left_out), rtol, atol, name)
    for name in OF_QUERIES:
        found, truth = QUESTIONS[name].ask(sight), QUESTIONS[name].ask(dense)
        each = real[:, None] if found.dim() == 3 else real[:, None, :, None]
        near(*(torch.where(each, x.double(), 0.0) for x in (found, truth)), rtol, atol, name)


@source("steps")
def steps(case):
    """The steps of a decoding loop, stacked, are the whole."""
    n = case.size[1]
    made = Drawn(case, size=(n, n))
    made.added = made.added + MASKS["causal"](made.lead, n, n)[1]
    by_position = case.mask in {"nothing", "causal", "causal_from_start"}
    model, starts = Attend(), [0, n // 3, n // 3 + 1, n - 2]
    own = made.given[1]
    with sl.watch(model, keep=True) as seen:
        for a, b in zip(starts, [*starts[1:], n], strict=True):
            rows = (
                sl.masks.causal() if by_position else sl.masks.bias(made.added[..., a:b, :b].to(case.dtype))
            )
            model(made.q[..., a:b, :], made.k[..., :b, :], made.v[..., :b, :], rows, **own)
    check(case, seen.stack(""), made.dense)


@source("backward", scores=("scaled_dot",))
def backward(case):
    made, model = Drawn(case, grad=True), Attend()
    args, own = made.given
    with sl.watch(model, grad=True) as seen:
        output = model(*args, **own)
    gradient = randn(*output.shape, seed=41, dtype=case.dtype)
    sight = seen[""]
    (sight.entropy.sum() * 0 + (output * gradient).sum()).backward(retain_graph=True)
    dense = made.dense
    check(case, sight, dense)
    rtol, atol = case.tolerance
    keys, queries = dense.relevance(made.v, gradient)
    near(sight.relevance.keys, keys, rtol, 10 * atol, "relevance of keys")
    near(sight.relevance.queries, queries, rtol, 10 * atol, "relevance of queries")
    half = case.dtype.itemsize == 2
    expected = dense.importance(made.v, gradient)
    near(sight.importance, expected, 3e-2 if half else 1e-4, 1.0 if half else 1e-3, "importance")
    if case.dtype == torch.float64 and case.size == SMALL:
        agree_in_gradients(sight, dense, (made.q, made.k), questions=STATISTICS, rtol=1e-8, atol=1e-9)


# The table


def every() -> Iterator[Case]:
    """All that the sources take."""
    for name, taken in SOURCES.items():
        for mask in taken.masks:
            for score in taken.scores:
                for dtype in taken.dtypes:
                    for size in (SMALL, LARGE):
                        yield Case(name, mask, score, dtype, size)


def some() -> Iterator[Case]:
    """Each source with a third of its masks at the small size and a fifth at the large, in turns."""
    n = 0
    for i, (name, taken) in enumerate(SOURCES.items()):
        for j, mask in enumerate(taken.masks):
            for size, every_nth in ((SMALL, 3), (LARGE, 5)):
                if (i + j) % min(every_nth, len(taken.masks)) == 0:
                    score = taken.scores[n % len(taken.scores)]
                    dtype = taken.dtypes[(n + n // 6) % len(taken.dtypes)]
                    n += 1
                    yield Case(name, mask, score, dtype, size)


def run(case, tmp_path):
    """Check one case."""
    extra = (tmp_path,) if case.source == "saved" else ()
    SOURCES[case.source].run(case, *extra)


@pytest.mark.parametrize("case", list(some()), ids=str)
def test_all_that_is_asked_is_that_of_the_matrix(case, tmp_path):
    run(case, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
def test_every_combination_at_the_small_size(name, tmp_path):
    for case in every():
        if (case.source, case.size) == (name, SMALL):
            run(case, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
def test_every_mask_at_the_large_size(name, tmp_path):
    """Scores and dtypes in turn: a case takes half a second."""
    taken = SOURCES[name]
    for n, mask in enumerate(taken.masks):
        score, dtype = taken.scores[n % len(taken.scores)], taken.dtypes[n // 2 % len(taken.dtypes)]
        run(Case(name, mask, score, dtype, LARGE), tmp_path)
