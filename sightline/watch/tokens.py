"""Tokens as people read them: without the signs that tokenizers put in front of words."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from sightline.messages import format_value
from sightline.watch.media_tokens import name_media

__all__ = ["clean", "clean_batch"]

_STARTS = ("Ġ", "▁")  # a space before the word: byte-level BPE's, SentencePiece's
_SIGNS = {"Ċ": "⏎", "ĉ": "⇥"}


def clean(token: str) -> str:
    """One token for people.

    Example:
        >>> [clean(token) for token in ("Ġthe", "##ing", "▁cat", "low</w>", "[CLS]", "Ċ", "Ġ")]
        ['the', 'ing', 'cat', 'low', '[CLS]', '⏎', '␣']
    """
    shown = token.removesuffix("</w>")
    if shown.startswith("##") and len(shown) > 2:
        shown = shown[2:]
    while shown.startswith(_STARTS):
        shown = shown[1:]
    for sign, instead in _SIGNS.items():
        shown = shown.replace(sign, instead)
    return shown if shown.strip() or not token else "␣"


def clean_batch(tokens: Sequence[object] | None) -> tuple[tuple[str, ...], ...]:
    """The tokens of one text, or of each text of a batch; always a tuple of texts.

    Placeholders of images become the names of patches, ``image[0]``, ``image[1]``, ...
    """
    if tokens is None:
        return ()
    if not hasattr(tokens, "__len__") or isinstance(tokens, Mapping):
        raise TypeError(
            f"tokens must be a list, got {format_value(tokens)}; tokenizer.convert_ids_to_tokens gives one"
        )
    if len(tokens) == 0:
        return ()
    texts = [tokens] if all(isinstance(token, str) for token in tokens) else tokens
    found = []
    for text in texts:
        if not _is_list(text) or not all(isinstance(token, str) for token in text):
            strange = next((x for x in text if not isinstance(x, str)), text) if _is_list(text) else text
            raise TypeError(
                "tokens are those of a text, or a list of them for each text of the batch, got "
                f"{strange!r}; tokenizer.convert_ids_to_tokens gives them"
            )
        found.append(tuple(map(clean, name_media([str(token) for token in text]))))
    return tuple(found)


def _is_list(x: object) -> TypeGuard[Sequence[object]]:
    return isinstance(x, list | tuple)
