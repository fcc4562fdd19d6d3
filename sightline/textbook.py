"""The exercises this package grew from, under the names and arguments that their documents print.

    from sightline.textbook import PositionalEncoding, add_positional_encoding, attention_score, create_mask

Thin names over ``sl.reference``, ``sl.nn``, ``sl.positions`` and ``sl.show``, so that code written after the
documents runs as it stands; ``docs/lookup/textbook.md`` says where each line of them is here. Masks are the
documents': ones (or True) where a query may look, of any dtype.
"""

from typing import Any

import torch
from torch import Tensor

from sightline.attention import multihead, reference
from sightline.attention.masks import Mask, from_ones
from sightline.messages import check_integer, shortened
from sightline.positions import sinusoidal
from sightline.positions.checks import checked_table
from sightline.shapes import Bool, Float, Shaped, is_tensor, shown

__all__ = [
    "MultiHeadSelfAttention",
    "PositionalEncoding",
    "SelfAttention",
    "add_positional_encoding",
    "att_score",
    "attention_score",
    "create_mask",
    "scaled_dot_product_attention",
    "visualize_positional_encoding",
]


class PositionalEncoding:
    """The table of sinusoidal positions, one row per position.

    Args:
        d_model: Width of the embeddings, E.
        max_len: How many positions.

    Example:
        >>> PositionalEncoding(d_model=4, max_len=2).get_encoding()
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        check_integer("max_len", max_len, at_least=0)
        self.d_model, self.max_len = d_model, max_len
        self.positional_encoding: Float[Tensor, "max_len d_model"] = sinusoidal(max_len, d_model)

    def get_encoding(self) -> Float[Tensor, "max_len d_model"]:
        """The table."""
        return self.positional_encoding


def add_positional_encoding(
    word_embeddings: Float[Tensor, "B T E"], positional_encodings: Float[Tensor, "T E"]
) -> Float[Tensor, "B T E"]:
    """Add a position to every embedding; the table, ``(T, E)`` or ``(1, T, E)``, is shared by the batch.

    Raises:
        ValueError: If the table has another length or width.

    Example:
        >>> add_positional_encoding(torch.zeros(2, 3, 4), sl.positions.sinusoidal(3, 4))[1, 0].tolist()
        [0.0, 1.0, 0.0, 1.0]
    """
    is_tensor(word_embeddings, "word_embeddings")
    try:
        table = torch.as_tensor(positional_encodings)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            "positional_encodings must be a table (T, E) with rows of one length, got "
            f"{shortened(positional_encodings)}"
        ) from None
    if word_embeddings.is_floating_point() and word_embeddings.element_size() == 1:
        raise TypeError(
            f"word_embeddings must be floats of 16 bits or more, got {word_embeddings.dtype}; "
            "word_embeddings.float() makes them"
        )
    if table.device != word_embeddings.device:
        raise ValueError(
            "word_embeddings and positional_encodings must be on the same device, got "
            f"{word_embeddings.device} and {table.device}; move one with .to(device)"
        )
    if word_embeddings.shape[-2:] != table.shape[-2:]:
        raise ValueError(
            "word_embeddings (B, T, E) and positional_encodings (T, E) must have the same length and width, "
            f"got {shown(word_embeddings=word_embeddings, positional_encodings=table)}; "
            "PositionalEncoding(d_model=E, max_len=T) makes a table that fits, positional_encodings[:T] a "
            "shorter one"
        )
    return word_embeddings + table


def visualize_positional_encoding(PE: Any) -> Any:  # noqa: N803
    """Draw a table of positions, a tensor or an array, as a heatmap; returns the figure.

    Where a window can be opened the heatmap is in it, and a program waits until it is closed, as with the
    document's ``plt.show()``; a notebook shows the figure that is returned. Without either nothing is to be
    seen: ``visualize_positional_encoding(PE).savefig("positions.png")`` writes it.

    Raises:
        ImportError: If matplotlib is not installed; the sentence names the extra.

    Example:
        >>> len(visualize_positional_encoding(sl.positions.sinusoidal(8, 6)).axes) > 0
        True
    """
    from sightline import show  # noqa: PLC0415 - matplotlib, which the exercises need here alone
    from sightline.show.display import DisplayFigure, is_notebook  # noqa: PLC0415

    figure = show.positions(PE)
    if isinstance(figure, DisplayFigure) and not is_notebook():
        figure.show(warn=False, wait=True)
    return figure


def att_score(
    Q: Float[Tensor, "*B T d_k"],  # noqa: N803
    K: Float[Tensor, "*B S d_k"],  # noqa: N803
    V: Float[Tensor, "*B S d_v"],  # noqa: N803
) -> tuple[Float[Tensor, "*B T d_v"], Float[Tensor, "*B T S"]]:
    """Scaled dot-product attention without a mask: ``(output, weights)``.

    Example:
        >>> output, weights = att_score(torch.zeros(2, 3), torch.zeros(5, 3), torch.ones(5, 7))
        >>> output.shape, weights[0, 0].item()
        (torch.Size([2, 7]), 0.20000000298023224)
    """
    return reference.scaled_dot_product_attention(Q, K, V)


def create_mask(seq_len: int) -> Bool[Tensor, "seq_len seq_len"]:
    """The lower triangle: each position may look at itself and the past.

    Example:
        >>> create_mask(seq_len=3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    check_integer("seq_len", seq_len, at_least=0)
    checked_table(seq_len, seq_len)
    return torch.ones(seq_len, seq_len, dtype=torch.bool).tril()


def attention_score(
    Q: Float[Tensor, "*B T d_k"],  # noqa: N803
    K: Float[Tensor, "*B S d_k"],  # noqa: N803
    V: Float[Tensor, "*B S d_v"],  # noqa: N803
    mask: Shaped[Tensor, "..."] | Mask | None = None,
) -> tuple[Float[Tensor, "*B T d_v"], Float[Tensor, "*B T S"]]:
    """Scaled dot-product attention under a mask: ``(output, weights)``.

    A row that may look nowhere gets weights of zero, where the document's ``-1e10`` gives all keys the same.

    Example:
        >>> q = k = v = torch.eye(2)[None]
        >>> attention_score(q, k, v, create_mask(2))[1][0, 0].tolist()
        [1.0, 0.0]
    """
    return reference.scaled_dot_product_attention(Q, K, V, mask)


def scaled_dot_product_attention(
    Q: Float[Tensor, "*B T d_k"],  # noqa: N803
    K: Float[Tensor, "*B S d_k"],  # noqa: N803
    V: Float[Tensor, "*B S d_v"],  # noqa: N803
    mask: Shaped[Tensor, "..."] | Mask | None = None,
) -> tuple[Float[Tensor, "*B T d_v"], Float[Tensor, "*B T S"]]:
    """The same under its other name, with a mask of the batch size and block size, too.

    A mask ``(B, S)`` says for every item which keys are real, as ``(B, 1, S)`` does; ``(T, S)`` is the same
    for all items.

    Raises:
        ValueError: If B = T, and a mask of two dimensions could be either.

    Example:
        >>> q, k, v = torch.randn(3, 2, 5, 4)
        >>> real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
        >>> scaled_dot_product_attention(q, k, v, real)[1][0, :, 3:].sum().item()
        0.0
    """
    return reference.scaled_dot_product_attention(Q, K, V, _of_items(mask, Q))


class SelfAttention(multihead.SelfAttention):
    """``sl.nn.SelfAttention`` with the documents' arguments: ``X``, and a mask of ones and zeros.

    Example:
        >>> SelfAttention(3, 5, 7)(torch.randn(2, 4, 3)).shape
        torch.Size([2, 4, 7])
    """

    def forward(self, X: Float[Tensor, "... T d_in"], mask: Any = None) -> Float[Tensor, "... T d_v"]:  # noqa: N803
        """Mix the sequence with itself."""
        return super().forward(X, _read(mask))


class MultiHeadSelfAttention(multihead.MultiHeadSelfAttention):
    """``sl.nn.MultiHeadSelfAttention`` with the documents' arguments: ``X``, and a mask of ones and zeros.

    Example:
        >>> MultiHeadSelfAttention(6, 6, 6, 2)(torch.randn(2, 4, 6)).shape
        torch.Size([2, 4, 6])
    """

    def forward(self, X: Float[Tensor, "... T d_in"], mask: Any = None) -> Float[Tensor, "... T d_v"]:  # noqa: N803
        """Attend with every head and join the results."""
        return super().forward(X, _read(mask))


def _of_items(mask: Any, q: Any) -> Any:
    """(B, S) -> (B, 1, S), where that can be told from (T, S)."""
    if not (isinstance(mask, Tensor) and isinstance(q, Tensor) and mask.dim() == 2 and q.dim() == 3):
        return mask
    b, t = q.shape[:2]
    if mask.size(0) != b or b == 1:
        return mask
    if b == t:
        raise ValueError(
            "a mask of two dimensions is (batch size, keys) or (queries, keys), which must differ in size, "
            f"got {tuple(mask.shape)} for batch size {b} and block size {t}; write mask[:, None] for the "
            "first and mask[None] for the second"
        )
    return mask[:, None]


def _read(mask: Shaped[Tensor, "..."] | Mask | None) -> Mask | None:
    return mask if mask is None or isinstance(mask, Mask) else from_ones(mask)
