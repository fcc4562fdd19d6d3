"""Exercises 9 to 14: training, decoding, captioning, translation, vision, pretraining."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.exercises.checks.mechanism import drawn
from sightline.exercises.exercise import Exercise, Mistake, Probe
from sightline.exercises.keys import (
    e09_training,
    e10_decoding,
    e11_captioning,
    e12_translation,
    e13_vision,
    e14_pretraining,
)

__all__ = ["EXERCISES"]


# 9: training


def _training() -> list[Probe]:
    (logits,) = drawn(31, (5, 7))
    target = torch.tensor([0, 6, 3, 3, 1])
    return [
        Probe(name="learning_rate", args=(1, 512, 4000), about="(the first step)"),
        Probe(name="learning_rate", args=(4000, 512, 4000), about="(the end of the warm-up)"),
        Probe(name="learning_rate", args=(100000, 512, 4000)),
        Probe(name="smoothed_cross_entropy", args=(logits, target, 0.0), about="(no smoothing)"),
        Probe(name="smoothed_cross_entropy", args=(logits, target, 0.1)),
        Probe(name="smoothed_cross_entropy", args=(logits, target, 0.4)),
    ]


def _smoothed_over_others(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    spread = torch.full_like(logits, smoothing / (logits.shape[-1] - 1))
    spread.scatter_(1, target[:, None], 1 - smoothing)
    return -(spread * logits.log_softmax(-1)).sum(-1).mean()


TRAINING = Exercise(
    number=9,
    title="warm-up and label smoothing",
    key=e09_training,
    probes=_training,
    tolerance=1e-6,
    mistakes=(
        Mistake("the rate rises, then falls: the smaller of the two, min", {
            "learning_rate": lambda step, d, warmup: d**-0.5 * max(step**-0.5, step * warmup**-1.5),
        }),
        Mistake("d_model ** -0.5 is missing", {
            "learning_rate": lambda step, _, warmup: min(step**-0.5, step * warmup**-1.5),
        }),
        Mistake("a loss is positive: minus the log-probability", {
            "smoothed_cross_entropy": lambda x, y, s: -F.cross_entropy(x, y, label_smoothing=s),
        }),
        Mistake("the mean over the batch, not the sum", {
            "smoothed_cross_entropy": lambda x, y, s: F.cross_entropy(
                x, y, label_smoothing=s, reduction="sum"
            ),
        }),
        Mistake("the targets are not smoothed yet", {
            "smoothed_cross_entropy": lambda x, y, _: F.cross_entropy(x, y),
        }),
        Mistake("every word gets smoothing / V, the right one too; not smoothing / (V - 1) for the others", {
            "smoothed_cross_entropy": _smoothed_over_others,
        }),
    ),
)  # fmt: skip


# 10: decoding


def _tables() -> tuple[Tensor, Tensor]:
    # Token 0 begins, 4 ends. The likeliest first token, 1, leads to unlikely ones.
    led_astray = torch.tensor(
        [
            [0.0, 0.5, 0.4, 0.1, 0.0],
            [0.0, 0.1, 0.3, 0.3, 0.3],
            [0.0, 0.0, 0.0, 0.9, 0.1],
            [0.0, 0.05, 0.05, 0.0, 0.9],
            [0.2, 0.2, 0.2, 0.2, 0.2],
        ]
    )
    (logits,) = drawn(37, (7, 7))
    return led_astray.clamp_min(1e-9).log(), logits.log_softmax(-1)


def _decoding() -> list[Probe]:
    astray, other = _tables()
    endless = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]).clamp_min(1e-9).log()
    return [
        Probe(name="greedy", args=(astray, 0, 4, 9)),
        Probe(name="greedy", args=(endless, 0, 2, 4), about="(a table that never ends)"),
        Probe(name="beam", args=(astray, 0, 4, 9, 1), about="(a beam of 1 is greedy)"),
        Probe(name="beam", args=(astray, 0, 4, 9, 2), about="(a beam of 2)"),
        Probe(name="beam", args=(other, 0, 6, 6, 5)),
    ]


DECODING = Exercise(
    number=10,
    title="greedy decoding and beam search",
    key=e10_decoding,
    probes=_decoding,
    mistakes=(
        Mistake("return the tokens after `start`, without `start` itself", {
            "greedy": lambda table, start, *rest: [start, *e10_decoding.greedy(table, start, *rest)],
            "beam": lambda table, start, *rest: [start, *e10_decoding.beam(table, start, *rest)],
        }),
        Mistake("`end` belongs to the sentence: append it, then stop", {
            "greedy": lambda t, start, end, n: [x for x in e10_decoding.greedy(t, start, end, n) if x != end],
            "beam": lambda t, s, end, n, w: [x for x in e10_decoding.beam(t, s, end, n, w) if x != end],
        }),
        Mistake("that goes on after `end`: a sentence that wrote `end` is finished", {
            "greedy": lambda table, start, _, n: e10_decoding.greedy(table, start, -1, n),
        }),
        Mistake("that is greedy search: keep `width` beginnings, not one", {
            "beam": lambda table, start, end, n, _: e10_decoding.greedy(table, start, end, n),
        }),
    ),
)  # fmt: skip


# 11: captioning


def _captioning() -> list[Probe]:
    caption = "a red red circle left of a red red square".split()  # noqa: SIM905
    references = [x.split() for x in ("a red circle left of a square", "the red disc beside the red square")]
    (scores,) = drawn(41, (5, 7))
    weights = scores.flatten().softmax(0).reshape(5, 7)
    return [
        Probe(name="clipped_precision", args=(["the", "the", "the"], [["the", "cat"]])),
        Probe(name="clipped_precision", args=(caption, references)),
        Probe(name="share_in_box", args=(weights, (0, 0, 5, 7)), about="(the whole image)"),
        Probe(name="share_in_box", args=(weights, (1, 2, 4, 3))),
    ]


def _clipped_by_the_sum(caption: list[str], references: list[list[str]]) -> float:
    count = {word: sum(x.count(word) for x in references) for word in caption}
    return sum(min(caption.count(word), count[word]) for word in set(caption)) / len(caption)


CAPTIONING = Exercise(
    number=11,
    title="a caption's words, and where the model looked",
    key=e11_captioning,
    probes=_captioning,
    mistakes=(
        Mistake("a word counts at most as often as a reference has it (clipping)", {
            "clipped_precision": lambda caption, references: sum(
                any(word in x for x in references) for word in caption
            ) / len(caption),
        }),
        Mistake("the largest count of one reference, not the sum over all", {
            "clipped_precision": _clipped_by_the_sum,
        }),
        Mistake("divide by the number of words, the repeated ones included", {
            "clipped_precision": lambda caption, references: e11_captioning.clipped_precision(
                caption, references
            ) * len(caption) / len(set(caption)),
        }),
        Mistake("bottom and right are the first patches outside the box", {
            "share_in_box": lambda w, box: float(w[box[0] : box[2] + 1, box[1] : box[3] + 1].sum()),
        }),
        Mistake("the box is (top, left, bottom, right): rows first, then columns", {
            "share_in_box": lambda w, box: float(w[box[1] : box[3], box[0] : box[2]].sum()),
        }),
        Mistake("the sum of the weights, not their mean", {
            "share_in_box": lambda w, box: float(w[box[0] : box[2], box[1] : box[3]].mean()),
        }),
    ),
)  # fmt: skip


# 12: translation


def _translation() -> list[Probe]:
    state, states = drawn(43, (5,), (7, 5))
    found, sure, possible = [(0, 0), (1, 2), (2, 1), (3, 3)], [(0, 0), (2, 1)], [(1, 1), (3, 3)]
    return [
        Probe(name="attention_step", args=(state, states)),
        Probe(name="alignment_error_rate", args=([(0, 0), (1, 1)], [(0, 0), (1, 1)], [])),
        Probe(name="alignment_error_rate", args=(found, sure, possible)),
    ]


def _step(state: Tensor, states: Tensor, *, root: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    scores = states @ state / root
    weights = scores.softmax(-1)
    return scores, weights, weights @ states


def _error_rate(found: list[Any], sure: list[Any], possible: list[Any]) -> float:
    a, s, p = set(found), set(sure), set(possible)
    return 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))


TRANSLATION = Exercise(
    number=12,
    title="one step of a translator, and how good an alignment is",
    key=e12_translation,
    probes=_translation,
    parts={"attention_step": ("scores", "weights", "context")},
    mistakes=(
        Mistake("the notes' score is the plain dot product, without a root", {
            "attention_step": lambda s, h: _step(s, h, root=len(s) ** 0.5),
        }),
        Mistake("a sure link is possible, too, even if the list of possible ones does not have it", {
            "alignment_error_rate": _error_rate,
        }),
        Mistake("the error rate is one minus that", {
            "alignment_error_rate": lambda *args: 1 - e12_translation.alignment_error_rate(*args),
        }),
    ),
)  # fmt: skip


# 13: vision


def _vision() -> list[Probe]:
    return [
        Probe(name="patches", args=(torch.arange(16.0).reshape(1, 4, 4), 2)),
        Probe(
            name="patches", args=(torch.arange(84.0).reshape(3, 4, 7)[:, :, :6], 2), about="(three channels)"
        ),
        Probe(name="patches", args=(drawn(47, (3, 224, 224))[0], 16), about="(the notes' example)"),
    ]


def _cut(image: Tensor, size: int, *order: int) -> Tensor:
    c, h, w = image.shape
    return image.reshape(c, h // size, size, w // size, size).permute(order).reshape(-1, c * size * size)


VISION = Exercise(
    number=13,
    title="an image as a sentence of patches",
    key=e13_vision,
    probes=_vision,
    mistakes=(
        Mistake("reshape alone cuts the rows in pieces: a patch has pixels of several rows", {
            "patches": lambda image, size: image.reshape(-1, image.shape[0] * size * size),
        }),
        Mistake("within a patch the channels come one after the other, not pixel by pixel", {
            "patches": lambda image, size: _cut(image, size, 1, 3, 2, 4, 0),
        }),
        Mistake("left to right first, then the next row of patches", {
            "patches": lambda image, size: _cut(image, size, 3, 1, 0, 2, 4),
        }),
        Mistake("within a patch the pixels are read row by row, not column by column", {
            "patches": lambda image, size: _cut(image, size, 1, 3, 0, 4, 2),
        }),
    ),
)  # fmt: skip


# 14: pretraining


def _pretraining() -> list[Probe]:
    (logits,) = drawn(53, (7, 5))
    tokens = torch.tensor([3, 1, 4, 1, 0, 2, 2])
    hidden = torch.tensor([False, True, False, False, True, True, False])
    return [
        Probe(name="causal_loss", args=(logits, tokens)),
        Probe(name="masked_loss", args=(logits, tokens, hidden)),
        Probe(
            name="masked_loss", args=(logits, tokens, torch.ones(7, dtype=torch.bool)), about="(all hidden)"
        ),
    ]


PRETRAINING = Exercise(
    number=14,
    title="two losses without labels",
    key=e14_pretraining,
    probes=_pretraining,
    mistakes=(
        Mistake("the guess at place t is for the token at t + 1: shift the tokens by one", {
            "causal_loss": F.cross_entropy,
        }),
        Mistake("the other way round: the guess at place t is for the token that comes after it", {
            "causal_loss": lambda x, y: F.cross_entropy(x[1:], y[:-1]),
        }),
        Mistake("only hidden places count", {"masked_loss": lambda x, y, _: F.cross_entropy(x, y)}),
        Mistake("the mean over the hidden places, not over all", {
            "masked_loss": lambda x, y, hidden: F.cross_entropy(x[hidden], y[hidden]) * hidden.float().mean(),
        }),
        Mistake("the hidden places count, not the visible ones", {
            "masked_loss": lambda x, y, hidden: F.cross_entropy(x[~hidden], y[~hidden]),
        }),
        Mistake("a loss is positive: minus the log-probability", {
            "causal_loss": lambda x, y: -F.cross_entropy(x[:-1], y[1:]),
            "masked_loss": lambda x, y, hidden: -F.cross_entropy(x[hidden], y[hidden]),
        }),
    ),
)  # fmt: skip

EXERCISES = (TRAINING, DECODING, CAPTIONING, TRANSLATION, VISION, PRETRAINING)
