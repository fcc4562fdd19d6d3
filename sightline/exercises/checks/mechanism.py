"""Exercises 1 to 4: the soft dictionary, scores, scaled dot products, masks."""

import math
from typing import Any

import torch
from torch import Tensor

from sightline.exercises.exercise import Exercise, Mistake, Probe
from sightline.exercises.keys import e01_soft_dictionary, e02_scores, e03_scaled_dot_product, e04_masks

__all__ = ["EXERCISES", "drawn", "homework"]


def drawn(seed: int, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Random tensors of these shapes, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def homework(seed: int = 0) -> tuple[Tensor, ...]:
    """Q, K and V as the homework draws them: batch 2, block 3, width 4."""
    return drawn(seed, (2, 3, 4), (2, 3, 4), (2, 3, 4))


# 1: the soft dictionary


def _dictionary() -> list[Probe]:
    values = [[1.0, 0.0, 2.0], [0.0, 3.0, -1.0]]
    return [
        Probe(name="softmax", args=([0.0, 0.0, 0.0, 0.0],)),
        Probe(name="softmax", args=([1.0, 2.0, 3.0],)),
        Probe(name="softmax", args=([-2.0, 5.0],)),
        Probe(name="softmax", args=([1000.0, 1001.0],), about="(large scores)"),
        Probe(name="look_up", args=([0.0, 0.0], values)),
        Probe(name="look_up", args=([2.0, 1.0], values)),
        Probe(name="look_up", args=([-1.0, 0.5, 3.0], [[5.0], [7.0], [11.0]])),
    ]


def _hard(scores: list[float], values: list[Any]) -> Any:
    return values[scores.index(max(scores))]


DICTIONARY = Exercise(
    number=1,
    title="a dictionary that answers with a mixture",
    key=e01_soft_dictionary,
    probes=_dictionary,
    mistakes=(
        Mistake(
            "the weights do not sum to one: divide each exp by the sum of all exps",
            {"softmax": lambda scores: [math.exp(score) for score in scores]},
        ),
        Mistake(
            "that divides the scores themselves: take exp of each score first",
            {"softmax": lambda scores: [score / sum(scores) for score in scores]},
        ),
        Mistake(
            "divide by the sum of the exps, not by how many there are",
            {"softmax": lambda scores: [math.exp(score) / len(scores) for score in scores]},
        ),
        Mistake(
            "exp of a large number is infinite, and inf / inf is no number: subtract the largest score first",
            {"softmax": lambda scores: [math.nan for _ in scores]},
        ),
        Mistake("that is the value of the best key alone; a soft dictionary mixes all", {"look_up": _hard}),
        Mistake(
            "the scores are not weights yet: put them through softmax first",
            {
                "look_up": lambda scores, values: [
                    sum(score * value[i] for score, value in zip(scores, values, strict=True))
                    for i in range(len(values[0]))
                ]
            },
        ),
        Mistake(
            "the answer is as long as one value: at each of its places, add up over the keys",
            {
                "look_up": lambda scores, values: [
                    weight * sum(value)
                    for weight, value in zip(e01_soft_dictionary.softmax(scores), values, strict=True)
                ]
            },
        ),
        Mistake(
            "that is the plain mean; each value counts by its own weight",
            {"look_up": lambda _, values: [sum(x) / len(values) for x in zip(*values, strict=True)]},
        ),
    ),
)


# 2: scores


def _scores() -> list[Probe]:
    q, k = drawn(2, (3, 5), (7, 5))
    wide, w, w_q, w_k, v = drawn(3, (7, 2), (5, 2), (11, 5), (11, 2), (11,))
    small = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [-1.0, 0.5]])
    return [
        Probe(name="dot", args=small),
        Probe(name="dot", args=(q, k)),
        Probe(name="cosine", args=small),
        Probe(name="cosine", args=(q, k)),
        Probe(name="general", args=(q, wide, w), about="(queries of width 5, keys of width 2)"),
        Probe(name="additive", args=(q, wide, w_q, w_k, v)),
    ]


