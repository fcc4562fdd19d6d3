import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from created import created
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.attention import attend
from sightline.look.fused import Listen

masks = sl.masks


# The oracle: softmax(scale * score + mask) @ v in float64, nothing spared


def plain(q, k, v, allowed=None, added=None, score=None, scale=None):
    if q.dim() == k.dim() == v.dim() == 4 and k.size(1) == v.size(1) and q.size(1) % k.size(1) == 0:
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
    if score is None:
        scores = torch.einsum("...td,...sd->...ts", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    else:
        scores = score(q, k) * (1.0 if scale is None else scale)
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0) @ v


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(*lead, t=5, s=7, d=3, d_v=3, dtype=torch.float64):
    sizes = ((t, d), (s, d), (s, d_v))
    return [randn(*lead, *size, seed=seed, dtype=dtype) for seed, size in enumerate(sizes)]


def value_and_gradients(function, tensors):
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    output = function(*tensors)
    upstream = randn(*output.shape, seed=77).to(output)
    grads = torch.autograd.grad(output, tensors, upstream, allow_unused=True)
    return [output.detach()] + [
        torch.zeros_like(x) if g is None else g for x, g in zip(tensors, grads, strict=True)
    ]


def close(found, expected, atol=1e-12):
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=atol)


class in_blocks:
    """Take the block path at any size, two queries at a time, so that small tests reach it."""

    def __init__(self, pairs=1, block=2):
        self.small = {"_PAIRS": pairs, "_BLOCK": block}

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for name, value in self.small.items():
            self.patch.setitem(getattr(attend, name), "cpu", value)

    def __exit__(self, *_):
        self.patch.undo()


class in_one_call(in_blocks):
    def __init__(self):
        super().__init__(pairs=1 << 40, block=1 << 40)


def test_the_oracle_is_the_reference():
    q, k, v = qkv(2, 3)
    allowed = randn(2, 3, 5, 7, seed=9) > 0.3
    allowed[0, 1, 2] = False
    expected, _ = sl.reference.scaled_dot_product_attention(q, k, v, allowed)
    close([plain(q, k, v, allowed)], [expected])


# The grid: ranks, broadcasting, lengths, widths, masks, scores and both ways

LEADS = [
    ((), (), ()),
    ((2,), (2,), (2,)),
    ((2, 3), (2, 3), (2, 3)),
    ((5, 2, 3), (5, 2, 3), (5, 2, 3)),
    ((2, 3), (1, 3), (2, 1)),
    ((3,), (2, 1), (2, 3)),
    ((2, 3), (), (3,)),
    ((2, 1, 1), (2, 5, 3), (5, 1)),
    ((1,), (2,), (2,)),
    ((2, 6), (2, 3), (2, 3)),  # grouped queries
    ((2, 6), (1, 2), (2, 2)),
    ((1, 6), (2, 2), (2, 2)),
    ((2, 6), (2, 1), (2, 1)),
]
MASKS = ["none", "causal", "causal_from_start", "window", "ahead", "padding", "head_padding"]
MASKS += ["dense_2d", "dense_batch", "dense_full", "bias_2d", "bias_full"]


def drawn(name, lead, t, s, seed):
    """A mask and, by index arithmetic of our own, what it allows and what it adds."""
    i, j = torch.arange(t)[:, None], torch.arange(s)
    step = j - i - (s - t)
    lengths = torch.tensor([(seed * 5 + 3 * b) % (s + 1) for b in range(lead[0] if lead else 1)])
    rows = lengths.reshape(-1, *(1,) * (len(lead) + 1))
    per_head = (lengths[:, None] + torch.arange(lead[1] if len(lead) > 1 else 1)) % (s + 1)
    noise = randn(*lead, t, s, seed=seed)
    batch = lead[:1] or (1,)
    match name:
        case "none":
            return masks.Mask(), None, None
        case "causal":
            return masks.causal(), step <= 0, None
        case "causal_from_start":
            return masks.causal(align="start"), j <= i, None
        case "window":
            return masks.window(2, 1), (step >= -2) & (step <= 1), None
        case "ahead":
            return masks.window(0, None, align="start"), j >= i, None
        case "padding":
            return masks.padding(lengths if lead else lengths[0]), j < (rows if lead else lengths[0]), None
        case "head_padding" if len(lead) > 1:
            shaped = per_head.reshape(*per_head.shape, *(1,) * (len(lead) - 2), 1, 1)
            return masks.padding(per_head), j < shaped, None
        case "dense_2d" | "head_padding":
            allowed = randn(t, s, seed=seed) > 0
            return masks.dense(allowed), allowed, None
        case "dense_batch" if lead:
            allowed = randn(*batch, 1, s, seed=seed) > 0
            return masks.dense(allowed), allowed.reshape(*batch, *(1,) * len(lead), s), None
        case "dense_full" | "dense_batch":
            return masks.dense(noise > 0), noise > 0, None
        case "bias_2d":
            return masks.bias(noise.reshape(-1, t, s)[0]), None, noise.reshape(-1, t, s)[0]
        case "bias_full":
            added = noise.masked_fill(noise > 1, -math.inf)
            return masks.bias(added), None, added
    raise AssertionError(name)


