"""The places of images, videos and sounds among the tokens of a model that reads text too, by name.

Their patches stand in a text as copies of one placeholder. Copies that follow each other are one image:

    "<image>" "<image>" "<image>" "a" "cat"   ->   "image[0]" "image[1]" "image[2]" "a" "cat"

With several images they are ``image 0[0]``, ``image 0[1]``, ... ``image 1[0]``. Where nobody told the tokens,
placeholders are found in the ``input_ids`` of a Hugging Face model, whose configuration says which they are.
"""

import functools
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from sightline.watch.modules import local_variables

__all__ = ["media_ids", "name_media", "named_input_ids"]

# How tokenizers spell placeholders: <image>, <|image_pad|>, <image_soft_token>, [IMG], <IMG_CONTEXT>.
_PLACEHOLDER = re.compile(
    r"[<\[]\|?(?P<kind>image|img|video|audio)(_?(pad|token|soft_token|context|patch|placeholder))?\|?[>\]]",
    re.IGNORECASE,
)
_KINDS = {"img": "image"}
_IDS = {  # where a configuration says it
    f"{kind}_token_{word}": kind for kind in ("image", "video", "audio") for word in ("id", "index")
}


def name_media(tokens: Sequence[str]) -> tuple[str, ...]:
    """The same tokens, placeholders with the names of the patches that they stand for.

    Example:
        >>> name_media(["<s>", "<image>", "<image>", "a", "cat"])
        ('<s>', 'image[0]', 'image[1]', 'a', 'cat')
        >>> name_media(["<|video_pad|>", "then", "<|video_pad|>", "<|video_pad|>"])
        ('video 0[0]', 'then', 'video 1[0]', 'video 1[1]')
    """
    return _name_runs(tokens, [_kind(token) for token in tokens])


def _name_runs(tokens: Sequence[str], kinds: Sequence[str | None]) -> tuple[str, ...]:
    runs = [(kind, len(list(run))) for kind, run in itertools.groupby(kinds)]
    counts = {kind: sum(k == kind for k, _ in runs) for kind, _ in runs}
    seen: dict[str, int] = {}
    names: list[str] = []
    for kind, n in runs:
        if kind is None:
            names += tokens[len(names) : len(names) + n]
            continue
        number = seen[kind] = seen.get(kind, -1) + 1
        which = kind if counts[kind] == 1 else f"{kind} {number}"
        names += [f"{which}[{i}]" for i in range(n)]
    return tuple(names)


def _kind(token: str) -> str | None:
    found = _PLACEHOLDER.fullmatch(token)
    if found is None:
        return None
    kind = found["kind"].lower()
    return _KINDS.get(kind, kind)


def media_ids(model: nn.Module) -> dict[int, str]:
    """The token ids that stand for patches, and of what, as a model's configuration says; often none."""
    config: Any = getattr(model, "config", None)
    if config is None:
        return {}
    kind_of_config: Any = type(config)
    own, of_class = getattr(config, "__dict__", _IDS), _answered_by_class(kind_of_config)
    found = {}
    for name, kind in _IDS.items():
        if name in own or name in of_class:  # asking for what is not there is slow
            number = getattr(config, name, None)
            if isinstance(number, int) and not isinstance(number, bool):
                found[number] = kind
    return found


@functools.lru_cache(256)
def _answered_by_class(kind: type) -> frozenset[str]:
    """The names among those of placeholders that objects of a class may have without holding them."""
    if hasattr(kind, "__getattr__"):
        return frozenset(_IDS)
    aliases = getattr(kind, "attribute_map", ())  # of Hugging Face
    return frozenset(name for name in _IDS if hasattr(kind, name) or name in aliases)


def named_input_ids(
    ids: Mapping[int, str], depth: int = 2, is_known: Callable[[Tensor], bool] = lambda _: False
) -> tuple[Tensor, tuple[tuple[str, ...], ...]] | None:
    """The ``input_ids`` of the running model, by name; those of text are numbers with a sign before them.

    Args:
        ids: What :func:`media_ids` gave.
        depth: How many frames to leave out.
        is_known: Whether these have been named already; then None is given.
    """
    frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
    while frame is not None:
        names = frame.f_code.co_varnames
        if "input_ids" in names:
            found, encoded = local_variables(frame, "input_ids", "encoder_hidden_states")
            is_decoder = "encoder_hidden_states" in names and encoded is not None  # images are in the encoder
            if (
                not is_decoder
                and isinstance(found, Tensor)
                and found.dim() == 2
                and not found.is_floating_point()
            ):
                return None if is_known(found) else (found, _named(found, ids))
        frame = frame.f_back
    return None


def _named(input_ids: Tensor, ids: Mapping[int, str]) -> tuple[tuple[str, ...], ...]:
    if input_ids.device.type == "meta" or input_ids.dtype == torch.bool:
        return ()
    texts = input_ids.tolist()
    return tuple(_name_runs([f"#{i}" for i in text], [ids.get(i) for i in text]) for text in texts)
