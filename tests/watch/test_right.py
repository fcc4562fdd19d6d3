"""Answers that were wrong in silence: written-to q and k, moved keys, and calls that are no steps."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look.heads import by_layer, head_table
from sightline.watch import intercept
from tests.look.look_oracle import matrix, near, randn

transformers = pytest.importorskip("transformers")

B, H, T, D = 2, 3, 11, 4


class LearnedQuery(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(randn(1, H, T, D, seed=3, dtype=torch.float32))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query.expand(B, -1, -1, -1), x, x)


@pytest.mark.parametrize("change", ["q", "k", "an optimizer", "a cache", "no_grad", "data of a view"])
def test_what_was_written_to_is_refused(change):
    model = LearnedQuery()
    x = randn(B, H, T, D, seed=1, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen:
        y = model(x)
    sight = seen[""]
    assert sight.rows([3]).sum(-1).allclose(torch.ones(B, H, 1))
    if change == "q":
        model.query.data.mul_(3)
        with torch.no_grad():
            model.query.mul_(3)
    elif change == "an optimizer":
        y.square().sum().backward()
        torch.optim.AdamW(model.parameters(), 1.0).step()
    elif change == "a cache":
        x.index_copy_(2, torch.tensor([5]), torch.ones(B, H, 1, D))
    elif change == "data of a view":
        x[:, 1, :3].zero_()
    else:
        with torch.no_grad():
            x.mul_(3)
    for ask in (
        lambda: sight.rows([3]),
        lambda: sight.map(3),
        lambda: sight.top(2),
        lambda: sight[0].rows([1]),
    ):
        with pytest.raises(ValueError, match="q or k was written to since it was kept"):
            ask()
    assert sight.entropy.isfinite().all()


def test_what_was_not_written_to_still_answers():
    model, x = LearnedQuery(), randn(B, H, T, D, seed=1, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen:
        model(x)
    z = x * 3
    z.add_(1)
    weights, _ = matrix(model.query.detach().double(), x.double())
    near(seen[""].rows(range(T)), weights, atol=1e-6)


def test_inference_tensors_are_kept_as_copies():
    """Nobody counts who writes to them, so a later write must not matter."""
    model = LearnedQuery()
    with torch.inference_mode():
        x = randn(B, H, T, D, seed=1, dtype=torch.float32) * 1
        with sl.watch(model, keep=True) as seen:
            model(x)
        weights, _ = matrix(model.query.detach().double(), x.double())
        x.zero_()
        near(seen[""].rows(range(T)), weights, atol=1e-6)


# Steps of decoding


class Decoder(nn.Module):
    """Self-attention over a cache that holds the last ``window`` keys, as Mistral's does past its window."""

    def __init__(self, window=None):
        super().__init__()
        self.window, self.k, self.v = window, None, None

    def forward(self, q, k, v):
        if self.k is not None:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        t, s = q.size(2), k.size(2)
        i, j = torch.arange(t)[:, None] + s - t, torch.arange(s)
        allowed = (j <= i) if self.window is None else (j <= i) & (j > i - self.window)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        keep = s if self.window is None else min(s, self.window - 1)
        self.k, self.v = k[:, :, s - keep :], v[:, :, s - keep :]
        return out

    def forget(self):
        self.k = self.v = None


def generate(model, q, k, v, prompt):
    model(*(x[:, :, :prompt] for x in (q, k, v)))
    for i in range(prompt, q.size(2)):
        model(*(x[:, :, i : i + 1] for x in (q, k, v)))
    model.forget()


def inputs(seed=0, batch=B):
    return [randn(batch, H, 13, D, seed=seed + i, dtype=torch.float32) for i in range(3)]


def whole(q, k, window):
    n = q.size(2)
    i, j = torch.arange(n)[:, None], torch.arange(n)
    allowed = (j <= i) if window is None else (j <= i) & (j > i - window)
    return matrix(q.double(), k.double(), torch.zeros(n, n).masked_fill(~allowed, -torch.inf))[0]


@pytest.mark.combinations
@pytest.mark.parametrize("prompt", [3, 9])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("keep", [True, False])
def test_a_sliding_cache_counts_keys_from_the_beginning(window, prompt, keep):
    model, (q, k, v) = Decoder(window), inputs()
    with torch.no_grad(), sl.watch(model, keep=keep, measure=sl.Look(top=2)) as seen:
        generate(model, q, k, v, prompt)
    weights, stacked = whole(q, k, window), seen.stack("")
    assert (stacked.t, stacked.s) == (13, 13)
    near(stacked.received, weights.sum(-2), atol=1e-5)
    near(stacked.peak, weights.amax(-1), atol=1e-5)
    assert torch.equal(stacked.peak_at, weights.argmax(-1))
    assert torch.equal(stacked.top(2)[1][..., 2:, 0], weights.argmax(-1)[..., 2:])
    if keep:
        near(stacked.rows(range(13)), weights, atol=1e-5)
        near(stacked.map(13), weights, atol=1e-5)
        near(stacked.map(3, queries=(5, 12), keys=(4, 11)), pooled(weights[..., 5:12, 4:11], 3), atol=1e-5)
        apart = (torch.arange(13)[:, None] - torch.arange(13)).abs()
        table = head_table(seen)
        near(torch.tensor([h.distance for h in table]), (weights * apart).sum(-1).mean((0, 2)), atol=1e-5)
        near(torch.tensor([h.first for h in table]), weights[..., 0].mean((0, 2)), atol=1e-5)