def both(a, b, how):
    return how(a, b) if a is not None and b is not None else (b if a is None else a)


def scored(name, d):
    built = {
        "general": lambda: sl.scores.General(d, d),
        "low_rank": lambda: sl.scores.LowRank(d, d, 2),
        "additive": lambda: sl.scores.Additive(d, d, 5),
    }
    return built[name]().double() if name in built else name


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    leads=st.sampled_from(LEADS),
    t=st.sampled_from([1, 5, 7]),
    s=st.sampled_from([1, 5, 11]),
    d=st.sampled_from([2, 3]),
    d_v=st.sampled_from([1, 3]),
    names=st.tuples(st.sampled_from(MASKS), st.sampled_from(MASKS)),
    score=st.sampled_from([None, None, "dot", "scaled_dot", "cosine", "general", "low_rank", "additive"]),
    scale=st.sampled_from([None, 0.7, -1.3, 0.0]),
    way=st.sampled_from([in_blocks, in_one_call]),
)
def test_it_is_the_equation(leads, t, s, d, d_v, names, score, scale, way):
    q, k, v = (
        randn(*lead, *x, seed=n)
        for n, (lead, x) in enumerate(zip(leads, ((t, d), (s, d), (s, d_v)), strict=True))
    )
    grouped = len(leads[0]) == 2 and leads[0][1] == 6
    lead = (2, 6) if grouped else tuple(torch.broadcast_shapes(*leads))
    (one, allowed_1, added_1), (two, allowed_2, added_2) = (
        drawn(name, lead, t, s, n) for n, name in enumerate(names)
    )
    allowed = both(allowed_1, allowed_2, torch.logical_and)
    added = both(added_1, added_2, torch.add)
    made = scored(score, d)
    module = made if isinstance(made, sl.scores.Score) else None if score is None else sl.scores.named(score)
    parameters = [] if module is None else list(module.parameters())

    with way():
        found = value_and_gradients(
            lambda *x: sl.attention(*x, one & two, score=made, scale=scale), (q, k, v)
        )
        expected = value_and_gradients(lambda *x: plain(*x, allowed, added, module, scale), (q, k, v))
        assert found[0].shape == (*lead, t, d_v)
        close(found, expected)
        with torch.no_grad():
            close([sl.attention(q, k, v, one & two, score=made, scale=scale)], expected[:1])
        if parameters:
            ours = sl.attention(q, k, v, one & two, score=made, scale=scale).sum()
            truth = plain(q, k, v, allowed, added, module, scale).sum()
            close(torch.autograd.grad(ours, parameters), torch.autograd.grad(truth, parameters))


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 5, 7), (1, 7), (5, 1)])
@pytest.mark.parametrize("score", [None, "additive"])
def test_gradients_reach_a_bias(way, shape, score):
    score = scored(score, 3)
    module = score or None

    def ours(q, k, v, added):
        return sl.attention(q, k, v, masks.bias(added) & masks.causal() & masks.padding([4, 6]), score=score)

    def truth(q, k, v, added):
        i, j = torch.arange(5)[:, None], torch.arange(7)
        allowed = (j <= i + 2) & (j < torch.tensor([4, 6])[:, None, None, None])
        return plain(q, k, v, allowed, added, module)

    tensors = [*qkv(2, 3), randn(*shape, seed=5)]
    with way():
        close(value_and_gradients(ours, tensors), value_and_gradients(truth, tensors))


