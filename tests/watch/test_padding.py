"""Padding is what somebody said is padding; masks of any pattern are measured as they are."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import sightline as sl

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]

B, H, T, D = 2, 3, 7, 4
E = H * D


def drawn(may_look, t=T):
    """A mask (T, T), by a loop."""
    return torch.tensor([[bool(may_look(i, j)) for j in range(t)] for i in range(t)])


# None of them says anything of padding, though some hide keys, or let queries see all.
PATTERNS = {
    "blocks, causal": drawn(lambda i, j: j // 2 <= i // 2),
    "a star": drawn(lambda i, j: 0 in (i, j) or i == j),
    "the first sees all": drawn(lambda i, j: i == 0 or i == j),
    "the last sees all": drawn(lambda i, j: i == T - 1 or j < i or i == j == 0),
    "source and target": drawn(lambda i, j: j < 3 or (i >= 3 and j <= i)),
    "closed keys": drawn(lambda i, j: j not in (2, 6)),
    "closed keys, causal": drawn(lambda i, j: j <= i and (j != 4 or i == j)),
    "two documents": drawn(lambda i, j: (i < 4) == (j < 4)),
    "anti-causal": drawn(lambda i, j: j >= i),
    "a dilated window": drawn(lambda i, j: (i - j) % 3 == 0),
    "only itself for some": drawn(lambda i, j: i == j if i > 4 else j < 5),
    "one hub in the middle": drawn(lambda i, j: j == 3 or (i == 3 and j > 0)),
    "checkerboard": drawn(lambda i, j: (i + j) % 2 == 0),
    "the first key for all, the last for none": drawn(lambda i, j: j == 0 or (j < i and j < T - 1)),
}


def dense(q, k, mask, scale=D**-0.5):
    """The matrix of weights in float64."""
    scores = q.double() @ k.double().mT * scale
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def is_that_of(sight, weights, real=None):
    """Every statistic, and every question if q and k are kept, against the matrix."""
    real = torch.ones(weights.shape[0], weights.shape[2], dtype=torch.bool) if real is None else real
    real = real[:, None].expand(weights.shape[:3])
    nan, near = float("nan"), torch.testing.assert_close
    zeros = weights.masked_fill(~real[..., None], 0.0)
    logs = torch.where(weights > 0, weights.log(), 0.0)
    kwargs = {"rtol": 2e-5, "atol": 2e-6, "equal_nan": True, "check_dtype": False}
    near(sight.entropy, (-(weights * logs).sum(-1)).masked_fill(~real, nan), **kwargs)
    near(sight.peak, weights.amax(-1).masked_fill(~real, nan), **kwargs)
    near(sight.received, zeros.sum(-2), **kwargs)
    assert (sight.peak_at == -1).equal(~real)
    assert sight.lse.isnan().equal(~real)
    assert sight.is_padding.equal(~real)
    assert sight.is_looking.equal(real)
    if not sight.kept:
        return
    t, s = weights.shape[-2:]
    hidden = weights.masked_fill(~real[..., None], nan)
    near(sight.rows(range(t)), hidden, **kwargs)
    near(sight.columns([1, s - 1]), hidden[..., [1, s - 1]], **kwargs)
    near(
        sight.mass([[0, 2], slice(1, s)]),
        torch.stack([hidden[..., [0, 2]].sum(-1), hidden[..., 1:].sum(-1)], -1),
        **kwargs,
    )
    near(
        sight.top(2)[0],
        hidden.topk(2).values if real.all() else zeros.topk(2).values.masked_fill(~real[..., None], nan),
        **kwargs,
    )
    near(sight.map((t, s)), zeros, **kwargs)
    near(sight.received_from((1, 5)), zeros[..., 1:5, :].sum(-2), **kwargs)
    count = real[..., 1:5].sum(-1, keepdim=True).clamp(min=1)
    near(sight.received_from((1, 5), "mean"), zeros[..., 1:5, :].sum(-2) / count, **kwargs)


class Plain(nn.Module):
    """Attention with whatever mask it is given, in one of four ways."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(1)
        self.how, self.qk = how, nn.Linear(E, 2 * E)

    def heads(self, x):
        return (y.unflatten(-1, (H, D)).transpose(1, 2) for y in self.qk(x).chunk(2, -1))

    def forward(self, x, mask):
        q, k = self.heads(x)
        if self.how == "sdpa":
            return F.scaled_dot_product_attention(q, k, k, mask)
        if self.how == "sdpa, added":
            return F.scaled_dot_product_attention(
                q, k, k, torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
            )
        if self.how == "by hand":
            return (q @ k.mT * D**-0.5).masked_fill(~mask, -1e9).softmax(-1) @ k
        if self.how == "ours":
            return sl.attention(q, k, k, mask)
        block = create_block_mask(lambda _b, _h, i, j: mask[i, j], None, None, T, T, device="cpu")
        return flex_attention(q, k, k, block_mask=block)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("how", ["sdpa", "sdpa, added", "by hand", "ours", "flex"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_mask_is_never_taken_for_padding(pattern, how, keep):
    model, x, mask = Plain(how), randn(B, T, E), PATTERNS[pattern]
    with torch.no_grad(), sl.watch(model, keep=keep) as seen:
        model(x, mask)
    q, k = model.heads(x)
    is_that_of(seen[0], dense(q, k, mask))
    assert seen[0].padding == ""


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_mask_of_torchs_encoder_is_never_taken_for_padding(pattern, train):
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(E, H, 5, dropout=0.0, batch_first=True).train(train)
    x, mask = randn(B, T, E), PATTERNS[pattern]
    with torch.no_grad(), sl.watch(layer, keep=True) as seen:
        layer(x, src_mask=~mask)
    attn = layer.self_attn
    q, k, _ = (
        y.unflatten(-1, (H, D)).transpose(1, 2)
        for y in F.linear(x, attn.in_proj_weight, attn.in_proj_bias).chunk(3, -1)
    )
    is_that_of(seen["self_attn"], dense(q, k, mask))


def bert(layers=1):
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=E, num_hidden_layers=layers, num_attention_heads=H, intermediate_size=7
    )
    return transformers.BertModel(config).eval()


IDS = torch.randint(1, 31, (B, T), generator=torch.Generator().manual_seed(4))
RIGHT = torch.arange(T) < torch.tensor([[4], [T]])
LEFT = RIGHT.flip(1)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_mask_of_four_dimensions_is_never_taken_for_padding(pattern, implementation):
    model, mask = bert(), PATTERNS[pattern].expand(B, 1, T, T)
    model.set_attn_implementation(implementation)
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    for given in (mask, added) if implementation == "sdpa" else (added,):
        with torch.no_grad(), sl.watch(model, keep=True) as seen:
            hidden = model.embeddings(IDS)
            model(IDS, attention_mask=given)
        own = model.encoder.layer[0].attention.self
        q, k = (f(hidden).unflatten(-1, (H, D)).transpose(1, 2) for f in (own.query, own.key))
        is_that_of(seen[0], dense(q, k, mask))


# What is said


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("real", [RIGHT, LEFT], ids=["right", "left"])
def test_the_mask_that_a_model_was_called_with(real, keep, implementation):
    model = bert()
    model.set_attn_implementation(implementation)
    with torch.no_grad(), sl.watch(model, keep=keep) as seen:
        hidden = model.embeddings(IDS)
        model(IDS, attention_mask=real.long())
    own = model.encoder.layer[0].attention.self
    q, k = (f(hidden).unflatten(-1, (H, D)).transpose(1, 2) for f in (own.query, own.key))
    is_that_of(seen[0], dense(q, k, real[:, None, None]), real)
    assert seen[0].padding == "attention_mask"
    assert "3 of 14 queries are left out, as attention_mask says" in repr(seen)
    assert "3 of 14 queries are left out, as attention_mask says" in repr(seen[0])


def test_a_model_called_without_a_mask_has_no_padding():
    model = bert(2)
    for options in ({}, {"attention_mask": torch.ones(B, T)}):
        with torch.no_grad(), sl.watch(model) as seen:
            model(IDS, **options)
        assert seen[1].is_looking.all()
        assert not seen[1].is_padding.any()
    with torch.no_grad(), sl.watch(model) as seen:
        model(IDS, torch.ones(B, T))  # by its place
    assert seen[0].padding == "attention_mask"


@pytest.mark.parametrize("which", ["attention_mask", "lengths"])
def test_what_the_user_says(which):
    model, x = Plain("sdpa"), randn(B, T, E)
    said = {"attention_mask": RIGHT.long()} if which == "attention_mask" else {"lengths": [4, T]}
    with torch.no_grad(), sl.watch(model, keep=True, **said) as seen:
        model(x, torch.ones(T, T, dtype=torch.bool))
    q, k = model.heads(x)
    is_that_of(seen[0], dense(q, k, torch.ones(T, T, dtype=torch.bool)), RIGHT)
    assert seen[0].padding == f"watch({which})"


@pytest.mark.parametrize("said", ["key_padding_mask", "as scores"])
@pytest.mark.parametrize("train", [True, False])
def test_torchs_attention(said, train):
    attn = nn.MultiheadAttention(E, H, batch_first=True).train(train)
    hidden = ~RIGHT if said == "key_padding_mask" else torch.zeros(B, T).masked_fill(~RIGHT, -torch.inf)
    x, memory = randn(B, T, E), randn(B, T, E, seed=1)
    with torch.no_grad(), sl.watch(attn) as seen:
        attn(x, x, x, key_padding_mask=hidden, need_weights=False)
        attn(x, memory, memory, hidden, need_weights=False)  # of the keys: the queries are another sequence's
    own, cross = seen.calls("")
    assert own.padding == "key_padding_mask"
    assert own.is_padding[:, 0].equal(~RIGHT)
    assert cross.padding == "unknown"  # the queries' own padding, if they have any
    assert cross.is_looking.all()
    assert not cross.received[0, :, 4:].any()


@pytest.mark.parametrize("train", [True, False])
def test_an_encoder_and_a_decoder_have_padding_of_their_own(train):
    torch.manual_seed(5)
    model = nn.Transformer(E, H, 1, 1, 5, batch_first=True).train(train)
    x, y = randn(B, T, E), randn(B, T, E, seed=1)
    source = {"src_key_padding_mask": ~RIGHT, "memory_key_padding_mask": ~RIGHT}
    with torch.no_grad():
        with sl.watch(model) as seen:
            model(x, y, **source, tgt_key_padding_mask=~RIGHT.flip(0))
        with sl.watch(model) as plain:
            model(x, y, **source)
        with sl.watch(model, attention_mask=RIGHT) as said:
            model(x, y)
    for recording, decoder in (
        (seen, RIGHT.flip(0)),
        (plain, torch.ones(B, T) > 0),
        (said, torch.ones(B, T) > 0),
    ):
        real = [recording[name].is_looking[:, 0] for name in recording.names()]
        for found, expected in zip(real, (RIGHT, decoder, decoder), strict=True):
            assert found.equal(expected)


@pytest.mark.parametrize("length", [T, 5])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("which", ["t5", "bart"])
def test_a_padded_source_and_its_decoder(which, implementation, length):
    torch.manual_seed(6)
    if which == "t5":
        config = transformers.T5Config(
            vocab_size=31, d_model=E, d_kv=D, d_ff=7, num_layers=1, num_heads=H, decoder_start_token_id=0
        )
        model = transformers.T5ForConditionalGeneration(config).eval()
    else:
        sizes = {
            f"{x}_{y}": n
            for x in ("encoder", "decoder")
            for y, n in (("layers", 1), ("attention_heads", H), ("ffn_dim", 7))
        }
        model = transformers.BartModel(transformers.BartConfig(vocab_size=31, d_model=E, **sizes)).eval()
    model.set_attn_implementation(implementation)
    target = torch.arange(length) < torch.tensor([[length], [3]])
    inputs = {"input_ids": IDS, "attention_mask": RIGHT.long(), "decoder_input_ids": IDS[:, :length]}
    with torch.no_grad():
        with sl.watch(model) as seen:
            model(**inputs, decoder_attention_mask=target.long())
        with sl.watch(model) as plain:
            model(**inputs)
        with sl.watch(model, attention_mask=RIGHT) as said:
            model(**(inputs | {"attention_mask": None}))
    everything = torch.ones(B, length, dtype=torch.bool)
    for recording, decoder in ((seen, target), (plain, everything), (said, everything)):
        encoder, own, cross = (recording[i].is_looking[:, 0] for i in range(3))
        assert encoder.equal(RIGHT)
        assert own.equal(decoder)
        assert cross.equal(decoder)
    assert not seen[2].received[0, :, 4:].any()  # the keys that are padding


def test_an_image_beside_a_padded_text():
    torch.manual_seed(7)
    sizes = {"hidden_size": E, "num_hidden_layers": 1, "num_attention_heads": H, "intermediate_size": 7}
    config = transformers.CLIPConfig(
        text_config=sizes | {"vocab_size": 31, "max_position_embeddings": 10, "eos_token_id": 2},
        vision_config=sizes | {"image_size": 6, "patch_size": 3},
        projection_dim=5,
    )
    model = transformers.CLIPModel(config).eval()
    ids = torch.randint(3, 31, (B, 5), generator=torch.Generator().manual_seed(4))  # as many as patches
    real = torch.arange(5) < torch.tensor([[3], [5]])
    for said in ({}, {"attention_mask": real}):
        with torch.no_grad(), sl.watch(model, **said) as seen:
            model(input_ids=ids, pixel_values=randn(B, 3, 6, 6), attention_mask=real.long())
        for name in seen:
            assert seen[name].is_looking[:, 0].equal(real if "text" in name else torch.ones(B, 5) > 0)


def llama():
    torch.manual_seed(8)
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=E, num_hidden_layers=1, num_attention_heads=H, num_key_value_heads=1,
        intermediate_size=7, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_left_padding(implementation, cache):
    model = llama()
    model.set_attn_implementation(implementation)
    options = {"max_new_tokens": 4, "do_sample": False}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model.generate(IDS, attention_mask=LEFT.long(), **options)
    prompt, *steps = seen.calls(seen.names()[0])
    assert prompt.is_padding[:, 0].equal(~LEFT)
    assert all(step.is_looking.all() for step in steps)
    whole = seen.stack(seen.names()[0])
    assert whole.is_padding[:, 0].equal(F.pad(~LEFT, (0, 3)))
    assert whole.entropy.isnan().equal(whole.is_padding)
    assert whole.rows([0])[0].isnan().all()
    assert not whole.rows([T + 1]).isnan().any()


def test_a_prompt_in_pieces():
    """Each piece has a mask of all tokens so far; its queries are the last of them."""
    model = llama()
    with torch.no_grad(), sl.watch(model) as seen:
        first = model(IDS[:, :3], attention_mask=LEFT[:, :3].long(), use_cache=True)
        model(IDS[:, 3:], attention_mask=LEFT.long(), past_key_values=first.past_key_values)
    a, b = seen.calls(seen.names()[0])
    assert a.is_padding[:, 0].equal(~LEFT[:, :3])
    assert b.is_looking.all()
    with torch.no_grad(), sl.watch(model) as seen:
        first = model(IDS[:, :2], attention_mask=LEFT[:, :2].long(), use_cache=True)
        model(IDS[:, 2:], attention_mask=LEFT.long(), past_key_values=first.past_key_values)
    assert seen.calls(seen.names()[0])[1].is_padding[:, 0].equal(~LEFT[:, 2:])


def test_a_speech_model_shortens_its_mask():
    torch.manual_seed(9)
    config = transformers.Wav2Vec2Config(
        hidden_size=E, num_hidden_layers=1, num_attention_heads=H, intermediate_size=7, conv_dim=(6, 6),
        conv_kernel=(4, 4), conv_stride=(2, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, feat_extract_norm="layer",
    )  # fmt: skip
    model = transformers.Wav2Vec2Model(config).eval()
    real = torch.arange(61) < torch.tensor([[61], [31]])
    with torch.no_grad(), sl.watch(model) as seen:
        model(randn(B, 61), attention_mask=real.long())
    frames = model._get_feature_vector_attention_mask(seen[0].t, real.long())
    assert 0 < frames[1].sum() < seen[0].t
    assert seen[0].is_looking[:, 0].equal(frames.bool())


class Shortens(nn.Module):
    """Two tokens become one; only a mask of four dimensions arrives."""

    def __init__(self, causal, by_hand):
        super().__init__()
        self.inner, self.causal, self.by_hand = nn.Linear(E, E), causal, by_hand

    def forward(self, x, attention_mask):
        x, allowed = x[:, ::2], attention_mask[:, None, None, ::2] > 0
        if self.causal:
            allowed = allowed & drawn(lambda i, j: j <= i, x.size(1))
        q = self.inner(x).unflatten(-1, (H, D)).transpose(1, 2)
        if self.by_hand:
            return (q @ q.mT).masked_fill(~allowed, -1e9).softmax(-1) @ q
        return F.scaled_dot_product_attention(q, q, q, allowed)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_mask_of_another_length(by_hand):
    for causal in (False, True):
        model = Shortens(causal, by_hand)
        with torch.no_grad(), sl.watch(model) as seen:
            model(randn(B, T, E), RIGHT.long())
        assert seen[0].padding == ("unknown" if causal else "attention_mask")
        expected = torch.ones(B, 4, dtype=torch.bool) if causal else RIGHT[:, ::2]
        assert seen[0].is_looking[:, 0].equal(expected)
    assert "say which are padding with sl.watch(attention_mask=...)" in repr(seen[0])


class Pools(nn.Module):
    """One query of its own looks at all tokens: none of the tokens' padding is its."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, E))
        self.attn = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, x, attention_mask):
        return self.attn(
            self.query.expand(B, -1, -1), x, x, key_padding_mask=attention_mask == 0, need_weights=False
        )


def test_a_query_that_is_no_token():
    model = Pools()
    with torch.no_grad(), sl.watch(model) as seen:
        model(randn(B, T, E), RIGHT.long())
    assert seen["attn"].is_looking.all()


# NaN stays where it belongs


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_gradients_hold_no_nan(implementation):
    model, real = bert(2), RIGHT
    model.set_attn_implementation(implementation)
    with sl.watch(model, grad=implementation == "sdpa") as seen:
        out = model(IDS, attention_mask=real.long()).last_hidden_state
    loss = out.square().mean()
    if implementation == "sdpa":
        sight = seen[0]
        shown = ~sight.is_padding
        loss = loss + sight.entropy[shown].mean() + sight.received.square().sum() + sight.peak.nansum()
    loss.backward()
    grads = [x.grad for x in model.parameters() if x.grad is not None]
    assert grads
    assert not any(x.isnan().any() for x in grads)
    if implementation == "sdpa":
        assert not seen[0].importance.isnan().any()
        assert not seen[0].relevance.keys.isnan().any()
        assert seen[0].relevance.queries.isnan().equal(seen[0].is_padding)


def test_tables_average_what_is_real():
    model = bert(2)
    with torch.no_grad():
        with sl.watch(model, keep=True) as alone:
            model(IDS[:1, :4])
        with sl.watch(model, keep=True) as padded:
            model(IDS[:1], attention_mask=RIGHT[:1].long())
    from sightline.look.heads import head_table

    for a, b in zip(head_table(alone), head_table(padded), strict=True):
        assert a.kind == b.kind
        for name in ("entropy", "first", "peak", "distance", "evenness"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-5)


@pytest.mark.parametrize("first", [0, 2])
def test_tables_count_from_the_first_real_token(first):
    from sightline.look.heads import head_table
    from sightline.watch.monitor import summarise

    model, x = Plain("sdpa"), randn(1, T, E)
    real = torch.zeros(1, T, dtype=torch.bool)
    real[:, first : first + 5] = True
    with torch.no_grad():
        with sl.watch(model, keep=True) as alone:
            model(x[:, real[0]], drawn(lambda i, j: j <= i, 5))
        with sl.watch(model, keep=True, attention_mask=real) as padded:
            model(x, drawn(lambda i, j: j <= i) & real | torch.eye(T, dtype=torch.bool))
    for a, b in zip(head_table(alone, period=3), head_table(padded, period=3), strict=True):
        assert a.first > 0.1
        assert a.first == pytest.approx(b.first, abs=1e-5)
        assert summarise(padded[0])[a.head].tolist() == pytest.approx(
            summarise(alone[0])[a.head].tolist(), abs=1e-5
        )
        for kind in ("induction", "previous token", "sink"):
            assert a.shares[kind] == pytest.approx(b.shares[kind], abs=1e-5)


def test_a_monitor_logs_no_nan():
    model = bert(2).train()
    rows = []
    monitor = sl.Monitor(model, every=1, log=lambda _step, found: rows.extend(found))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with monitor:
        model(IDS, attention_mask=RIGHT.long()).last_hidden_state.sum().backward()
        optimizer.step()
    assert rows
    assert all(row.entropy == row.entropy and row.max_logit == row.max_logit for row in rows)


def test_items_heads_files_and_json(tmp_path):
    model = bert(2)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(IDS, attention_mask=RIGHT.long())
    sight = seen[0]
    assert sight[0].is_padding.equal((~RIGHT[0]).expand(H, T))
    assert sight[0, 1].entropy.isnan().equal(~RIGHT[0])
    mean = sight.mean_heads()
    assert mean.is_padding.equal(~RIGHT)
    assert mean.entropy.isnan().equal(~RIGHT)
    seen.save(tmp_path / "seen.safetensors", keep=True)
    loaded = type(seen).load(tmp_path / "seen.safetensors")[0]
    assert loaded.padding == "attention_mask"
    torch.testing.assert_close(loaded.entropy, sight.entropy, equal_nan=True)
    torch.testing.assert_close(loaded.rows([6]), sight.rows([6]), equal_nan=True)
    assert "NaN" not in sight.to_json()


# What was said, and of which queries


class Own(nn.Module):
    """Attends to itself, or to a context, with a mask that it makes of its attention_mask, or of nothing."""

    def __init__(self, make):
        super().__init__()
        torch.manual_seed(1)
        self.qk, self.make = nn.Linear(E, 2 * E), make

    def forward(self, x, attention_mask, context=None):
        q = self.qk(x)[..., :E].unflatten(-1, (H, D)).transpose(1, 2)
        k = self.qk(x if context is None else context)[..., E:].unflatten(-1, (H, D)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, k, self.make(attention_mask))


def looking(model, *inputs, said=None, **named):
    with torch.no_grad(), sl.watch(model, **(said or {})) as seen:
        model(*inputs, **named)
    return seen[0].is_looking[:, 0], seen[0].padding


@pytest.mark.parametrize("steps", [0, 1])
def test_a_static_cache_with_a_mask_of_its_full_length(steps):
    model, mask = llama(), torch.zeros(B, 12, dtype=torch.long)
    cache = transformers.StaticCache(config=model.config, max_cache_len=12)
    mask[:, :T] = LEFT
    with torch.no_grad(), sl.watch(model) as seen:
        model(IDS, attention_mask=mask, past_key_values=cache)
        for i in range(steps):
            mask[:, T + i] = 1
            model(IDS[:, :1], attention_mask=mask, past_key_values=cache)
    prompt, *later = seen.calls(seen.names()[0])
    assert prompt.is_looking[:, 0].equal(LEFT)
    assert all(step.is_looking.all() for step in later)


def test_the_mask_of_an_image_is_not_that_of_a_text():
    sizes = {"hidden_size": E, "num_hidden_layers": 1, "num_attention_heads": H, "intermediate_size": 7}
    config = transformers.Siglip2Config(
        text_config=sizes | {"vocab_size": 31, "max_position_embeddings": 10, "projection_size": E},
        vision_config=sizes | {"num_patches": 9, "patch_size": 3},
    )
    model = transformers.Siglip2Model(config).eval()
    with torch.no_grad(), sl.watch(model) as seen:
        model(
            input_ids=IDS[:, :5], pixel_values=randn(B, T, 27), pixel_attention_mask=RIGHT.long(),
            spatial_shapes=torch.tensor([[2, 2], [1, 7]]),
        )  # fmt: skip
    for name in seen:
        if "text" in name:
            assert seen[name].is_looking.all()
        elif seen[name].t == T:
            assert seen[name].is_looking[:, 0].equal(RIGHT)


def test_a_sound_with_a_mask_of_its_own_beside_a_padded_text():
    sound = {"model_type": "qwen2_audio_encoder", "d_model": E, "encoder_layers": 1, "num_mel_bins": 5}
    sound |= {"encoder_attention_heads": H, "encoder_ffn_dim": 7, "max_source_positions": 14}
    text = {"model_type": "qwen2", "vocab_size": 31, "hidden_size": E, "num_hidden_layers": 1}
    text |= {"num_attention_heads": H, "num_key_value_heads": H, "intermediate_size": 7}
    config = transformers.Qwen2AudioConfig(audio_config=sound, text_config=text, audio_token_index=30)
    model = transformers.Qwen2AudioForConditionalGeneration(config).eval()
    ids = torch.full((B, 14), 3)  # as many as there are frames of sound
    ids[0, 4:11], ids[1, 4:9] = 30, 30
    real = torch.arange(14) >= torch.tensor([[3], [0]])
    heard = torch.arange(28) < torch.tensor([[28], [20]])
    with torch.no_grad(), sl.watch(model) as seen:
        model(ids, randn(B, 5, 28), real.long(), feature_attention_mask=heard.long())
    frames, tokens = seen[0], seen[1]
    assert (frames.t, tokens.t) == (14, 14)
    assert frames.is_looking.all()
    assert tokens.is_looking[:, 0].equal(real)


@pytest.mark.parametrize("hides", [True, False])
def test_as_many_visual_tokens_as_a_padded_text(hides):
    config = transformers.LxmertConfig(
        vocab_size=31, hidden_size=E, num_attention_heads=H, intermediate_size=7, l_layers=1, x_layers=1,
        r_layers=1, visual_feat_dim=5, visual_pos_dim=4,
    )  # fmt: skip
    model, visual = transformers.LxmertModel(config).eval(), LEFT if hides else None
    with torch.no_grad(), sl.watch(model) as seen:
        model(IDS, randn(B, T, 5), randn(B, T, 4), attention_mask=RIGHT.long(), visual_attention_mask=visual)
    for name in ("encoder.layer.0.attention.self", "encoder.x_layers.0.lang_self_att.self"):
        assert seen[name].is_looking[:, 0].equal(RIGHT)
    for name in ("encoder.r_layers.0.attention.self", "encoder.x_layers.0.visn_self_att.self"):
        assert seen[name].is_looking.all()
        assert seen[name].padding == ("unknown" if hides else "attention_mask")


def test_a_mask_of_pairs_by_the_name_of_one_of_tokens():
    closed = PATTERNS["closed keys"]
    found, padding = looking(Own(lambda m: m), randn(B, T, E), closed)
    assert found.all()
    assert padding == "unknown"
    bias = torch.zeros(1, T)
    assert looking(Own(lambda m: m), randn(B, T, E), bias)[0].all()  # a sum of nothing


def test_weights_that_vanish_are_not_padding():
    class Steep(Own):
        def forward(self, x, attention_mask):
            q, k = (y.unflatten(-1, (H, D)).transpose(1, 2) for y in self.qk(x).chunk(2, -1))
            return (q @ k.mT + torch.eye(T)[2] * -200).softmax(-1) @ k

    mask = torch.ones(B, T + 3, dtype=torch.long)
    mask[0, 8:] = 0
    assert looking(Steep(None), randn(B, T, E), mask)[0].all()


@pytest.mark.parametrize("said", [False, True])
def test_a_mask_of_the_keys_of_another_sequence(said):
    model = Own(lambda m: m[:, None, None])
    arguments = {"attention_mask": RIGHT}
    found, padding = looking(
        model, randn(B, T, E), RIGHT, randn(B, T, E, seed=1), said=arguments if said else None
    )
    assert found.all()
    assert padding == "unknown"


def test_lengths_are_those_of_the_models_own_sequence():
    model = Own(lambda m: None)
    with pytest.warns(UserWarning, match=r"watch\(lengths\) is of B=2 and at least T=7, and no attention"):
        found, padding = looking(model, randn(B, 5, E), RIGHT[:, :5] >= 0, said={"lengths": [4, T]})
    assert found.all()
    assert padding == "attention_mask"
    with pytest.warns(UserWarning, match=r"watch\(attention_mask\) is of B=2 T=10, .*\(B=2 T=7\)"):
        looking(model, randn(B, T, E), None, said={"attention_mask": torch.ones(B, 10)})
    assert looking(model, randn(B, T, E), None, said={"attention_mask": RIGHT[:1]})[0].equal(
        RIGHT[:1].expand(B, -1)
    )


@pytest.mark.bad_input
def test_masks_that_are_added_and_lengths_below_zero():
    with pytest.raises(ValueError, match=r"1 at real tokens and 0 at padding, got -1.*give mask == 0"):
        sl.watch(nn.Linear(2, 2), attention_mask=torch.tensor([[0.0, -1e9]]))
    with pytest.raises(ValueError, match="lengths must be whole numbers"):
        sl.watch(nn.Linear(2, 2), lengths=[-1, 2])


@pytest.mark.parametrize("said", [{"attention_mask": RIGHT}, {"lengths": [4, T]}])
def test_a_decoder_that_is_watched_itself(said):
    torch.manual_seed(5)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, 5, batch_first=True), 1).eval()
    with torch.no_grad(), sl.watch(model, **said) as seen:
        model(randn(B, T, E), randn(B, 5, E, seed=1))
    for name in seen:
        assert seen[name].is_looking[:, 0].equal(RIGHT)


def test_the_lengths_of_a_jagged_tensor():
    model = Plain("sdpa")
    parts = [torch.randn(n, H, D) for n in (3, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)

    class Nested(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    model = Nested()
    with torch.no_grad(), sl.watch(model) as seen:
        model(x)
    assert seen[0].padding == "lengths"
    assert seen[0].is_looking[:, 0].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert seen[0].entropy[0, :, 3:].isnan().all()


@pytest.mark.parametrize("more", ["add_zero_attn", "add_bias_kv"])
def test_keys_that_torch_adds(more):
    attn = nn.MultiheadAttention(E, H, batch_first=True, **{more: True})
    x = randn(B, T, E)
    with torch.no_grad(), sl.watch(attn) as seen:
        attn(x, x, x, key_padding_mask=~RIGHT, need_weights=False)
    assert seen[0].s == T + 1
    assert seen[0].is_looking[:, 0].equal(RIGHT)


def test_a_key_padding_mask_of_another_batch():
    attn = nn.MultiheadAttention(E, 1, batch_first=True)

    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = attn

        def forward(self, x, key_padding_mask):
            x = x.flatten(0, 1)
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])

    model = Folded()
    with torch.no_grad(), sl.watch(model) as seen:
        model(randn(B, 3, T, E), ~RIGHT)
    assert seen.unseen() == {}
    assert seen[0].padding == "unknown"


def test_a_mask_that_is_written_to_between_two_calls():
    model, x = Own(lambda m: m[:, None, None] > 0), randn(B, T, E)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            mask = torch.ones(B, T, dtype=torch.long)
            with sl.watch(model) as seen:
                model(x, mask)
                mask[0, 4:] = 0
                model(x, mask)
            assert [call.is_looking.all().item() for call in seen.calls("")] == [True, False]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("heads", [1, 2, 6])
@pytest.mark.parametrize("real", [RIGHT, LEFT], ids=["right", "left"])
def test_torchs_fast_path(real, heads):
    torch.manual_seed(2)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, heads, 5, batch_first=True), 2).eval()
    x = randn(B, T, E)
    with torch.no_grad():
        with sl.watch(model) as seen:
            model(x, src_key_padding_mask=~real)
        with sl.watch(model) as alone:
            model(x[:1, real[0]])
    for name in seen:
        sight = seen[name]
        assert sight.padding == ("src_key_padding_mask" if sight.padding[0] == "s" else "key_padding_mask")
        shown = sight.is_looking[0, 0]
        assert shown.sum() == 4
        torch.testing.assert_close(sight.entropy[0][:, shown], alone[name].entropy[0], atol=1e-5, rtol=1e-5)


def test_alignments_and_flows_leave_padding_out():
    from sightline.look.flow import received_flow

    model = Own(lambda m: m[:, None, None] > 0)
    x = randn(1, T, E)
    with torch.no_grad():
        with sl.watch(model, keep=True) as alone:
            model(x[:, :4], torch.ones(1, 4))
        with sl.watch(model, keep=True) as padded:
            model(x, RIGHT[:1].float())
    for method in ("dtw", "peak"):
        places = sl.align(padded[0], method=method, filter_width=1)
        assert places[:4].tolist() == sl.align(alone[0], method=method, filter_width=1).tolist()
        assert places[4:].tolist() == [-1, -1, -1]
    flow = received_flow([padded[0], padded[0]])
    torch.testing.assert_close(flow[:, :4], received_flow([alone[0], alone[0]]), atol=1e-5, rtol=1e-5)
    assert not flow[:, 4:].any()


def test_figures_of_padded_texts():
    model = bert(1)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(IDS, attention_mask=RIGHT.long())
    assert len(sl.show.heads(seen[0][0]).axes) > 2
    assert sl.show.entropy(seen) is not None
    with pytest.raises(ValueError, match="rows must be queries that are not padding, got 6"):
        sl.show.rows(seen[0][0], [0, 6])
    assert sl.show.page(seen).html().startswith("<!doctype html>")
