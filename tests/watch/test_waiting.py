"""Short calls wait and are measured together: what they show is what they would have shown at once."""

import gc
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look.recording import Recording
from sightline.watch import attention_call, batching, intercept, kernel_calls, modules
from tests.look.look_oracle import agrees, matrix, randn
from tests.seams import batched_on
from tests.watch.watch_oracle import B, E, H, S, Sdpa, T

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def stacks():
    """How many calls were measured together, each time."""
    with batched_on("cpu") as sizes:
        yield sizes


class Layers(nn.Module):
    """Attends in three layers, two of them of one shape; each makes its own queries and keys."""

    def __init__(self, after=None):
        super().__init__()
        self.attentions = nn.ModuleList(Sdpa() for _ in range(3))
        self.after = after

    def forward(self, x, mask=None):
        for i, attention in enumerate(self.attentions):
            n = T if i == 1 else x.size(2)
            q, k = x[:, :, :n] * (i + 1), x + i
            x = x + F.pad(attend(attention, q, k, x, mask), (0, 0, 0, x.size(2) - n))
            if self.after is not None:
                self.after(q, k)
        return x


def attend(attention, q, k, v, mask):
    attention.options = {} if mask is None else {"attn_mask": mask[..., : q.size(2), :]}
    return attention(q, k, v)


def oracle(model, x, mask=None):
    """(weights, lse) of each layer, from the whole matrix."""
    found = []
    inside = [
        attention.register_forward_pre_hook(lambda _module, args: found.append([a.clone() for a in args[:2]]))
        for attention in model.attentions
    ]
    model(x, mask)
    for hook in inside:
        hook.remove()
    added = None if mask is None else torch.zeros(mask.shape, dtype=x.dtype).masked_fill(~mask, -torch.inf)
    return [matrix(q, k, added if added is None else added[..., : q.size(2), :]) for q, k in found]


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_what_waits_shows_what_it_would_have_shown(mode, has_mask, stacks):
    model, x = Layers(), randn(B, H, S, 4)
    mask = (randn(B, 1, S, S, seed=5) > -0.5) | torch.eye(S, dtype=torch.bool) if has_mask else None
    with mode(), sl.watch(model) as seen:
        blind = model(x, mask)
    assert stacks == [2, 1]
    assert seen.names() == [f"attentions.{i}" for i in range(3)]
    for sight, expected in zip((seen[i] for i in range(3)), oracle(model, x, mask), strict=True):
        agrees(sight, *expected)
    assert torch.equal(blind, model(x, mask))


def test_a_sight_that_is_asked_for_in_the_block(stacks):
    model, x = Layers(), randn(B, H, S, 4)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
        agrees(seen[0], *oracle(Layers(), x)[0])
        model(x)
    assert stacks == [2, 1, 2, 1]
    assert [len(calls) for _, calls in seen.items()] == [2, 2, 2]


def test_much_work_does_not_wait(monkeypatch, stacks):
    monkeypatch.setattr(batching, "_MUCH", 2 * B * H * S * S * 4)
    model, x = Layers(), randn(B, H, S, 4)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert stacks == [2, 1]  # full after the third
    monkeypatch.setattr(batching, "_MUCH", 1)
    stacks.clear()
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert (stacks, len(seen)) == ([], 3)


# Who may write


def test_keys_in_a_cache_that_is_written_to_step_by_step():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(1, H, S, 4, dtype=torch.float64))

        def forward(self, x, at):
            self.cache[:, :, at] = x
            return F.scaled_dot_product_attention(x[:, :, None], self.cache, self.cache)

    model, xs = Cached(), randn(S, 1, H, 4)
    with torch.no_grad(), sl.watch(model) as seen:
        for i, x in enumerate(xs):
            model(x, i)
    assert len(seen.calls("")) == S
    keys = torch.zeros(1, H, S, 4, dtype=torch.float64)
    for i, sight in enumerate(seen.calls("")):
        keys[:, :, i] = xs[i]
        agrees(sight, *matrix(xs[i][:, :, None], keys))


def test_keys_that_somebody_keeps_and_writes_to_later():
    """By the next call they have been copied."""
    held = []
    model, x = Layers(lambda q, k: held.append((q, k))), randn(B, H, S, 4)
    expected = oracle(Layers(), x)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
        for q, k in held[:2]:
            q.zero_()
            k.data.zero_()
    agrees(seen[0], *expected[0])
    agrees(seen[1], *expected[1])


@pytest.mark.filterwarnings("ignore:.*ran and could not be read:UserWarning")
@pytest.mark.parametrize("by_a_mode", [False, True])
def test_what_was_written_over_at_once_is_told(by_a_mode, monkeypatch):
    monkeypatch.setattr(intercept, "uses_compiled_code", lambda: by_a_mode)
    model, x = Layers(lambda q, _k: q.zero_()), randn(B, H, S, 4)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert len(seen) == 0
    assert all("keep=True" in reason for reason in seen.unseen().values())
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(x)
    assert len(seen) == 3