def test_tensors_are_masks_too():
    q, k, v = qkv(2, 3)
    allowed, added = randn(2, 1, 7, seed=5) > 0, randn(3, 5, 7, seed=6)
    close([sl.attention(q, k, v, allowed)], [plain(q, k, v, allowed[:, None])])
    close([sl.attention(q, k, v, added)], [plain(q, k, v, added=added)])
    close([sl.attention(q, k, v, added.float())], [plain(q, k, v, added=added.float())])


def test_a_score_of_ones_own():
    class Near(sl.scores.Score):
        def forward(self, q, k):
            return -torch.cdist(q, k)

    q, k, v = qkv(2, 3)
    near = Near()
    allowed = torch.arange(7) <= torch.arange(5)[:, None] + 2
    for way in (in_blocks, in_one_call):
        with way():
            close([sl.attention(q, k, v, masks.causal(), score=near)], [plain(q, k, v, allowed, score=near)])


# Exactness in the other dtypes

EXACT_MASKS = {
    "none": masks.Mask(),
    "causal": masks.causal(),
    "window": masks.window(17, 3),
    "padding": masks.padding([67, 29]),
    "both": masks.causal() & masks.padding([67, 29]),
    "bias": masks.bias(randn(67, 71, seed=11).float()),
}


def root_mean_square(x):
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("way", [lambda: in_blocks(block=16), in_one_call], ids=["blocks", "one_call"])
@pytest.mark.parametrize("name", EXACT_MASKS)
def test_float32_is_as_exact_as_torch(name, way):
    q, k, v = qkv(2, 3, t=67, s=71, d=19, d_v=19)
    mask = EXACT_MASKS[name]
    shown = mask.dense(67, 71)
    shown = shown[:, None] if shown.dim() == 3 else shown
    boolean = shown.dtype == torch.bool
    exact = value_and_gradients(
        lambda *x: plain(*x, shown if boolean else None, None if boolean else shown.double()), (q, k, v)
    )
    single = [x.float() for x in (q, k, v)]
    with way():
        ours = value_and_gradients(lambda *x: sl.attention(*x, mask), single)
    torchs = value_and_gradients(lambda *x: F.scaled_dot_product_attention(*x, shown), single)
    for truth, found, other in zip(exact, ours, torchs, strict=True):
        assert root_mean_square(found - truth) <= 1.5 * root_mean_square(other - truth)


@pytest.mark.parametrize("way", [lambda: in_blocks(block=16), in_one_call], ids=["blocks", "one_call"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", EXACT_MASKS)
def test_half_precision_is_sane(name, dtype, atol, way):
    rough = [x.to(dtype) for x in qkv(2, 3, t=67, s=71, d=19, d_v=13)]
    mask = EXACT_MASKS[name]
    with way():
        ours = value_and_gradients(lambda *x: sl.attention(*x, mask), rough)
        exact = value_and_gradients(lambda *x: sl.attention(*x, mask), [x.double() for x in rough])
    for found, truth in zip(ours, exact, strict=True):
        assert found.dtype == dtype
        assert root_mean_square(found - truth) <= atol * max(1, root_mean_square(truth))


# Rows with nothing to see, and nothing at all


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "cosine", "additive"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("mask", "t", "empty"),
    [
        (masks.padding([0, 3]), 5, [0, 1, 2, 3, 4]),
        (masks.causal(), 11, [0, 1, 2, 3]),  # the last eleven of seven positions: four stand before all keys
        (masks.window(0, 0) & masks.causal(), 11, [0, 1, 2, 3]),
        (masks.dense(torch.arange(5)[:, None] % 2 > torch.zeros(7)), 5, [0, 2, 4]),
        (masks.bias(torch.zeros(5, 7).masked_fill(torch.arange(5)[:, None] == 3, -math.inf)), 5, [3]),
        (masks.causal() & masks.padding([0, 7]), 7, [0, 1, 2, 3, 4, 5, 6]),
    ],
    ids=["padding", "causal", "window", "dense", "bias", "causal_padding"],
)
def test_a_query_with_nothing_to_see_gets_zeros_and_no_gradient(mask, t, empty, dtype, score, way):
    tensors = [x.to(dtype) for x in qkv(2, 3, t=t)]
    score = scored(score, 3)
    score = score.to(dtype) if isinstance(score, sl.scores.Score) else score
    with way():
        output, *grads = value_and_gradients(lambda *x: sl.attention(*x, mask, score=score), tensors)
    assert output.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)
    assert (output[0, :, empty] == 0).all()
    assert (grads[0][0, :, empty] == 0).all()
    rest = [i for i in range(t) if i not in empty]
    assert not rest or (output[0, :, rest] != 0).any()


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("mask", [masks.Mask(), masks.causal(), masks.window(1, 1), masks.padding([0, 0])])
@pytest.mark.parametrize(("t", "s"), [(0, 7), (5, 0), (0, 0)])
def test_no_queries_or_no_keys(t, s, mask, score, way):
    with way():
        output, *grads = value_and_gradients(
            lambda *x: sl.attention(*x, mask, score=scored(score, 3)), qkv(2, 3, t=t, s=s, d_v=2)
        )
    assert output.shape == (2, 3, t, 2)
    assert (output == 0).all()
    assert all((grad == 0).all() for grad in grads)


