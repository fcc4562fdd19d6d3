"""What a rank has, read off DTensors, and off the parameters of a tensor-parallel module.

Torch's distributed packages are never imported here: where nobody has, nothing is spread.
"""

import sys
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn

from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.sharded.axes import Axis, Shard, Spans, chunked, head_tail
from sightline.watch.attention_call import UnreadableError
from sightline.watch.modules import count_heads

__all__ = ["HeadFinder", "Spread", "is_dtensor", "local", "may_be_sharded", "shard_of_module", "spread_of"]

_ITEMS, _HEADS, _SEQUENCE = 0, 1, 2
_UNKNOWN = (
    "its parameters are spread over processes and none of them says which heads these are: {}; "
    "seen.gather() can't put them together"
)


_SOME = (
    "it attended with {} of the {} heads that it says it has, and nothing says which; seen.gather() can't "
    "put them together"
)
_FLEX = (
    "its queries are this rank's and its keys those of all ranks, in the order of a load balancer, if there "
    "is one: received is what this rank's queries gave, and seen.gather() can't put it together"
)


class Spread(NamedTuple):
    """How q, k and v are spread.

    Attributes:
        shard: What is known of items and heads.
        group: The ranks that share the sequence; None if each has all of it.
        queries, keys: What each of those ranks has of it.
        mesh, placements: Those of q.
    """

    shard: Shard
    group: Any
    queries: tuple[Spans, ...]
    keys: tuple[Spans, ...]
    mesh: Any
    placements: tuple[Any, ...]


def is_dtensor(x: object) -> bool:
    """Whether a tensor is a DTensor."""
    return type(x).__name__ == "DTensor" and isinstance(x, Tensor)


def local(x: Any) -> Tensor:
    """This rank's part of a DTensor, which may still be on its way."""
    part = x._local_tensor  # noqa: SLF001
    wait = getattr(part, "wait", None)
    whole: Tensor = wait() if type(part).__name__ == "AsyncCollectiveTensor" and wait is not None else part
    return whole


def spread_of(q: Any, k: Any, *, balanced: bool = False) -> Spread:
    """How DTensors q and k, (B, H, length, D), are spread, or why that can't be read.

    Args:
        q, k: Both on one mesh.
        balanced: Whether torch's load balancer has put the sequence into its order.
    """
    if q.device_mesh != k.device_mesh or tuple(q.placements) != tuple(k.placements):
        raise UnreadableError(
            f"q is spread over processes as {_show(q)} and k as {_show(k)}; a look needs them alike, which "
            "k.redistribute(placements=q.placements) makes them"
        )
    mesh = q.device_mesh
    axes: dict[int, Axis | None] = {}
    group: Any = None
    parts: tuple[tuple[Spans, ...], tuple[Spans, ...]] = ((), ())
    for dim, placement in enumerate(q.placements):
        if placement.is_replicate():
            continue
        at = placement.dim if type(placement).__name__ == "Shard" else None
        if at not in (_ITEMS, _HEADS, _SEQUENCE) or at in axes:
            raise UnreadableError(
                f"it is spread over processes as {placement}, not by batch, heads or tokens"
            )
        ranks, own = mesh.size(dim), mesh.get_local_rank(dim)
        if at == _SEQUENCE:
            rule = head_tail if balanced else chunked
            group = mesh.get_group(dim)
            parts = rule(q.size(2), ranks), rule(k.size(2), ranks)
            axes[at] = None
            continue
        if at == _HEADS and (q.size(1) != k.size(1) and k.size(1) % ranks):
            raise UnreadableError(
                f"{q.size(1)} heads of q and {k.size(1)} of k don't share {ranks} processes evenly, so a "
                "rank's queries meet the keys of another"
            )
        spans = chunked(q.size(at), ranks)
        axes[at] = Axis(spans[own], q.size(at), spans, mesh.get_group(dim))
    shard = Shard(items=axes.get(_ITEMS), heads=axes.get(_HEADS))
    return Spread(shard, group, *parts, mesh, tuple(q.placements))


def may_be_sharded() -> bool:
    """Whether anything in this process may be spread over others."""
    return "torch.distributed.tensor" in sys.modules and dist.is_available() and dist.is_initialized()


