"""ECE 57000, assignment 4: positions, attention scores, masks, self-attention, many heads, as printed."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import sightline as sl
from sightline.textbook import (
    MultiHeadSelfAttention,
    PositionalEncoding,
    SelfAttention,
    add_positional_encoding,
    att_score,
    attention_score,
    create_mask,
    visualize_positional_encoding,
)

COLUMN = [1.4000, 1.0479, 0.2396, -0.4558, -0.5485, 0.0267, 0.8648, 1.3756, 1.1994, 0.4603]


def test_exercise_1_task_1_positional_encoding(agrees):
    batch_size, seq_len, d_model = 3, 10, 128
    word_embeddings = torch.arange(1, 129).repeat(batch_size, seq_len, 1).float()
    word_embeddings *= 0.1
    pos_enc = PositionalEncoding(d_model, seq_len)
    positional_encodings = pos_enc.get_encoding()
    encoded_embeddings = add_positional_encoding(word_embeddings, positional_encodings)
    agrees(encoded_embeddings[:, :, 3], [COLUMN] * 3)
    by_keyword = PositionalEncoding(d_model=d_model, max_len=seq_len)
    assert (by_keyword.d_model, by_keyword.max_len) == (128, 10)
    assert torch.equal(by_keyword.positional_encoding, positional_encodings)
    torch.testing.assert_close(sl.positions.SinusoidalPositions(128)(word_embeddings), encoded_embeddings)


def test_exercise_1_the_loops_of_the_document():
    max_len, d_model, n = 10, 128, 10000
    pe = np.zeros(max_len * d_model).reshape(max_len, d_model)
    for pos in np.arange(max_len):
        for i in np.arange(d_model // 2):
            theta = pos / (n ** ((2 * i) / d_model))
            pe[pos, 2 * i] = math.sin(theta)
            pe[pos, 2 * i + 1] = math.cos(theta)
    torch.testing.assert_close(PositionalEncoding(d_model, max_len).get_encoding(), torch.tensor(pe).float())


def test_exercise_1_task_2_heatmap():
    seq_len, d_model = 64, 32
    pos_enc = PositionalEncoding(d_model, seq_len)
    positional_encodings = pos_enc.get_encoding()
    for PE in (positional_encodings, positional_encodings.numpy()):
        figure = visualize_positional_encoding(PE)
        axes = figure.axes[0]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("Embedding dimension", "Position in the sequence")
        assert np.allclose(axes.images[0].get_array(), positional_encodings)
        assert axes.images[0].get_cmap().name == "viridis"


def test_exercise_2_task_1_attention_score():
    batch_size, seq_len, d_k, d_v = 20, 5, 512, 64
    Q = torch.rand(batch_size, seq_len, d_k)
    K = torch.rand(batch_size, seq_len, d_k)
    V = torch.rand(batch_size, seq_len, d_v)
    attention_output, attention_weights = att_score(Q, K, V)
    assert attention_output.shape == torch.Size([20, 5, 64])
    assert attention_weights.shape == torch.Size([20, 5, 5])
    assert torch.allclose(attention_output, F.scaled_dot_product_attention(Q, K, V), atol=1e-3)
    torch.testing.assert_close(sl.attention(Q, K, V), attention_output)
    again, _ = att_score(Q=Q, K=K, V=V)
    assert torch.equal(again, attention_output)
    torch.testing.assert_close(attention_weights.sum(-1), torch.ones(20, 5))  # over the keys of each query


def test_exercise_2_task_2_masking():
    Q, K, V = torch.rand(20, 5, 512), torch.rand(20, 5, 512), torch.rand(20, 5, 64)
    mask = create_mask(seq_len=5)
    assert torch.equal(mask, torch.tril(torch.ones(5, 5) > 0))
    attention_output, attention_weights = attention_score(Q, K, V, mask=mask)
    attention_output_ref = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    assert torch.allclose(attention_output, attention_output_ref, atol=1e-3)
    assert (attention_weights.triu(1) == 0).all()
    torch.testing.assert_close(sl.attention(Q, K, V, sl.masks.causal()), attention_output)


def test_a_row_that_may_look_nowhere_gets_zeros_where_the_document_gives_the_mean():
    Q, K, V = torch.rand(1, 3, 4), torch.rand(1, 3, 4), torch.rand(1, 3, 2)
    mask = create_mask(seq_len=3)
    mask[1] = False
    x = (Q @ K.mT / 2).masked_fill(mask == False, -1e10)  # noqa: E712 - as it is printed
    theirs, (_, weights) = F.softmax(x, dim=-1), attention_score(Q, K, V, mask)
    torch.testing.assert_close(theirs[:, [0, 2]], weights[:, [0, 2]])
    torch.testing.assert_close(theirs[0, 1], torch.full((3,), 1 / 3))
    assert (weights[0, 1] == 0).all()


def test_exercise_3_self_attention(agrees):
    torch.manual_seed(40)
    batch_size, seq_len, d_in, d_k, d_v = 20, 5, 32, 512, 64
    X = torch.ones(batch_size, seq_len, d_in)
    self_attention = SelfAttention(d_in, d_k, d_v)
    output = self_attention(X)
    assert output.shape == torch.Size([20, 5, 64])
    perm = torch.randperm(seq_len)
    permuted_output = self_attention(X[:, perm, :])
    repermuted_output = output[:, perm, :]
    assert torch.allclose(permuted_output, repermuted_output, atol=1e-3)
    figures = [-0.0166, -0.4199, -0.5860, 0.3721, 0.5411, 0.4073, 0.8418, 0.2554]
    figures += [-0.2712, 0.6178, -0.0495, -0.0552, 0.6988, -0.3643, 0.7696]
    agrees(permuted_output[-1, 1, :15], figures)
    agrees(repermuted_output[-1, 1, :15], figures)


def test_exercise_3_by_keyword_and_under_the_documents_masks():
    attend = SelfAttention(d_in=8, d_k=6, d_v=4)
    X, changed = torch.randn(2, 3, 5, 8)
    changed[:, :-1] = X[:, :-1]
    for dtype in (torch.bool, torch.float32, torch.int64):
        mask = torch.tril(torch.ones(5, 5, dtype=dtype))
        first, second = attend(X=X, mask=mask), attend(X=changed, mask=mask)
        torch.testing.assert_close(first[:, :-1], second[:, :-1])


def test_self_attention_is_permutation_equivariant_on_inputs_that_differ():
    torch.manual_seed(40)
    attend, x, order = sl.nn.SelfAttention(32, 512, 64).double(), torch.randn(20, 5, 32), torch.randperm(5)
    x = x.double()
    assert not torch.equal(order, torch.arange(5))
    torch.testing.assert_close(attend(x[:, order]), attend(x)[:, order], rtol=0, atol=1e-12)
    permuted = attend(x, sl.masks.causal())[:, order]  # a mask knows positions: no longer so
    assert (attend(x[:, order], sl.masks.causal()) - permuted).abs().max() > 1e-3


def test_exercise_4_multi_head_self_attention(agrees):
    torch.manual_seed(40)
    batch_size, seq_len, d_in, d_k, d_v, num_heads = 32, 10, 256, 512, 64, 8
    X = torch.rand(batch_size, seq_len, d_in)
    multi_head_attention = MultiHeadSelfAttention(d_in, d_k, d_v, num_heads)
    output = multi_head_attention(X)
    figures = [0.0275, -0.1630, 0.1510, 0.3983, -0.0111, -0.4692, -0.1411, 0.1411]
    figures += [0.2040, 0.0587, 0.1210, -0.1313, -0.0088, 0.1773, -0.0538]
    agrees(output[-1, 1, :15], figures)
    assert output.shape == torch.Size([32, 10, 64])
    assert isinstance(multi_head_attention.heads, torch.nn.ModuleList)
    head = multi_head_attention.heads[0]
    assert (head.Wq.out_features, head.Wk.out_features, head.Wv.out_features) == (64, 64, 8)


def test_exercise_4_the_printed_solution_has_other_widths_than_the_text():
    """It builds heads of full width and an output of d_in, for which no figures are printed."""
    heads = torch.nn.ModuleList(SelfAttention(256, 512, 64) for _ in range(8))
    joined = torch.cat([head(torch.rand(2, 10, 256)) for head in heads], dim=-1)
    assert torch.nn.Linear(8 * 64, 256)(joined).shape == (2, 10, 256)  # the text says (..., 64)


def test_exercise_4_a_mask_reaches_every_head():
    attend = MultiHeadSelfAttention(d_in=8, d_k=6, d_v=4, num_heads=2)
    X, changed = torch.randn(2, 3, 5, 8)
    changed[:, :-1] = X[:, :-1]
    mask = torch.tril(torch.ones(5, 5))
    torch.testing.assert_close(attend(X=X, mask=mask)[:, :-1], attend(X=changed, mask=mask)[:, :-1])


@pytest.mark.bad_input
def test_what_the_exercises_are_given_wrong_is_a_sentence():
    table = PositionalEncoding(d_model=6, max_len=5).get_encoding()
    x = torch.zeros(3, 5, 6)
    assert add_positional_encoding(x, table[None]).shape == x.shape  # (1, seq_len, d_model), as the text says
    torch.testing.assert_close(add_positional_encoding(x, table.tolist()), x + table)  # rows will do
    for embeddings in (torch.zeros(3, 7, 6), torch.zeros(3, 1, 6), torch.zeros(3, 5, 8), torch.zeros(6)):
        shape = str(tuple(embeddings.shape)).replace("(", r"\(").replace(")", r"\)")
        with pytest.raises(ValueError, match=rf"same length .* {shape} and .* \(5, 6\); Positional"):
            add_positional_encoding(embeddings, table)
    with pytest.raises(ValueError, match="seq_len must be at least 0, got -1"):
        create_mask(-1)
    with pytest.raises(TypeError, match=r"seq_len must be a whole number, got 2\.5"):
        create_mask(2.5)


def test_the_shapes_of_the_docstrings_work_as_those_of_the_code():
    Q, K, V = torch.rand(3, 2, 5, 7), torch.rand(3, 2, 5, 7), torch.rand(3, 2, 5, 11)
    real = torch.arange(5) < torch.tensor([[5], [3], [1]])
    output, weights = attention_score(Q, K, V, mask=real[:, None, None])  # (batch size, 1, 1, seq_len)
    assert output.shape == (3, 2, 5, 11)
    assert (weights[1, :, :, 3:] == 0).all()
    agreed = F.scaled_dot_product_attention(Q, K, V, attn_mask=real[:, None, None])
    torch.testing.assert_close(output, agreed)


def test_exercise_3_the_weights_that_the_docstring_speaks_of():
    X, layer = torch.rand(3, 5, 4), SelfAttention(4, 7, 11)
    output, weights = attention_score(*layer.project(X))
    torch.testing.assert_close(layer(X), output)
    assert weights.shape == (3, 5, 5)


@pytest.mark.bad_input
def test_rows_of_several_lengths_are_no_table():
    with pytest.raises(ValueError, match=r"rows of one length, got \[\[1, 2\], \[3\]\]"):
        add_positional_encoding(torch.zeros(1, 2, 2), [[1, 2], [3]])