def test_an_empty_batch():
    q, k, v = qkv(0, 3)
    assert sl.attention(q, k, v, masks.causal()).shape == (0, 3, 5, 3)


# What is never built


def largest(function, *tensors):
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    with created() as forward:
        output = function(*tensors)
    with created() as backward:
        output.sum().backward()
    assert all(x.grad is not None for x in tensors)
    return max(forward), max(backward)


def test_causal_builds_nothing_of_t_by_s():
    q, k, v = qkv(2, 3, t=101, s=101, d=8, d_v=8, dtype=torch.float32)
    for mask in (masks.causal(), masks.causal() & masks.window(500, 3), None):
        for size, name in largest(lambda *x, m=mask: sl.attention(*x, m), q, k, v):
            assert size < 101 * 101, name


@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(),
        masks.window(5, 5),
        masks.causal() & masks.padding([70, 29]),
        masks.padding([70, 29]) & masks.window(None, 13),
        masks.bias(torch.zeros(1, 73)) & masks.causal(),
    ],
    ids=["causal", "window", "causal_padding", "padding_window", "bias_causal"],
)
@pytest.mark.parametrize("score", [None, "additive"])
def test_the_block_path_builds_nothing_of_t_by_s(mask, score):
    t, s, lead = 71, 73, 2
    q, k, v = qkv(lead, 1, t=t, s=s, d=8, d_v=8)
    score = scored(score, 8)
    with in_blocks(pairs=4 * s * lead, block=8):
        for size, name in largest(lambda *x: sl.attention(*x, mask, score=score), q, k, v):
            assert size < t * s, name


@pytest.mark.parametrize("score", [None, "additive"])
def test_blocks_keep_nothing_of_t_by_s_for_the_backward_pass(score):
    q, k, v = (x.requires_grad_() for x in qkv(2, 1, t=71, s=73, d=8, d_v=8))
    score, kept = scored(score, 8), {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    mask = masks.padding([70, 29]) & masks.window(None, 60)
    with in_blocks(pairs=4 * 73 * 2, block=8), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        sl.attention(q, k, v, mask, score=score)
    for x in (q, k, v):
        kept.pop(x.untyped_storage().data_ptr(), None)
    assert sum(kept.values()) < 71 * 73


def test_a_window_costs_its_width_and_not_the_length():
    q, k, v = qkv(1, 1, t=211, s=211, d=8, d_v=8)
    with in_blocks(block=8), torch.no_grad(), created() as seen:
        sl.attention(q, k, v, masks.window(4, 4))
    assert max(size for size, name in seen if "arange" in name) <= 8 + 4 + 4


def test_the_trace_would_see_it():
    q, k, v = qkv(2, 3, t=101, s=101, d=8, d_v=8)
    assert min(largest(lambda *x: sl.reference.scaled_dot_product_attention(*x)[0], q, k, v))[0] >= 101 * 101


PEAK = """
import resource, sys, torch
import sightline as sl

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def inputs(t):
    return [torch.randn(1, 1, t, 64) for _ in range(3)]

with torch.no_grad():
    sl.attention(*inputs(64), sl.masks.causal())
    q, k, v = inputs(16_384)
    before = peak()
    sl.attention(q, k, v, sl.masks.causal())
print(peak() - before)
"""


def test_causal_attention_over_16384_positions_stays_under_200_megabytes():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)  # noqa: S603
    assert int(done.stdout) < 200e6  # the weights alone would be 1.07 GB