@pytest.mark.combinations
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_only_what_others_hold_is_copied(held, packed):
    calls = batching.CallQueue()
    x = randn(B, 2 * H, T, 4)
    q, k = (x[:, :H], x[:, H:]) if packed else (x[:, :H].clone(), x[:, H:].clone())
    places = q.data_ptr(), k.data_ptr()
    del x
    others = (q, k) if held else ()
    call = attention_call.kernel_call(q, k, sl.masks.Mask(), 0.5, None)
    assert calls.add("a", call)
    del q, k, call
    gc.collect()
    member = calls._last
    member.secure()
    kept = member.q.data_ptr() == places[0], member.k.data_ptr() == places[1]
    assert kept == (len(others) == 0,) * 2


def test_a_sight_of_many_is_saved_alone(tmp_path):
    """Its statistics are views of what all layers share; a file of it holds no more than its own."""
    model, x = Layers(), randn(B, H, 101, 4)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    seen.save(tmp_path / "all.safetensors")
    again = Recording.load(tmp_path / "all.safetensors")
    assert torch.equal(again[2].received, seen[2].received)
    sight, buffer = seen[0], io.BytesIO()
    torch.save(sight, buffer)
    alone = io.BytesIO()
    torch.save({name: x.clone() for name, x in sight.statistics.items()}, alone)
    assert len(buffer.getvalue()) < len(alone.getvalue()) + 2000


def test_encoder_layers_of_torch_wait_too(stacks):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, H, 5, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    x = randn(B, T, E, dtype=torch.float32)
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert stacks == [3]
    assert seen.names() == [f"layers.{i}.self_attn" for i in range(3)]


class Decoder(nn.Module):
    """Attends over a cache whose items a beam search puts into another order."""

    def __init__(self):
        super().__init__()
        self.attn = Sdpa()

    def forward(self, x, cache, order=None):
        cache = cache if order is None else cache.index_select(0, order)
        keys = torch.cat([cache, x], 2)
        self.attn(x, keys, keys)
        return keys


def test_beams_tokens_and_calls_left_out_are_those_of_their_calls():
    model, orders = (
        Decoder(),
        [None, *(torch.tensor(x) for x in ([1, 0, 2], [2, 2, 0], [0, 0, 1], [1, 2, 0]))],
    )

    def run(**options):
        with torch.no_grad(), sl.watch(model, tokens=[list("abc")] * 3, **options) as seen:
            cache = randn(3, H, 0, 4, dtype=torch.float32)
            for i, order in enumerate(orders):
                cache = model(randn(3, H, 3 if i == 0 else 1, 4, seed=i, dtype=torch.float32), cache, order)
        return seen.calls("attn")

    for every in (1, 2):
        waited, at_once = run(every=every), run(every=every, keep=True)
        assert len(waited) == len(at_once) == len(orders[::every])
        for a, b in zip(waited, at_once, strict=True):
            assert (a.t, a.s, a.lead, a.tokens) == (b.t, b.s, b.lead, b.tokens)
            assert (a.parents is None) == (b.parents is None)
            assert a.parents is None or torch.equal(a.parents, b.parents)
            assert [x[:3] for x in a.skipped] == [x[:3] for x in b.skipped]
            assert (a.after is None) == (b.after is None)
        assert sum(x.parents is not None for x in waited) == len(orders[::every]) - 1
        assert [len(x.skipped) for x in waited] == [0] + [every - 1] * (len(waited) - 1)
        assert all((x.after is not None) == (every == 2) for x in waited[:-1])


def test_what_only_an_operator_held_waits_where_nobody_counts_versions():
    """Inside torch's layer, below autograd, queries are the layer's own; elsewhere others may hold them."""
    func = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    q, k, v = (randn(B, H, T, 4) for _ in range(3))
    call = kernel_calls.KernelCall(kernel_calls.kernel_of(func), (q, k, v), {}, func(q, k, v))
    calls = batching.CallQueue()
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch._C._ExcludeDispatchKeyGuard(below):
        assert not calls.put("a", call)
        call.is_inside = True
        assert calls.put("a", call)
    assert len(calls) == 1


def test_a_layer_of_torchs_encoder_is_known_to_attend_by_kernels():
    """So its products are heard in the first block only; when it is trained it is seen all the same."""
    layer = nn.TransformerEncoderLayer(6, 2, 5, batch_first=True)  # torch's operator wants even heads
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, names = randn(B, T, 6, dtype=torch.float32), [f"layers.{i}.self_attn" for i in range(2)]
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert seen.names() == names
    assert modules._STRUCTURES[model].by_kernels
    model.train()
    with sl.watch(model) as seen:
        model(x)
    assert (seen.names(), seen.unseen()) == (names, {})


@pytest.mark.parametrize("inside", ["heads", "tokens"])
def test_stacked_calls_lie_in_memory_as_each_of_them_does(inside):
    one, other = (randn(B, H, T, E) for _ in range(2))
    if inside == "heads":
        one, other = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (one, other))
    stacked = batching._cat_heads([one, other])
    assert torch.equal(stacked, torch.cat([one, other]))
    assert stacked.stride() == one.stride()
