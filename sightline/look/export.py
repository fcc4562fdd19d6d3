"""What was seen, for other programs: plain dictionaries and data frames."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from sightline.look.sight import Sight

__all__ = ["sight_to_dict", "sight_to_frame"]

_OF_QUERIES = ("lse", "entropy", "peak", "peak_at")


def sight_to_dict(sight: "Sight") -> dict[str, Any]:
    """A sight as what ``json.dumps`` takes."""
    sight.require_whole("JSON")
    statistics = {name: _plain(x.detach().cpu().tolist()) for name, x in sight.statistics.items()}
    return {
        "name": sight.name,
        "queries": sight.t,
        "keys": sight.s,
        "lead": list(sight.shape),
        "source": sight.source,
        "padding": sight.padding,
        "tokens": [list(text) for text in sight.tokens],
        "statistics": statistics,
    }


def sight_to_frame(sight: "Sight") -> "pd.DataFrame":
    """A row for each query of each item and head, those that are padding left out."""
    sight.require_whole("a data frame")
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError:
        raise ImportError("to_pandas needs pandas, which is not installed; pip install pandas") from None
    real = ~sight.is_padding.flatten()
    index = torch.cartesian_prod(*map(torch.arange, (*sight.shape, sight.t, 1)))[real.cpu(), :-1]
    names = [*(f"item {i}" if i else "item" for i in range(sight.n_batch)), "head"]
    columns = dict(zip([*names[: len(sight.shape)], "query"], index.T.tolist(), strict=True))
    measured = {name: x[real].tolist() for name, x in _of_queries(sight)}
    return pd.DataFrame({"layer": sight.name} | columns | measured)


def _of_queries(sight: "Sight") -> Iterator[tuple[str, Tensor]]:
    """Yield a column for each number of a query: of a measure with several, ``name[0]``, ``name[1]``, ..."""
    known = [name for name in _OF_QUERIES if name in sight.statistics]
    own = [name for name in sight.statistics if sight.axes.get(name) == "query"]
    for name in (*known, *own):
        x = sight.statistics[name].detach()
        if x.dim() == len(sight.shape) + 1:
            yield name, x.flatten()
        else:
            parts = x.flatten(len(sight.shape) + 1)
            yield from ((f"{name}[{i}]", part.flatten()) for i, part in enumerate(parts.unbind(-1)))


def _plain(x: Any) -> Any:
    """Numbers that JSON has: neither infinity nor NaN."""
    if isinstance(x, list):
        return [_plain(y) for y in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