# Dropout


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
def test_dropout_keeps_the_mean_and_follows_the_seed(way, score):
    q, k, v = qkv(500, 1)
    q, k, v = q[:1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v)
    score = scored(score, 3)

    def dropped(seed, p):
        torch.manual_seed(seed)
        return sl.attention(q, k, v, masks.causal(), score=score, dropout_p=p)

    with way(), torch.no_grad():
        once = dropped(3, 0.3)
        assert torch.equal(once, dropped(3, 0.3))
        assert not torch.equal(once, dropped(4, 0.3))
        assert not torch.equal(once[0], once[1])
        whole = dropped(3, 0.0)
        assert torch.equal(whole, dropped(4, 0.0))
        assert (once.mean(0) - whole[0]).abs().max() < 6 * once.std(0).max() / math.sqrt(500)
        assert once.std(0).max() > 0.1


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
@pytest.mark.parametrize("score", [None, "additive"])
def test_with_dropout_the_gradient_is_that_of_the_draw(way, score):
    q, k, v = qkv(2, 3)
    score = scored(score, 3)

    def dropped(q, k, v):
        torch.manual_seed(3)
        return sl.attention(q, k, v, masks.causal(), score=score, dropout_p=0.5)

    with way():
        _, _, _, grad = value_and_gradients(dropped, (q, k, v))
        step = randn(*v.shape, seed=8)  # the output is linear in v: the derivative is exact
        change = dropped(q, k, v + step) - dropped(q, k, v)
    upstream = randn(*change.shape, seed=77)
    torch.testing.assert_close((grad * step).sum(), (upstream * change).sum(), rtol=0, atol=1e-10)


# Around it


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's, of itself
@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("train", [False, True])
def test_compile_makes_one_graph(request, train, score):
    if request.config.getoption("jaxtyping_packages", None):
        pytest.skip("the shape hook can't be compiled")
    score = scored(score, 3)

    def step(q, k, v, lengths):
        seen = sl.attention(q, k, v, masks.causal(), score=score)
        seen = seen + sl.attention(q, k, v, masks.padding(lengths), scale=0.5)
        return seen + sl.attention(q, k, v, masks.causal() & masks.padding(lengths) & masks.window(3, 0))

    tensors, lengths = qkv(2, 3, t=7), torch.tensor([2, 5])
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    if train:
        close(
            value_and_gradients(lambda *x: compiled(*x, lengths), tensors),
            value_and_gradients(lambda *x: step(*x, lengths), tensors),
        )
    else:
        close([compiled(*tensors, lengths)], [step(*tensors, lengths)])
    torch._dynamo.reset()


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([2, 5]), masks.bias(torch.zeros(5, 7))])
@pytest.mark.parametrize("score", [None, "general", "additive"])
def test_autocast(mask, score):
    q, k, v = qkv(2, 3, dtype=torch.float32)
    score = scored(score, 3)
    score = score.float() if score else None
    with torch.autocast("cpu", torch.bfloat16):
        output, *grads = value_and_gradients(lambda *x: sl.attention(*x, mask, score=score), (q, k, v))
        mixed = sl.attention(q.bfloat16(), k, v, mask, score=score)
    assert output.dtype == mixed.dtype == torch.bfloat16
    assert all(grad.dtype == torch.float32 for grad in grads)
    torch.testing.assert_close(output.float(), sl.attention(q, k, v, mask, score=score), rtol=0, atol=5e-2)


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
def test_no_grad_means_no_graph(way):
    q, k, v = (x.requires_grad_() for x in qkv(2, 3))
    with way():
        with torch.no_grad():
            assert not sl.attention(q, k, v, masks.causal()).requires_grad
        assert sl.attention(q, k, v, masks.causal()).requires_grad
        assert not sl.attention(q.detach(), k.detach(), v.detach(), masks.causal()).requires_grad