class HeadFinder:
    """Which heads the calls of a model's modules have, found out once for each module."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int | None], Shard | None] = {}

    def __call__(self, module: nn.Module, seen: Tensor | ScoreInputs) -> Shard | None:
        """What a rank has of the heads of a call; None if all, as far as can be told.

        Args:
            module: The module that attends.
            seen: Its queries (B, H, T, D), or what was read of the call.
        """
        q = seen if isinstance(seen, Tensor) else seen.q
        if q.dim() != 4 or is_dtensor(q):
            return None
        width = None if isinstance(seen, PrecomputedWeights) else q.size(3)
        key = (id(module), q.size(1), width)
        if key not in self._known:
            self._known[key] = shard_of_module(module, q.size(1), width)
        return self._known[key]


def shard_of_module(module: nn.Module, n_heads: int, d_head: int | None) -> Shard | None:
    """Which heads a rank has whose module computes with its share of the parameters, as plain tensors.

    The parameter that makes the queries is the one whose local rows are as many as the local heads have:
    ``ColwiseParallel`` gives each rank a range of its rows, and where that range begins the first head does.

    Args:
        module: The module that attends; its parameters as they are while it runs. FSDP's are whole then.
        n_heads: How many heads the rank attended with.
        d_head: The width of each; None where the weights alone are known.

    Returns:
        None if nothing says that others have more: the rank has all heads.
    """
    if _gathers_keys(module):
        return Shard(note=_FLEX)
    found: dict[tuple[int, int], Axis] = {}
    spread = []
    for name, parameter, is_put_away in _parameters(module):
        placements = parameter.placements if is_dtensor(parameter) else ()
        dims = [i for i, x in enumerate(placements) if x.is_shard()]
        rows = [i for i in dims if placements[i].dim == 0]
        if is_put_away or len(dims) > 1:  # by FSDP; what tensor parallelism left of it can't be told
            spread += [name] if len(dims) > 1 else []
        elif rows:
            spread.append(name)
            axis = _rows_as_heads(parameter, rows[0], n_heads, d_head)
            if axis is not None:
                found[axis.own[0][0], axis.size] = axis
    if len(found) == 1:
        return Shard(heads=next(iter(found.values())))
    if spread:
        return Shard(note=_UNKNOWN.format(", ".join(spread[:3])))
    config = getattr(module, "config", None)
    whole = getattr(config, "num_attention_heads", None) or count_heads(module)
    if isinstance(whole, int) and whole > n_heads and whole % n_heads == 0:
        return Shard(note=_SOME.format(n_heads, whole))
    return None


def _gathers_keys(module: nn.Module) -> bool:
    """Whether torch's context parallelism hands a module the keys of all ranks, as it does FlexAttention."""
    hooks = (getattr(hook, "func", hook) for hook in module._forward_pre_hooks.values())  # noqa: SLF001
    return any(getattr(hook, "__qualname__", "").endswith("_ContextParallel.flex_input_fn") for hook in hooks)


def _rows_as_heads(parameter: Any, dim: int, n_heads: int, d_head: int | None) -> Axis | None:
    """The rows that a rank has of a parameter, as heads; None where they are not those of its queries."""
    mesh, rank = parameter.device_mesh, parameter.device_mesh.get_local_rank(dim)
    spans = [part[0] for part in chunked(parameter.size(0), mesh.size(dim))]
    own = spans[rank][1] - spans[rank][0]
    width = d_head or own // max(n_heads, 1)
    if not width or own != n_heads * width or any(edge % width for span in spans for edge in span):
        return None
    heads = tuple(((first // width, last // width),) for first, last in spans)
    return Axis(heads[rank], parameter.size(0) // width, heads, mesh.get_group(dim))


def _parameters(module: nn.Module) -> list[tuple[str, Any, bool]]:
    """The parameters of a module, and whether FSDP has put them away again, in modules of their own."""
    away: list[str] = []
    found = []
    for name, inner in module.named_modules():
        if inner is not module and _is_fsdp(inner):
            away.append(f"{name}.")
        is_away = f"{name}.".startswith(tuple(away)) if away else False
        for key, x in inner._parameters.items():  # noqa: SLF001
            found += [(f"{name}.{key}".strip("."), x, is_away)] if x is not None else []
    return found


def _is_fsdp(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def _show(x: Any) -> str:
    return f"({', '.join(map(str, x.placements))})"
