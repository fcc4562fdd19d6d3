"""A Transformer decoder, one token at a time, for all hypotheses of all inputs at once.

    state = begin(decoder, memory)                 # keys and values of the memory: projected once
    state = state.branch(5)                        # five beams for each input
    x, state = advance(decoder, x, state)          # (B * K, E): what the decoder makes of the next token
    state = state.reorder(rows)                    # each beam goes on from the one that it continues

Rows are laid out (B, K), the K hypotheses of an input side by side, and what belongs to an input is kept
once for all of them: its memory is never copied for a beam, and one product serves K queries.

Nor is the past ever moved. The keys and values of all tokens that were tried lie in one cache a layer, in
the order in which they were tried; the hypotheses of an input form a tree over them, and a bias of 0 and
-inf says which of them are a hypothesis's own past. To reorder beams is to reorder that small table.

B inputs, K hypotheses of each, N = B * K rows, C tokens tried so far (K a step), S the length of the memory.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.cache import Cache
from sightline.edit.edit import is_editing, on_behalf
from sightline.shapes import Bool, Float, Int

__all__ = ["DecoderState", "advance", "begin", "keys_and_values", "padding_bias"]

Rotate = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class DecoderState:
    """What the decoder has read so far; immutable, as the decoding protocol requires.

    Attributes:
        memory: Keys and values of what was encoded, for each layer, (B, H, S, D) each.
        memory_bias: -inf where not to look in it, else 0; None to look everywhere.
        width: Hypotheses of each input, K.
        length: Tokens read by each hypothesis.
        weight_layers: The layers whose weights are handed out.
        attention_weights: Their weights in the last step, (N, H of all those layers, S).
    """

    memory: tuple[tuple[Tensor, Tensor], ...]
    memory_bias: Float[Tensor, "B 1 1 S"] | None
    width: int
    length: int
    weight_layers: tuple[int, ...]
    attention_weights: Float[Tensor, "N H S"] | None
    _past: tuple[Cache, ...]
    _paths: Float[Tensor, "B K W"] | None  # W >= C; None: one hypothesis, all that was tried is its past

    def __len__(self) -> int:
        """How many rows there are, N."""
        return self.memory[0][0].size(0) * self.width

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.memory[0][0].device

    @property
    def n_tried(self) -> int:
        """Tokens tried so far by all hypotheses of an input, C."""
        return len(self._past[0])

    def select(self, rows: Int[Tensor, " M"]) -> "DecoderState":
        """The state of any rows, in this order, each with a memory and a past of its own from here on."""
        inputs = rows // self.width
        paths = None
        if self._paths is not None:
            paths = self._paths.flatten(0, 1)[rows].unsqueeze(1)
        return replace(
            self,
            memory=tuple((k[inputs], v[inputs]) for k, v in self.memory),
            memory_bias=None if self.memory_bias is None else self.memory_bias[inputs],
            width=1,
            attention_weights=None if self.attention_weights is None else self.attention_weights[rows],
            _past=tuple(cache.select(inputs) for cache in self._past),
            _paths=paths,
        )

    def branch(self, width: int) -> "DecoderState":
        """Each row ``width`` times, side by side; what was encoded stays shared."""
        if width == 1:
            return self
        paths = self._paths
        if paths is None:
            k, _ = self.memory[0]
            paths = k.new_zeros(k.size(0), 1, self.n_tried)
        attention_weights = self.attention_weights
        return replace(
            self,
            width=self.width * width,
            attention_weights=None
            if attention_weights is None
            else attention_weights.repeat_interleave(width, 0),
            _paths=paths.repeat_interleave(width, 1),
        )

    def reorder(self, rows: Int[Tensor, " N"]) -> "DecoderState":
        """Each row goes on from another one (or the same) of the same input."""
        if self._paths is None:
            return self
        return replace(
            self,
            attention_weights=None if self.attention_weights is None else self.attention_weights[rows],
            _paths=self._paths.flatten(0, 1)[rows].view_as(self._paths),
        )


def begin(
    decoder: nn.TransformerDecoder,
    memory: Float[Tensor, "B S C"],
    mask: Bool[Tensor, "B S"] | None = None,
    *,
    look: Sequence[int] = (),
) -> DecoderState:
    """The state before the first token, with the memory's keys and values of every layer.

    Args:
        decoder: A stack of torch's layers or of ours.
        memory: What was encoded, as :func:`keys_and_values` takes it.
        mask: True where a decoder may look; None for everywhere.
        look: The layers whose weights over the memory are wanted.
    """
    layers = list(decoder.layers)
    b, s, _ = memory.shape
    e, h = layers[0].multihead_attn.embed_dim, layers[0].multihead_attn.num_heads
    key, value = keys_and_values(memory, e)
    projected = []
    for layer in layers:
        if key is value:
            kv = F.linear(memory, *_projection(layer.multihead_attn, slice(e, None)))
        else:
            k = F.linear(key, *_projection(layer.multihead_attn, slice(e, 2 * e)))
            v = F.linear(value, *_projection(layer.multihead_attn, slice(2 * e, None)))
            kv = torch.cat([k, v], dim=-1)
        k, v = kv.view(b, s, 2, h, e // h).permute(2, 0, 3, 1, 4).contiguous()  # once, so that no step has to
        projected.append((k, v))
    memory_bias = None if mask is None else padding_bias(mask, memory.dtype)[None, None].permute(2, 0, 1, 3)
    return DecoderState(
        memory=tuple(projected),
        memory_bias=memory_bias,
        width=1,
        length=0,
        weight_layers=tuple(range(len(layers))[i] for i in look),
        attention_weights=None,
        _past=(Cache(),) * len(layers),
        _paths=None,
    )


def keys_and_values(
    memory: Float[Tensor, "B S C"], d_model: int
) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B S E"]]:
    """The inputs of the key and value projections: the memory for both, or one half for each.

    Example:
        >>> key, value = keys_and_values(torch.zeros(1, 7, 5), 5)
        >>> key is value, [half.shape[-1] for half in keys_and_values(torch.zeros(1, 7, 10), 5)]
        (True, [5, 5])
    """
    if memory.size(-1) != 2 * d_model:
        return memory, memory
    return memory[..., :d_model], memory[..., d_model:]


def advance(
    decoder: nn.TransformerDecoder,
    x: Float[Tensor, "N E"],
    state: DecoderState,
    *,
    rotate: Rotate | None = None,
) -> tuple[Float[Tensor, "N E"], DecoderState]:
    """Decode one more token in every row; the numbers are those of a full forward pass.

    Args:
        decoder: The stack that the state was begun with. Its dropout is off, as in eval.
        x: The embedded tokens, with their positions.
        state: What was read before.
        rotate: Rotates queries and keys by their position, ``rotate(x (..., 1, D), offset)``.
    """
    if x.size(0) != len(state):
        raise ValueError(f"a step reads a token in each of the state's {len(state)} rows, got {x.size(0)}")
    paths = _extended_paths(state)
    bias = None if paths is None else paths[:, None, :, : state.n_tried + state.width]  # (B, 1, K, C)
    past: list[Cache] = []
    weights_of_layers = []
    editing = is_editing()
    for i, layer in enumerate(decoder.layers):

        def self_attend(x: Tensor, i: int = i, layer: Any = layer) -> Tensor:
            q, k, v = _project_qkv(layer.self_attn, x, state, rotate)
            past.append(state._past[i].append(k, v))  # noqa: SLF001
            edited = on_behalf(layer.self_attn, in_order=bias is None) if editing else None
            context, _ = _attend(q, past[i].k, past[i].v, bias, edited)
            return _merge_heads(layer.self_attn, context)

        def cross_attend(x: Tensor, i: int = i, layer: Any = layer) -> Tensor:
            weight, b = _projection(layer.multihead_attn, slice(x.size(-1)))
            q = _split_heads(F.linear(x, weight, b), layer.multihead_attn.num_heads, state.width)
            seen = i in state.weight_layers
            edited = on_behalf(layer.multihead_attn, n_beams=state.width) if editing else None
            context, weights = _attend(q, *state.memory[i], state.memory_bias, edited, need_weights=seen)
            if weights is not None:
                weights_of_layers.append(weights)
            return _merge_heads(layer.multihead_attn, context)

        def feed_forward(x: Tensor, layer: Any = layer) -> Tensor:
            return layer.linear2(layer.activation(layer.linear1(x)))

        if layer.norm_first:
            x = x + self_attend(layer.norm1(x))
            x = x + cross_attend(layer.norm2(x))
            x = x + feed_forward(layer.norm3(x))
        else:
            x = layer.norm1(x + self_attend(x))
            x = layer.norm2(x + cross_attend(x))
            x = layer.norm3(x + feed_forward(x))
    if decoder.norm is not None:
        x = decoder.norm(x)
    attention_weights = None
    if weights_of_layers:
        weights = torch.cat(weights_of_layers, dim=1)  # (B, H of all layers, K, S)
        attention_weights = weights.transpose(1, 2).flatten(0, 1)
    new = replace(
        state,
        length=state.length + 1,
        attention_weights=attention_weights,
        _past=tuple(past),
        _paths=paths,
    )
    return x, new


def _extended_paths(state: DecoderState) -> Tensor | None:
    """The paths, each with the token that is about to be read; W is C + K or a little more."""
    paths, c, k = state._paths, state.n_tried, state.width  # noqa: SLF001
    if paths is None:
        return None
    new = _aligned(c + k) - c
    own = paths.new_full((k, new), -torch.inf).fill_diagonal_(0.0)
    return torch.cat([paths[:, :, :c], own.expand(paths.size(0), k, new)], dim=2)


def padding_bias(real: Bool[Tensor, "B S"], dtype: torch.dtype) -> Float[Tensor, "B S"]:
    """The attention bias of a padding mask: zero where a token is real, minus infinity elsewhere.

    Example:
        >>> padding_bias(torch.tensor([[True, False]]), torch.float32)
        tensor([[0., -inf]])
    """
    b, s = real.shape
    wide = torch.zeros(b, _aligned(s), dtype=dtype, device=real.device)
    return wide[:, :s].masked_fill_(~real, -torch.inf)


def _aligned(length: int) -> int:
    """Room for a row of a bias: a GPU's kernels want rows at multiples of 8, or copy it in every layer."""
    return -(-length // 8) * 8


def _project_qkv(
    attention: Any, x: Float[Tensor, "N E"], state: DecoderState, rotate: Rotate | None
) -> tuple[Float[Tensor, "B H K D"], Float[Tensor, "B H K D"], Float[Tensor, "B H K D"]]:
    """Queries, keys and values of the token just read: one product."""
    h, k = attention.num_heads, state.width
    qkv = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    qkv = qkv.view(-1, k, 3, h, x.size(-1) // h).permute(2, 0, 3, 1, 4)  # (3, B, H, K, D)
    if rotate is None:
        return qkv[0], qkv[1], qkv[2]
    rotated = rotate(qkv[:2].unsqueeze(-2), state.length).squeeze(-2)
    return rotated[0], rotated[1], qkv[2]


def _attend(
    q: Float[Tensor, "B H K D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    bias: Float[Tensor, "B 1 #K S"] | None,
    edited: AbstractContextManager[None] | None,
    *,
    need_weights: bool = False,
) -> tuple[Float[Tensor, "B H K D"], Float[Tensor, "B H K S"] | None]:
    """Attend with a handful of queries. On a CPU two plain products beat the fused kernel (2 to 3 times)."""
    if edited is not None:
        with edited:
            return _attend_edited(q, k, v, bias, need_weights)
    if q.is_cuda and not need_weights:
        return F.scaled_dot_product_attention(q, k, v, bias), None
    scores = (q * q.size(-1) ** -0.5) @ k.mT
    if bias is not None:
        scores += bias
    weights = scores.softmax(-1)
    return weights @ v, weights if need_weights else None


def _attend_edited(
    q: Float[Tensor, "B H K D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    bias: Float[Tensor, "B 1 #K S"] | None,
    need_weights: bool,
) -> tuple[Float[Tensor, "B H K D"], Float[Tensor, "B H K S"] | None]:
    """The same by a call that ``sl.edit`` changes; weights are what it makes of values that mark one key."""
    context = F.scaled_dot_product_attention(q, k, v, bias)
    if not need_weights:
        return context, None
    one_key = torch.eye(k.size(2), dtype=v.dtype, device=v.device).expand(*k.shape[:3], -1)
    return context, F.scaled_dot_product_attention(q, k, one_key, bias)


def _split_heads(x: Float[Tensor, "N E"], h: int, k: int) -> Float[Tensor, "B H K D"]:
    return x.view(-1, k, h, x.size(-1) // h).transpose(1, 2)


def _merge_heads(attention: Any, context: Float[Tensor, "B H K D"]) -> Float[Tensor, "N E"]:
    return attention.out_proj(context.transpose(1, 2).flatten(2).flatten(0, 1))


def _projection(attention: Any, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Some rows of the joint input projection: the queries', or the keys' and values'."""
    bias = attention.in_proj_bias
    return attention.in_proj_weight[rows], None if bias is None else bias[rows]
