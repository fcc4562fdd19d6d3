"""What a captioner looked at: for each word, and in every layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sightline.attention.scores import Additive
from sightline.data.images import normalise
from sightline.data.scenes import Scene
from sightline.data.scenes_layout import SIDE
from sightline.data.tokens import BOS, EOS, Tokenizer
from sightline.evaluate.scenes import groundings
from sightline.look.recording import Recording
from sightline.models.captioner import Captioner
from sightline.models.recurrent_decoder import RecurrentDecoder
from sightline.shapes import Int, Shaped
from sightline.show.explorer.steps import Step, steps_of
from sightline.tasks.attention import Attention, Box, Grid, tokens
from sightline.tasks.caption.generate import Caption, words_of_pieces
from sightline.watch.watch import watch

__all__ = [
    "CaptionAttention",
    "all_layers",
    "caption_steps",
    "layer_attentions",
    "watch_captions",
    "word_attention",
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CaptionAttention(Attention):
    """The attention of each word of a caption over the image.

    Attributes:
        shown: The layers that the summary is the mean of.
        ids: The tokens of the caption, without BOS and EOS.
        n_attentions: How many attentions the model has in all.
    """

    shown: tuple[int, ...]
    ids: tuple[int, ...]
    n_attentions: int


def all_layers(model: Captioner) -> range:
    """The decoder's layers that look at the image; the recurrent decoder has one."""
    return range(1 if isinstance(model.decoder, RecurrentDecoder) else model.config.n_layers)


def word_attention(
    model: Captioner, image: Shaped[Tensor, "3 h w"], caption: Caption, scene: Scene | None = None
) -> CaptionAttention:
    """The record of a caption that was generated with ``look=all_layers(model)``.

    Its summary is the mean over the heads of the layer that the model's ``look_layer`` names, or of all.

    Args:
        model: The captioner.
        image: As the model saw it, bytes.
        caption: With its weights.
        scene: What is in the image, where it was drawn: words that name an object get its box.
    """
    assert caption.weights is not None  # noqa: S101 - it was generated with look
    layers, chosen = all_layers(model), model.config.look_layer
    n_heads = caption.weights.size(1) // len(layers)
    shown = tuple(layers) if chosen is None or len(layers) == 1 else (layers[chosen],)
    weights = caption.weights.unflatten(1, (len(layers), n_heads))  # (T, L, H, P)
    summary = weights[:, list(shown)].flatten(1, 2).mean(1)
    boxes = {} if scene is None else _boxes(scene, caption.words, summary, model)
    return CaptionAttention(
        weights=weights.permute(1, 2, 0, 3).float(),
        queries=caption.words,
        keys=_grid(model, image, boxes),
        summary=summary,
        summary_label=_label(shown, n_heads, len(layers)),
        shown=shown,
        ids=caption.ids,
        n_attentions=sum(isinstance(m, nn.MultiheadAttention | Additive) for m in model.modules()),
    )


def layer_attentions(
    model: Captioner, tokenizer: Tokenizer, image: Shaped[Tensor, "3 h w"], ids: Sequence[int]
) -> Mapping[str, Attention]:
    """Every attention of a model while it writes a caption, by module name; token by token, EOS included.

    Args:
        model: The captioner.
        tokenizer: The run's own.
        image: As the model sees it, bytes.
        ids: The caption, without BOS and EOS.
    """
    read = _read(model, ids)
    inputs = tokens(tokenizer.words(read[0].tolist()))
    outputs = tokens(tokenizer.words([*ids, EOS][: len(inputs)]))
    grid = _grid(model, image)
    seen = watch_captions(model, image[None], [ids])
    attentions: dict[str, Attention] = {}
    for name in seen.names():
        (sight,) = seen.calls(name)
        weights = sight.rows(list(range(sight.t))).float().cpu()  # (1, H, T, S)
        is_encoder, is_cross = name.startswith("encoder"), name.endswith("multihead_attn")
        queries = grid.names() if is_encoder else outputs if is_cross else inputs
        keys = grid if is_encoder or is_cross else inputs
        attentions[name] = Attention(weights=weights, queries=queries, keys=keys)
    if isinstance(model.decoder, RecurrentDecoder):  # its weights are computed by hand, where no watch sees
        attentions["decoder.score"] = Attention(
            weights=_stepwise(model, image, read), queries=outputs, keys=grid
        )
    return attentions


@torch.no_grad()
def watch_captions(
    model: Captioner, images: Shaped[Tensor, "B 3 h w"], captions: Sequence[Sequence[int]]
) -> Recording:
    """Every fused attention of a model while it writes captions, given as ids; q and k are kept."""
    device = next(model.parameters()).device
    with watch(model, keep=True) as seen:
        model(normalise(images.to(device)), _read(model, *captions).to(device))
    return seen


@torch.no_grad()
def caption_steps(
    model: Captioner, tokenizer: Tokenizer, image: Shaped[Tensor, "3 h w"], ids: Sequence[int]
) -> list[Step]:
    """The steps in which a caption was written, and what else each might have been."""
    device = next(model.parameters()).device
    logits = model(normalise(image[None].to(device)), _read(model, ids).to(device))[0]
    pieces = tokenizer.words(list(ids))

    def name(token: int) -> str:
        return tokens(tokenizer.words([token]))[0]

    return steps_of(logits, ids[: len(logits)], name, words_of_pieces(pieces))


def _read(model: Captioner, *captions: Sequence[int]) -> Int[Tensor, "B T"]:
    """What the decoder reads to write captions: BOS and all tokens that another one follows; padded."""
    rows = [torch.tensor([BOS, *ids][: model.config.max_length]) for ids in captions]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


@torch.no_grad()
def _stepwise(model: Captioner, image: Shaped[Tensor, "3 h w"], read: Int[Tensor, "1 T"]) -> Tensor:
    """(1, H, T, P): the weights over the image at each step."""
    device = next(model.parameters()).device
    state = model.start(normalise(image[None].to(device)), look=True)
    steps = []
    for token in read[0].to(device):
        _, state = model.step(state, token[None])
        assert state.attention_weights is not None  # noqa: S101 - started with look
        steps.append(state.attention_weights[0])
    return torch.stack(steps, 1)[None].float().cpu()


def _grid(model: Captioner, image: Shaped[Tensor, "3 h w"], boxes: Mapping[int, Box] | None = None) -> Grid:
    rows, columns = model.grid
    return Grid(rows=rows, columns=columns, image=image.cpu(), boxes=boxes or {})


def _boxes(scene: Scene, words: Sequence[str], summary: Tensor, model: Captioner) -> dict[int, Box]:
    """The box of each object that a caption of a scene names, in pixels of what the model saw."""
    scale = model.config.image_size / SIDE
    boxes: dict[int, Box] = {}
    for glance in groundings(scene, words, summary[:, None], model.grid):
        if glance.thing is not None:
            left, top, right, bottom = scene.objects[glance.thing].box
            boxes[glance.word] = (left * scale, top * scale, right * scale, bottom * scale)
    return boxes


def _label(shown: Sequence[int], n_heads: int, n_layers: int) -> str:
    n = len(shown) * n_heads
    if n == 1:
        return "" if n_layers == 1 else f"layer {shown[0]}"
    if len(shown) == n_layers:
        return f"mean of {n} heads" + (f", {n_heads} per layer" if n_layers > 1 else "")
    return f"mean of {n} heads of layer {shown[0]}"