SCORES = Exercise(
    number=2,
    title="four ways to score a query against a key",
    key=e02_scores,
    probes=_scores,
    mistakes=(
        Mistake("rows are queries and columns are keys: the result is transposed", {
            "dot": lambda q, k: k @ q.T,
            "cosine": lambda q, k: e02_scores.cosine(k, q),
            "general": lambda q, k, w: (q @ w @ k.T).T,
            "additive": lambda q, k, w_q, w_k, v: e02_scores.additive(q, k, w_q, w_k, v).T,
        }),
        Mistake("* multiplies number by number and adds nothing up: the matrix product is @", {
            "dot": lambda q, k: q * k,
        }),
        Mistake("the dot product is not divided by the lengths yet", {"cosine": lambda q, k: q @ k.T}),
        Mistake(
            "divide by the length of the key as well as that of the query",
            {"cosine": lambda q, k: q @ k.T / q.norm(dim=-1)[:, None]},
        ),
        Mistake(
            "divide by the length of the query as well as that of the key",
            {"cosine": lambda q, k: q @ k.T / k.norm(dim=-1)},
        ),
        Mistake(
            "each vector has its own length: norm needs dim=-1, else it is one number for the matrix",
            {"cosine": lambda q, k: q @ k.T / (q.norm() * k.norm())},
        ),
        Mistake(
            "the tanh is missing: without it the network is linear",
            {"additive": lambda q, k, w_q, w_k, v: ((q @ w_q.T)[:, None] + (k @ w_k.T)[None]) @ v},
        ),
    ),
)  # fmt: skip


# 3: scaled dot products


def _attend(
    q: Tensor, k: Tensor, v: Tensor, *, divide: float | None = None, dim: int = -1
) -> tuple[Tensor, Tensor]:
    scores = q @ k.transpose(-2, -1) / (q.shape[-1] ** 0.5 if divide is None else divide)
    weights = torch.softmax(scores, dim=dim)
    return weights @ v, weights


def _scaled() -> list[Probe]:
    return [
        Probe(name="scaled_dot_product_attention", args=homework(), about="(the homework's input)"),
        Probe(
            name="scaled_dot_product_attention",
            args=drawn(5, (2, 3, 5), (2, 7, 5), (2, 7, 11)),
            about="(3 queries, 7 keys, values of another width)",
        ),
        Probe(
            name="scaled_dot_product_attention",
            args=tuple(30 * x for x in drawn(6, (1, 2, 5), (1, 3, 5), (1, 3, 5))),
            about="(large numbers)",
        ),
    ]


SCALED = Exercise(
    number=3,
    title="scaled dot-product attention",
    key=e03_scaled_dot_product,
    probes=_scaled,
    parts={"scaled_dot_product_attention": ("output", "weights")},
    mistakes=(
        Mistake("the scores are not divided by the root of d_k", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=1.0),
        }),
        Mistake("divide by the root of d_k, not by d_k itself", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=q.shape[-1]),
        }),
        Mistake("divide by the root: dividing by 1 / sqrt(d_k) multiplies by the root", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=q.shape[-1] ** -0.5),
        }),
        Mistake("the root is of d_k, the width of a key, not of the number of words", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=k.shape[-2] ** 0.5),
        }),
        Mistake("that divides by 2 whatever the width: take the root of Q.shape[-1]", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=2.0),
        }),
        Mistake("the root is of d_k, the width of a key, not of a value", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, divide=v.shape[-1] ** 0.5),
        }),
        Mistake("the softmax runs over the queries: the weights of each query must sum to one (dim=-1)", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, dim=-2),
        }),
        Mistake("the softmax runs over the batch: the weights of each query must sum to one (dim=-1)", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v, dim=0),
        }),
        Mistake("return both: the output first, then the weights", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v)[0],
        }),
        Mistake("the output comes first, then the weights", {
            "scaled_dot_product_attention": lambda q, k, v: _attend(q, k, v)[::-1],
        }),
    ),
)  # fmt: skip


# 4: masks