def pooled(weights, n):
    t, s = weights.shape[-2:]
    rows, columns = ([i * m // n for i in range(n + 1)] for m in (t, s))
    return torch.stack(
        [
            torch.stack(
                [
                    weights[..., rows[a] : rows[a + 1], columns[b] : columns[b + 1]].mean((-2, -1))
                    for b in range(n)
                ],
                -1,
            )
            for a in range(n)
        ],
        -2,
    )


@pytest.mark.combinations
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("batch", [B, 1])
def test_two_generations_are_two(window, batch):
    model, first, second = Decoder(window), inputs(), inputs(7, batch)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        generate(model, *first, 9)
        generate(model, *second, 3)
    layers = by_layer(seen)
    assert list(layers) == [" run 0", " run 1"]
    for sight, (q, k, _) in zip(layers.values(), (first, second), strict=True):
        near(sight.rows(range(13)), whole(q, k, window), atol=1e-5)
    runs = seen.runs("")
    assert [x.t for x in runs] == [13, 13]
    assert len(head_table(seen)) == 2 * H
    with pytest.raises(ValueError, match=r"calls of '' are 2 runs, .*seen\.runs"):
        seen.stack("")


def test_layers_that_share_their_weights_are_not_steps():
    config = transformers.AlbertConfig(
        vocab_size=11, embedding_size=5, hidden_size=12, num_hidden_layers=5, num_attention_heads=3,
        intermediate_size=7,
    )  # fmt: skip
    model = transformers.AlbertModel(config).eval()
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(torch.arange(14).reshape(2, 7) % 11)
    (name,) = seen.names()
    assert [(x.t, x.s) for x in seen.runs(name)] == [(7, 7)] * 5
    with pytest.raises(ValueError, match=r"the 5 calls of .* are 5 runs, .*share their weights; seen\.runs"):
        seen.stack(name)


# Steps of which only some were measured


@pytest.mark.combinations
@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("prompt", [3, 9])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("keep", [True, False])
def test_steps_that_were_left_out_still_move_the_keys(window, prompt, keep, every):
    model, (q, k, v) = Decoder(window), inputs()
    with torch.no_grad(), sl.watch(model, keep=keep, every=every) as seen:
        generate(model, q, k, v, prompt)
    measured = [*range(prompt), *range(prompt + every - 1, 13, every)]  # queries of the calls 0, every, ...
    weights = whole(q, k, window)[..., measured, :]
    for stacked in (seen.stack(""), *seen.runs("")):
        assert stacked.t == len(measured)
        s = stacked.s
        assert s == measured[-1] + 1
        near(stacked.received, weights.sum(-2)[..., :s], atol=1e-5)
        assert torch.equal(stacked.peak_at, weights.argmax(-1))
        if keep:
            near(stacked.rows(range(stacked.t)), weights[..., :s], atol=1e-5)
    if keep:
        apart = (torch.tensor(measured)[:, None] - torch.arange(13)).abs()
        distances = torch.tensor([h.distance for h in head_table(seen)])
        near(distances, (weights * apart).sum(-1).mean((0, 2)), atol=1e-5)


@pytest.mark.parametrize("window", [None, 5])
def test_a_generation_whose_prompt_was_left_out(window):
    model, first, second = Decoder(window), inputs(), inputs(7)
    with torch.no_grad(), sl.watch(model, keep=True, every=2) as seen:
        generate(model, *first, 9)  # five calls
        generate(model, *second, 3)  # its prompt is the sixth call
    one, two = seen.runs("")
    near(one.rows(range(one.t)), whole(*first[:2], window)[..., [*range(9), 10, 12], :], atol=1e-5)
    near(two.rows(range(two.t)), whole(*second[:2], window)[..., [3, 5, 7, 9, 11], :12], atol=1e-5)


def test_steps_left_out_are_told_by_a_file(tmp_path):
    model, (q, k, v) = Decoder(5), inputs()
    with torch.no_grad(), sl.watch(model, keep=True, every=2) as seen:
        generate(model, q, k, v, 3)
    seen.save(tmp_path / "seen.safetensors", keep=True)
    loaded = type(seen).load(tmp_path / "seen.safetensors")
    near(loaded.stack("").rows(range(8)), seen.stack("").rows(range(8)), atol=0)
    assert head_table(loaded) == head_table(seen)


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("layer", [False, True])
def test_whole_layers_of_eval_mode(layer, compiles, monkeypatch):
    """Torch writes the output of such a layer over its queries; they are seen before."""
    monkeypatch.setattr(intercept, "uses_compiled_code", lambda: compiles)
    torch.manual_seed(0)
    options = {"batch_first": True}
    model = (
        nn.TransformerEncoderLayer(12, 3, 7, **options) if layer else nn.MultiheadAttention(12, 3, **options)
    )
    model, x = model.eval(), randn(2, 5, 12, dtype=torch.float32) * 3
    attention = model.self_attn if layer else model
    with torch.no_grad():
        weights = attention(x, x, x, average_attn_weights=False)[1]
        with sl.watch(model, keep=True) as seen:
            model(x) if layer else model(x, x, x, need_weights=False)
    near(seen[0].rows(range(5)), weights, atol=1e-6)
    near(seen[0].received, weights.sum(-2), atol=1e-5)
