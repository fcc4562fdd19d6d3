"""What a prediction looked at: one record for every task.

``p.attention.weights`` is (L, H, T, S): layers, heads, queries, keys; ``queries`` are words, ``keys`` are
words or a Grid over the image; ``p.attention.select(layer=1, head=0).summary`` is one map, (T, S).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sightline.look.recording import Recording
from sightline.messages import check_integer
from sightline.shapes import Float, Shaped, is_tensor

__all__ = ["Attention", "Box", "Grid", "tokens"]

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the image


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """The cells that an image is cut into, row by row.

    Attributes:
        rows, columns: How many cells down and across.
        image: The pixels that the model saw.
        boxes: For some queries, by position, the box of the object they name.

    Example:
        >>> grid = Grid(rows=2, columns=3, image=torch.zeros(3, 8, 12, dtype=torch.uint8))
        >>> grid.rows * grid.columns
        6
    """

    rows: int
    columns: int
    image: Shaped[Tensor, "C h w"]
    boxes: Mapping[int, Box] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_integer("rows", self.rows, at_least=0)
        check_integer("columns", self.columns, at_least=0)
        is_tensor(self.image, "image")

    def __len__(self) -> int:
        """How many cells."""
        return self.rows * self.columns

    def names(self) -> tuple[str, ...]:
        """A name for each cell: its row and its column."""
        return tuple(f"{row},{column}" for row in range(self.rows) for column in range(self.columns))


_MEAN = torch.empty(0)  # stands for the mean of all layers and heads


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """Attention weights with a name for each query and each key.

    Attributes:
        weights: One row of weights per layer, head and query.
        queries: What looks: words; a class; names of patches.
        keys: What is looked at: words, or cells of an image.
        summary: The map to show first. Default: the mean of all layers and heads.
        summary_label: What the summary is, in a few words.

    Raises:
        ValueError: If the weights do not have one row per query and one column per key.

    Example:
        >>> weights = torch.full((2, 3, 1, 4), 0.25)
        >>> attention = Attention(weights=weights, queries=("dog",), keys=tuple("abcd"))
        >>> attention.summary_label, attention.select(layer=1).weights.shape
        ('mean of 6 heads, 3 per layer', torch.Size([1, 3, 1, 4]))
    """

    weights: Float[Tensor, "L H T S"]
    queries: tuple[str, ...]
    keys: tuple[str, ...] | Grid
    summary: Float[Tensor, "..."] = _MEAN
    summary_label: str = ""

    def __post_init__(self) -> None:
        is_tensor(self.weights, "weights")
        shape = tuple(self.weights.shape)
        if len(shape) != 4 or shape[2:] != (len(self.queries), len(self.keys)):
            raise ValueError(
                f"weights must be (L, H, T, S) with T = {len(self.queries)} queries and S = {len(self.keys)} "
                f"keys, got shape {shape}"
            )
        if self.summary is _MEAN:
            object.__setattr__(self, "summary", self.weights.mean((0, 1)))
            object.__setattr__(self, "summary_label", self.summary_label or _label_mean(*shape[:2]))

    def __repr__(self) -> str:
        """The sizes: the weights themselves would fill the screen."""
        layers, heads, t, s = self.weights.shape
        return f"{type(self).__name__}({layers} layers of {heads} heads, {t} queries, {s} keys)"

    @classmethod
    def of(
        cls,
        seen: Recording,
        index: int,
        *,
        queries: Sequence[str],
        keys: Sequence[str] | Grid,
        layers: Sequence[str] | None = None,
    ) -> "Attention":
        """What one example of a batch looked at, from all layers of a watched model, or from some.

        Args:
            seen: What :func:`sightline.watch` recorded, q and k kept: every layer called once, with as many
                queries and keys as are named here.
            index: Which example of the batch.
            queries, keys: Names of the tokens.
            layers: Names of the modules. Default: all.
        """
        sights = [sight for name in layers or seen.names() for sight in seen.calls(name)]
        maps = [sight.map((sight.t, sight.s))[index] for sight in sights]
        weights = torch.stack(maps).float().cpu()  # (L, H, T, S)
        keys = keys if isinstance(keys, Grid) else tuple(keys)
        return cls(weights=weights, queries=tuple(queries), keys=keys)

    @property
    def entropy(self) -> Float[Tensor, " T"]:
        """Entropy of each query's summary, in nats."""
        return -torch.special.xlogy(self.summary, self.summary).sum(-1)

    def select(self, *, layer: int | None = None, head: int | None = None) -> "Attention":
        """One layer, one head, or one head of one layer.

        Without a layer, heads are counted through all layers: head 5 of layers with 4 heads is head 1 of
        layer 1.

        Raises:
            ValueError: If there is no such layer or head.
        """
        n_layers, n_heads = self.weights.shape[:2]
        if layer is not None:
            _check_index("layer", layer, n_layers, "layers")
        weights, label = self.weights, []
        if head is not None:
            _check_index("head", head, n_heads if layer is not None else n_layers * n_heads, "heads")
            if layer is None:
                layer, head = divmod(head, n_heads)
        if layer is not None:
            weights, label = weights[layer : layer + 1], [f"layer {layer}"]
        if head is not None:
            weights, label = weights[:, head : head + 1], [*label, f"head {head}"]
        if not label:
            return self
        return Attention(
            weights=weights, queries=self.queries, keys=self.keys, summary_label=", ".join(label)
        )


def tokens(words: Sequence[str]) -> tuple[str, ...]:
    """Tokens as people read them: the mark before a word is dropped, a lone space is shown.

    Example:
        >>> tokens(["▁hello", "▁", "##ing"])
        ('hello', '␣', 'ing')
    """
    return tuple(word.replace("▁", " ").removeprefix("##").strip() or "␣" for word in words)


def _label_mean(n_layers: int, n_heads: int) -> str:
    n = n_layers * n_heads
    if n == 1:
        return ""
    return f"mean of {n} heads" + (f", {n_heads} per layer" if n_layers > 1 else "")


def _check_index(name: str, index: int, n: int, plural: str) -> None:
    if not (type(index) is int and 0 <= index < n):
        there = f"between 0 and {n - 1}, there are {n} {plural}" if n > 1 else "0, there is only one"
        raise ValueError(f"{name} must be {there}, got {index}; leave it out for the mean of all")