def _masks() -> list[Probe]:
    q, k, v = homework()
    of_ones = torch.ones(2, 1, 3)
    of_ones[1, 0, 2:] = 0
    more = drawn(7, (2, 5, 3), (2, 5, 3), (2, 5, 7))
    return [
        Probe(name="create_mask", args=(1,)),
        Probe(name="create_mask", args=(5,)),
        Probe(name="padding_mask", args=(torch.tensor([2, 5, 3]), 5)),
        Probe(name="attention_score", args=(q, k, v), about="(no mask)"),
        Probe(
            name="attention_score",
            args=(q, k, v, of_ones),
            about="(the homework's mask of ones and zeros)",
        ),
        Probe(
            name="attention_score",
            args=(*more, e04_masks.create_mask(5)),
            about="(a causal mask)",
        ),
        Probe(
            name="attention_score",
            args=(*more, e04_masks.padding_mask(torch.tensor([2, 4]), 5)),
            about="(a padding mask)",
        ),
    ]


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, how: str) -> Any:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    may = torch.ones((), dtype=torch.bool) if mask is None else mask != 0
    if how.startswith("polarity") and mask is not None:
        scores = scores.masked_fill(may, -1e9 if how.endswith("finite") else float("-inf"))
    elif how == "zero score":
        scores = scores.masked_fill(~may, 0.0)
    elif how == "added":
        scores = scores if mask is None else scores + mask
    weights = torch.softmax(scores, dim=-1)
    if how == "after":
        weights = weights * may
    return weights @ v, weights


MASKS = Exercise(
    number=4,
    title="masks: who may look at whom",
    key=e04_masks,
    probes=_masks,
    parts={"attention_score": ("output", "weights")},
    mistakes=(
        Mistake("that is the other half: row t is True up to column t (the lower triangle, tril)", {
            "create_mask": lambda n: torch.ones(n, n, dtype=torch.bool).triu(),
        }),
        Mistake("True means *may look*; this has True where it may not", {
            "create_mask": lambda n: ~torch.ones(n, n, dtype=torch.bool).tril(),
            "padding_mask": lambda lengths, size: ~e04_masks.padding_mask(lengths, size),
        }),
        Mistake("a query may look at itself, too: the diagonal is True", {
            "create_mask": lambda n: torch.ones(n, n, dtype=torch.bool).tril(-1),
        }),
        Mistake("the shape is (batch, 1, size): an axis of size 1 for the queries is missing", {
            "padding_mask": lambda lengths, size: e04_masks.padding_mask(lengths, size)[:, 0],
        }),
        Mistake("a sentence of length n has the real places 0 to n - 1: compare with < rather than <=", {
            "padding_mask": lambda lengths, size: e04_masks.padding_mask(lengths + 1, size),
        }),
        Mistake("the wrong half is hidden: fill where the mask is 0 (forbidden), not where it is 1", {
            "attention_score": lambda *args: _masked(*args, how="polarity"),
        }),
        Mistake("the wrong half is hidden: fill where the mask is 0 (forbidden), not where it is 1", {
            "attention_score": lambda *args: _masked(*args, how="polarity finite"),
        }),
        Mistake("the rows do not sum to one: hide scores before the softmax, not weights after it", {
            "attention_score": lambda *args: _masked(*args, how="after"),
        }),
        Mistake("a score of 0 still gets weight, exp(0) = 1: use -inf, whose exp is 0", {
            "attention_score": lambda *args: _masked(*args, how="zero score"),
        }),
        Mistake("adding ones and zeros to the scores hides nothing: put -inf where the mask is 0", {
            "attention_score": lambda *args: _masked(*args, how="added"),
        }),
        Mistake("the mask is not used yet", {
            "attention_score": lambda *args: _masked(*args, how="not at all"),
        }),
        Mistake("the scores are not divided by the root of d_k", {
            "attention_score": lambda q, k, v, mask=None: e04_masks.attention_score(
                q * q.shape[-1] ** 0.5, k, v, mask
            ),
        }),
    ),
)  # fmt: skip

EXERCISES = (DICTIONARY, SCORES, SCALED, MASKS)