@pytest.mark.parametrize("way", [in_blocks, in_one_call])
def test_inputs_may_lie_in_memory_as_they_like(way):
    q, k, v = qkv(2, 3, t=5, s=7, d=8, d_v=8)
    spread = [
        q.transpose(1, 2).contiguous().transpose(1, 2),  # (B, T, H, D) in memory, as projections leave it
        k.mT.contiguous().mT,
        v.repeat_interleave(2, -1)[..., ::2],
    ]
    assert not any(x.is_contiguous() for x in spread)
    for mask in (None, masks.causal(), masks.padding([2, 5]), masks.window(1, 1)):
        with way():
            close(
                value_and_gradients(lambda *x, m=mask: sl.attention(*x, m), spread),
                value_and_gradients(lambda *x, m=mask: sl.attention(*x, m), (q, k, v)),
            )


def test_inputs_are_left_as_they_were():
    q, k, v = qkv(2, 3)
    before = [x.clone() for x in (q, k, v)]
    added = randn(5, 7, seed=5)
    for mask in (masks.causal(), masks.padding([2, 5]), masks.bias(added) & masks.causal()):
        sl.attention(q, k, v, mask)
    close([q, k, v, added], [*before, randn(5, 7, seed=5)], atol=0)


def test_scale_and_score_defaults():
    q, k, v = qkv()
    close([sl.attention(q, k, v)], [sl.attention(q, k, v, scale=3**-0.5)])
    close([sl.attention(q, k, v)], [sl.attention(q, k, v, score="scaled_dot")])
    close([sl.attention(q, k, v, score="dot")], [sl.attention(q, k, v, scale=1.0)])
    close([sl.attention(q, k, v, score="dot", scale=0.3)], [sl.attention(q, k, v, scale=0.3)])


def test_a_later_token_has_no_gradient_on_an_earlier_output():
    q, k, v = (x.requires_grad_() for x in qkv(2, 3, t=7))
    for way in (in_blocks, in_one_call):
        with way():
            output = sl.attention(q, k, v, masks.causal())
            grads = torch.autograd.grad(output[..., 3, :].sum(), (k, v))
        for grad in grads:
            assert (grad[..., 4:, :] == 0).all()
            assert (grad[..., :4, :] != 0).any()


def test_decoding_with_a_cache_is_the_last_row_of_the_whole():
    q, k, v = qkv(2, 3, t=7)
    whole = sl.attention(q, k, v, masks.causal())
    for new in (1, 2, 5):
        close([sl.attention(q[..., -new:, :], k, v, masks.causal())], [whole[..., -new:, :]])


# What a user gets wrong


def ones(*shape, **kwargs):
    return torch.ones(shape, **kwargs)


