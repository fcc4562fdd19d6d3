"""Bad input to ``sl.attention``, ``sl.reference``, ``sl.masks`` and ``sl.scores``."""

import torch

import sightline as sl

Q, K, V = torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 11, 7), torch.zeros(2, 3, 11, 13)
ONES = torch.ones(5, 11)
masks, scores = sl.masks, sl.scores
equation = sl.reference.scaled_dot_product_attention

BAD = {
    # sl.attention
    "sl.attention(q): other widths": (lambda: sl.attention(Q[..., :3], K, V), ValueError, "width", "3", "7"),
    "sl.attention(q): one dimension": (lambda: sl.attention(Q[0, 0, 0], K, V), ValueError, "(7,)"),
    "sl.attention(q): a list": (lambda: sl.attention([[1.0]], K, V), TypeError, "q", "list"),
    "sl.attention(q): integers": (lambda: sl.attention(Q.long(), K.long(), V.long()), TypeError, "int64"),
    "sl.attention(q): a sparse one": (lambda: sl.attention(Q.to_sparse(), K, V), TypeError, "q", "dense"),
    "sl.attention(k): another batch": (lambda: sl.attention(Q, K[:1].repeat(3, 1, 1, 1), V), ValueError, "3, 3"),
    "sl.attention(k): other heads": (lambda: sl.attention(Q, K[:, :2], V[:, :2]), ValueError, "heads", "2", "3"),
    "sl.attention(k): another dtype": (lambda: sl.attention(Q, K.double(), V), TypeError, "float64", "float32"),
    "sl.attention(v): other lengths": (lambda: sl.attention(Q, K, V[:, :, :6]), ValueError, "length", "11", "6"),
    "sl.attention(v): missing": (lambda: sl.attention(Q, K, None), TypeError, "v", "NoneType"),
    "sl.attention(mask): other sizes": (lambda: sl.attention(Q, K, V, ONES[:4] > 0), ValueError, "(4, 11)", "5"),
    "sl.attention(mask): integers": (lambda: sl.attention(Q, K, V, ONES.int()), TypeError, "int32", "from_ones"),
    "sl.attention(mask): ones": (lambda: sl.attention(Q, K, V, torch.eye(5, 11)), ValueError, "ones", "from_ones"),
    "sl.attention(mask): a name": (lambda: sl.attention(Q, K, V, "causal"), TypeError, "'causal'", "causal()"),
    "sl.attention(mask): not called": (lambda: sl.attention(Q, K, V, masks.causal), TypeError, "causal()"),
    "sl.attention(mask): a list": (lambda: sl.attention(Q, K, V, [True]), TypeError, "list", "torch.as_tensor"),
    "sl.attention(mask): sparse": (lambda: sl.attention(Q, K, V, (ONES > 0).to_sparse()), TypeError, "dense"),
    "sl.attention(mask): batch or heads": (
        lambda: sl.attention(Q[:, :2], K[:, :2], V[:, :2], torch.zeros(2, 5, 11)), ValueError, "batch", "heads",
    ),
    "sl.attention(score): unknown": (lambda: sl.attention(Q, K, V, score="dott"), ValueError, "'dott'", "'dot'"),
    "sl.attention(score): with parameters": (lambda: sl.attention(Q, K, V, score="additive"), ValueError, "sl."),
    "sl.attention(score): a class": (lambda: sl.attention(Q, K, V, score=scores.Dot), TypeError, "Dot"),
    "sl.attention(scale): a text": (lambda: sl.attention(Q, K, V, scale="1"), TypeError, "scale", "str"),
    "sl.attention(scale): infinite": (lambda: sl.attention(Q, K, V, scale=torch.inf), ValueError, "inf", "None"),
    "sl.attention(dropout_p): one": (lambda: sl.attention(Q, K, V, dropout_p=1.0), ValueError, "[0, 1)", "1.0"),
    "sl.attention(dropout_p): a text": (lambda: sl.attention(Q, K, V, dropout_p="0"), TypeError, "str"),
    # the equation
    "sl.reference.scaled_dot_product_attention(q): other widths": (
        lambda: equation(Q[..., :3], K, V), ValueError, "width", "3", "7",
    ),
    "sl.reference.scaled_dot_product_attention(k): a list": (lambda: equation(Q, [1], V), TypeError, "list"),
    "sl.reference.scaled_dot_product_attention(v): other lengths": (
        lambda: equation(Q, K, V[:, :, :6]), ValueError, "length", "11", "6",
    ),
    "sl.reference.scaled_dot_product_attention(mask): numbers": (
        lambda: equation(Q, K, V, 0.25 * ONES), ValueError, "0.25", "ones",
    ),
    # masks
    "sl.masks.causal(align): unknown": (lambda: masks.causal(align="left"), ValueError, "'end'", "'left'"),
    "sl.masks.window(left): negative": (lambda: masks.window(-1, 0), ValueError, "left", "-1"),
    "sl.masks.window(left): half": (lambda: masks.window(2.5, 0), ValueError, "whole number", "2.5"),
    "sl.masks.window(right): a text": (lambda: masks.window(0, "2"), ValueError, "right", "'2'"),
    "sl.masks.window(align): none": (lambda: masks.window(1, 1, align=None), ValueError, "'start'", "None"),
    "sl.masks.padding(lengths): halves": (lambda: masks.padding([1.5]), TypeError, "integers", "float32"),
    "sl.masks.padding(lengths): marks": (lambda: masks.padding(torch.ones(2, 7).bool()), TypeError, "from_ones"),
    "sl.masks.padding(lengths): one": (lambda: masks.padding(3), TypeError, "lengths", "3"),
    "sl.masks.dense(allowed): floats": (lambda: masks.dense(ONES), TypeError, "boolean", "float32", "from_ones"),
    "sl.masks.dense(allowed): a list": (lambda: masks.dense([[True]]), TypeError, "allowed", "list"),
    "sl.masks.bias(added): integers": (lambda: masks.bias(ONES.int()), TypeError, "int32", "sl.masks.dense"),
    "sl.masks.bias(added): a number": (lambda: masks.bias(0.5), TypeError, "added", "float"),
    "sl.masks.from_ones(mask): others": (lambda: masks.from_ones(0.25 * ONES), ValueError, "0.25", "sl.masks.bias"),
    "sl.masks.from_ones(mask): a mask": (lambda: masks.from_ones(masks.causal()), TypeError, "mask.dense(T, S)"),
    "sl.masks.as_mask(mask): a text": (lambda: masks.as_mask("x"), TypeError, "'x'", "sl.masks"),
    "sl.Mask.dense(t): negative": (lambda: masks.causal().dense(-1, 2), ValueError, "t", "-1"),
    "sl.Mask.dense(s): a text": (lambda: masks.causal().dense(1, "2"), TypeError, "s", "'2'"),
    "sl.Mask.dense(device): unknown": (lambda: masks.causal().dense(1, 2, device="gpu"), ValueError, "gpu"),
    "sl.Mask.__and__(other): a tensor": (lambda: masks.causal() & ONES, TypeError, "two masks", "Tensor", "bias"),
    # scores
    "sl.scores.named(score): unknown": (lambda: scores.named("cosin"), ValueError, "'cosin'", "'cosine'"),
    "sl.scores.named(score): a number": (lambda: scores.named(3), TypeError, "int"),
    "sl.scores.General(d_q): zero": (lambda: scores.General(0, 3), ValueError, "d_q", "0"),
    "sl.scores.General(d_k): a text": (lambda: scores.General(3, "3"), TypeError, "d_k", "'3'"),
    "sl.scores.LowRank(rank): zero": (lambda: scores.LowRank(3, 3, 0), ValueError, "rank", "0"),
    "sl.scores.LowRank(d_q): negative": (lambda: scores.LowRank(-3, 3, 1), ValueError, "d_q", "-3"),
    "sl.scores.LowRank(d_k): half": (lambda: scores.LowRank(3, 2.5, 1), TypeError, "d_k", "2.5"),
    "sl.scores.Additive(d_attn): zero": (lambda: scores.Additive(3, 3, 0), ValueError, "d_attn", "0"),
    "sl.scores.Additive(d_q): none": (lambda: scores.Additive(None, 3, 1), TypeError, "d_q", "None"),
    "sl.scores.Additive(d_k): zero": (lambda: scores.Additive(3, 0, 1), ValueError, "d_k", "0"),
    "sl.scores.General.forward(q): another width": (lambda: scores.General(3, 7)(Q, K), ValueError, "3", "7"),
    "sl.scores.General.forward(k): another width": (lambda: scores.General(7, 3)(Q, K), ValueError, "3", "7"),
    "sl.scores.Additive.forward(q): another dtype": (
        lambda: scores.Additive(7, 7, 5)(Q.double(), K.double()), TypeError, "float64", "score.to(q)",
    ),
}  # fmt: skip
