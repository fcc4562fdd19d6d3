"""The weight that each query gives to groups of keys: attention to values that say who is in which group.

    mass[t, g] = Σ_s w[t, s] · [s in g] = (w @ members)[t, g]

So one fused call with the members as values gives it, exact, in O(T + S) memory, and with gradients. On a GPU
a kernel of its own does without that second product: see ``mass_plan``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sightline.attention.attend import attention
from sightline.attention.kernels import interpreted
from sightline.attention.masks import Mask
from sightline.look.groups import Groups, KeyGroups, Keys, key_index, read_groups
from sightline.look.inputs import ScoreInputs, Tile
from sightline.look.kernels.covers import covers
from sightline.look.tile_pass import over_tiles
from sightline.shapes import Float

if TYPE_CHECKING:
    from sightline.look.sight_data import SavedInputs, SightData

__all__ = ["columns", "mass", "unfitted"]

_FEW = 1 << 22  # with fewer pairs a head, laying out the keys takes longer than a second product


def mass(sight: "SightData", groups: Groups | KeyGroups) -> Float[Tensor, "... T G"]:
    """See :meth:`sightline.Sight.mass`."""
    kept = sight.require_kept("mass", history=True)
    groups = read_groups(groups, sight.s, kept[0].lse.device, sight.tokens)
    n, b = groups.n_items, kept[0].inputs.shape[0]
    if n not in (None, 1, b):
        raise ValueError(
            f"ids (B, S) must have a row for each of the B={b} items of the batch, got {n}; ids (S,) are "
            "the same for all"
        )
    return _sum_members(sight, kept, groups)


def columns(sight: "SightData", index: Keys | Sequence[int]) -> Float[Tensor, "... T n"]:
    """See :meth:`sightline.Sight.columns`."""
    chosen = key_index(index, sight.s, "columns")
    kept = sight.require_kept("columns", history=True)
    members = torch.zeros(sight.s, len(chosen), dtype=torch.bool)
    members[chosen, list(range(len(chosen)))] = True
    groups = KeyGroups(marks=members, names=tuple(map(str, chosen)), device=kept[0].lse.device)
    return _sum_members(sight, kept, groups)


def _sum_members(
    sight: "SightData", kept: "tuple[SavedInputs, ...]", groups: KeyGroups
) -> Float[Tensor, "... T G"]:
    parts = []
    for inputs, lse, first_key, _ in kept:  # a step of a loop has some of the keys
        t, s = inputs.shape[2:]
        if s == sight.s and (t * s >= _FEW or interpreted()) and covers(inputs, lse):
            parts.append(_by_kernel(inputs, lse, groups))
            continue
        shown = groups.members[..., first_key : first_key + s, :].to(inputs.dtype)
        parts.append(_fused(inputs, shown) if _is_fused(inputs) else _tiled(inputs, lse, shown))
    return sight.restore_queries(parts[0] if len(parts) == 1 else torch.cat(parts, dim=2))


def _by_kernel(inputs: ScoreInputs, lse: Tensor, groups: KeyGroups) -> Float[Tensor, "B H T G"]:
    from sightline.look.kernels import mass as on_gpu  # noqa: PLC0415

    plan = groups.plan(banded=bool(inputs.mask.bands), tile=on_gpu.keys_of_tile(inputs))
    return on_gpu.mass(inputs, lse, plan, len(groups.names))


def _is_fused(inputs: ScoreInputs) -> bool:
    """Whether its weights are those of a fused call; a score of half precision can't be given float32."""
    plain = inputs.modify is None and inputs.sink is None
    plain = plain and (inputs.score is None or inputs.q.dtype == inputs.dtype)
    return type(inputs) is ScoreInputs and plain


def _fused(inputs: ScoreInputs, members: Float[Tensor, "... S G"]) -> Float[Tensor, "B H T G"]:
    """Half precision rounds the inputs only: weights are summed in float32."""
    q, k = inputs.q, inputs.k
    values = members if members.dim() == 2 else members[:, None]
    values = values.expand(q.size(0), k.size(1), *members.shape[-2:])
    if members.size(-1) == 0:
        return q.new_zeros(*q.shape[:3], 0, dtype=inputs.dtype)
    with torch.set_grad_enabled(inputs.requires_grad):
        sums = attention(
            q.to(inputs.dtype),
            k.to(inputs.dtype),
            values,
            unfitted(inputs.mask),
            score=inputs.score,
            scale=inputs.scale,
        )
    return sums if inputs.padding is None else sums.masked_fill(inputs.padding.unsqueeze(-1), 0.0)


def unfitted(mask: Mask) -> Mask:
    """A fitted mask as one that attention can fit again."""
    return replace(mask, lengths=tuple(x[..., 0, 0] for x in mask.lengths))


def _tiled(inputs: ScoreInputs, lse: Tensor, members: Float[Tensor, "... S G"]) -> Float[Tensor, "B H T G"]:
    sums = lse.new_zeros(*lse.shape, members.size(-1))
    members = members if members.dim() == 2 else members[:, None]

    def ask(weights: Tensor, tile: Tile) -> Tensor:
        own = members if members.dim() == 2 or members.size(0) == 1 else members[tile.batch]
        return weights @ own[..., slice(*tile.columns), :]

    for tile, part in over_tiles(inputs, lse, ask):
        sums[tile.row_index] = part
    return sums