GOOD = {"q": ones(2, 3, 5, 13), "k": ones(2, 3, 7, 13), "v": ones(2, 3, 7, 11)}
ALL_HALF = {name: x.half() for name, x in GOOD.items()}
BAD = {  # what is changed, what is raised, what it says
    "width": ({"k": ones(2, 3, 7, 2)}, ValueError, r"D=13 and D=2 .*k \(2, 3, 7, 2\); sl.scores.General"),
    "width_and_scale": ({"k": ones(2, 3, 7, 2), "scale": 1.0}, ValueError, r"D=13 and D=2"),
    "no_width": ({"q": ones(5, 0), "k": ones(7, 0)}, ValueError, r"at least 1 wide, got D=0"),
    "length": (
        {"v": ones(2, 3, 6, 11)},
        ValueError,
        r"S=7 for k \(2, 3, 7, 13\) and S=6 for v \(2, 3, 6, 11\)",
    ),
    "rank": ({"q": ones(13)}, ValueError, r"q of shape \(13,\); q\[None\] adds a dimension"),
    "integers": ({"q": GOOD["q"].long()}, TypeError, r"q must be a float tensor, got torch.int64; q.float"),
    "dtypes": (
        {"k": GOOD["k"].double()},
        TypeError,
        r"torch.float32, torch.float64 and torch.float32; convert",
    ),
    "devices": ({"k": GOOD["k"].to("meta")}, ValueError, r"same device, got cpu, meta and cpu; move"),
    "no_tensor": ({"v": [1.0]}, TypeError, r"v must be a torch.Tensor, got list; torch.as_tensor\(v\)"),
    "batch": ({"k": ones(5, 3, 7, 13)}, ValueError, r"k \(5, 3, 7, 13\) and v \(2, 3, 7, 11\)"),
    "heads": (
        {"q": ones(2, 5, 5, 13)},
        ValueError,
        r"multiple of .* got q \(2, 5, 5, 13\), k \(2, 3, 7, 13\)",
    ),
    "fewer_heads": ({"q": ones(2, 2, 5, 13)}, ValueError, r"got q \(2, 2, 5, 13\), k \(2, 3, 7, 13\)"),
    "mask_shape": ({"mask": ones(5, 6) > 0}, ValueError, r"\(2, 3, 5, 7\), got a mask of shape \(5, 6\)"),
    "mask_batch": ({"mask": ones(3, 1, 7) > 0}, ValueError, r"\(3, 1, 7\), read as \(3, 1, 1, 7\); insert"),
    "mask_rank": ({"mask": ones(1, 2, 3, 5, 7)}, ValueError, r"\(2, 3, 5, 7\), got .* \(1, 2, 3, 5, 7\)"),
    "mask_integers": ({"mask": ones(5, 7).int()}, TypeError, r"got torch.int32; sl.masks.from_ones\(mask\)"),
    "mask_list": ({"mask": [[True]]}, TypeError, r"one of sl\.masks"),
    "mask_device": ({"mask": ones(5, 7, device="meta")}, ValueError, r"device of q, got meta and cpu; build"),
    "lengths": ({"mask": masks.padding([1, 2, 3])}, ValueError, r"lengths \(3,\) for \(2, 3\); give one"),
    "dropout_one": ({"dropout_p": 1.0}, ValueError, r"\[0, 1\), got 1.0; 0 drops nothing"),
    "dropout_below": ({"dropout_p": -0.1}, ValueError, r"\[0, 1\), got -0.1"),
    "dropout_nan": ({"dropout_p": math.nan}, ValueError, r"\[0, 1\), got nan"),
    "dropout_text": ({"dropout_p": "0.1"}, TypeError, r"number in \[0, 1\), got str"),
    "scale_nan": ({"scale": math.nan}, ValueError, r"finite number, got nan; None gives D \*\* -0.5"),
    "scale_inf": ({"scale": -math.inf}, ValueError, r"finite number, got -inf"),
    "scale_tensor": ({"scale": ones(1)}, TypeError, r"a number, got Tensor; multiply q by a scale"),
    "score": ({"score": "cosin"}, ValueError, r"unknown score 'cosin', .* did you mean 'cosine'"),
    "score_built": (
        {"score": "additive"},
        ValueError,
        r"'additive' .* sl.scores.Additive\(d_q, d_k, d_attn\)",
    ),
    "score_class": ({"score": sl.scores.Dot}, TypeError, r"got the class Dot; sl.scores.Dot\(\)"),
    "score_widths": ({"score": sl.scores.General(13, 5)}, ValueError, r"d_k=5, got widths 13 and 13"),
    "score_dtype": (
        {**ALL_HALF, "score": sl.scores.General(13, 13)},
        TypeError,
        r"got q torch.float16 on cpu",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words):
        sl.attention(**{**GOOD, **changed})


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["length", "batch", "heads", "mask_shape", "mask_device", "lengths"])
def test_bad_input_is_noticed_by_any_score(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words):
        sl.attention(**{**GOOD, **changed}, score=sl.scores.Additive(13, 13, 2))


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([13, 7])])
def test_columns_that_lie_apart_do_not_cost_the_fused_kernel(mask):
    q = torch.randn(2, 3, 8, 13).transpose(-1, -2)  # torch would build the whole matrix for these
    calls = []
    with Listen(calls.append):
        output = sl.attention(q, q, q, mask)
    assert len(calls) == 1
    torch.testing.assert_close(output, sl.attention(*(q.contiguous(),) * 3, mask))
