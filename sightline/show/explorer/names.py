"""Names of the queries and keys of a layer, from the tokens that people give."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from sightline.look.module_names import is_cross_name
from sightline.look.sight import Sight
from sightline.watch.tokens import clean

__all__ = ["Tokens", "names_of", "text_of"]

Names = Sequence[str] | None
Tokens = Sequence[str] | Sequence[Sequence[str]] | Mapping[str, tuple[Names, Names]]


def names_of(
    layer: str, sight: Sight, tokens: Tokens | None, item: int
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Names of a layer's queries and keys, where there are as many of them."""
    pair: tuple[Any, Any] = (None, None)
    if isinstance(tokens, Mapping):
        module = layer.partition(" call ")[0].partition(" run ")[0]
        own = (tokens[name] for name in (layer, module) if name in tokens)
        fits = (names for pattern, names in tokens.items() if fnmatch.fnmatchcase(layer, pattern))
        pair = next(own, None) or next(fits, None) or pair
    elif tokens is not None and len(tokens):
        return _in_text(layer, sight, text_of(tokens, item))
    elif sight.tokens:
        return _in_text(layer, sight, sight.tokens[0])
    queries, keys = (None if names is None else tuple(map(clean, names)) for names in pair)
    # While a decoding loop runs, the last token is written and never read.
    queries = queries[: sight.t] if queries is not None and len(queries) >= sight.t else None
    keys = keys[: sight.s] if keys is not None and len(keys) >= sight.s else None
    return queries, keys


def text_of(tokens: Sequence[Any], item: int) -> Sequence[str]:
    """The tokens of an item, of one text for all or of a text for each."""
    text = tokens if isinstance(tokens[0], str) else tokens[min(item, len(tokens) - 1)]
    strange = [x for x in text if not isinstance(x, str)] if isinstance(text, Sequence) else [text]
    if strange:
        raise TypeError(
            "tokens are those of a text, or a list of them for each text of the batch, got "
            f"{strange[0]!r}; tokenizer.convert_ids_to_tokens gives them"
        )
    return text


def _in_text(
    layer: str, sight: Sight, text: Sequence[str]
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The same of a text that reads itself: with a cache, fewer queries than keys are the last of them."""
    words, first = tuple(map(clean, text)), sight.s - sight.t
    is_end = first > 0 and len(words) >= sight.s and not is_cross_name(layer)
    queries = words[first : sight.s] if is_end else words[: sight.t]
    return (
        queries if len(words) >= sight.t else None,
        words[: sight.s] if len(words) >= sight.s else None,
    )
