"""A sight in a few lines that a person can read."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from sightline.look.calls import UNKNOWN_PADDING
from sightline.look.uniform import even_attention

if TYPE_CHECKING:
    from sightline.look.sight import Sight

_QUICK = 1 << 24  # pairs whose mask may be read for a line of text


def describe(sight: "Sight") -> str:  # noqa: C901
    """What it is a sight of, how sharp it is, which key got most, and what it costs to keep."""
    of = f" of {sight.name}" if sight.name else ""
    lines = [f"Sight{of}: {_items_and_heads(sight)}, T={sight.t} queries, S={sight.s} keys"]
    if sight.shard is not None and sight.shard.queries is not None:
        lines.append(f"  this rank has {sight.shard}; gather() gives each rank all")
        lines.append(f"  measured  {', '.join(sight.statistics)}")
        return "\n".join(lines)
    if sight.shard is not None:
        lines.append(f"  this rank has {sight.shard}")
    is_known = sight.t and sight.s and _is_quick(sight) and sight.is_looking.any()
    even = even_attention(sight) if is_known else None
    if "entropy" in sight.statistics and sight.t:
        known = "" if even is None else f"; even is {_mean(even.entropy, sight):.3f}"
        lines.append(f"  entropy   {_range(sight, 'entropy', ' nats')}{known}")
    if "peak" in sight.statistics and sight.t:
        lines.append(f"  peak      {_range(sight, 'peak')}")
    if "received" in sight.statistics and sight.t and sight.s and not sight.received.isnan().any():
        share = sight.received.detach().double().reshape(-1, sight.s).mean(0)
        share /= sight.is_looking.double().reshape(-1, sight.t).sum(-1).mean().clamp(min=1)
        most = int(share.argmax())
        known = ""
        if even is not None:
            evenly = even.received.double().reshape(-1, sight.s).mean(0)
            known = f"; even is {evenly[most] / evenly.sum().clamp(min=1e-30):.1%}"
        lines.append(f"  received  most by key {most}, {share[most]:.1%} of all weight{known}")
    more = _measured_also(sight)
    if more:
        lines.append(f"  measured  also {' and '.join(more)}")
    if sight.source == "weights":
        lines.append("  read      off the weights that the model computed by hand")
    if sight.padding:
        lines.append(f"  padding   {padding_words(sight)}")
    if sight.kept:
        size = f"{sight.kept_nbytes / 1e6:.1f} MB"
        lines.append(f"  keeps     q and k, {size}, for maps, rows and tops; forget() lets them go")
    return "\n".join(lines)


def _items_and_heads(sight: "Sight") -> str:
    """Return the sizes of the batch and of the heads in words; a batch without heads has none to count."""
    n = sight.n_batch
    words = [_count(math.prod(sight.lead[:n]), "item")] if n or not sight.has_heads else []
    if sight.has_heads:
        words.append(_count(sight.lead[n], "head"))
    return ", ".join(words) + ", heads averaged" * sight.averaged


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def padding_words(sight: "Sight") -> str:
    """How many queries are padding, and who said so."""
    if sight.padding == UNKNOWN_PADDING:
        return (
            "not known: the mask that the model was called with has another length than the queries, and all "
            "of them count; say which are padding with sl.watch(attention_mask=...)"
        )
    n, of = count_padding(sight)
    return f"{n} of {of} queries are left out, as {sight.padding} says"


def count_padding(sight: "Sight") -> tuple[int, int]:
    """How many queries of all items are padding, and how many there are."""
    heads = (-1,) if sight.has_heads else ()
    n_items = math.prod(sight.lead[: sight.n_batch])
    hidden = sight.is_padding.reshape(n_items, *heads, sight.t)
    return int((hidden[:, 0] if heads else hidden).sum()), n_items * sight.t


def _is_quick(sight: "Sight") -> bool:
    """Whether what even attention would give is known without waiting."""
    return sight.t * sight.s <= _QUICK or not any(x.inputs.may_forbid for x in sight.kept)


def _mean(x: Tensor, sight: "Sight") -> float:
    """The mean over the queries that look at something."""
    looking = x[sight.is_looking]
    return float(looking.double().mean()) if looking.numel() else 0.0


def _range(sight: "Sight", name: str, unit: str = "") -> str:
    x = sight.statistics[name].detach().double()
    n_nan = int((x.isnan() & ~sight.is_padding).sum())
    nan = f"NaN for {n_nan} of {int((~sight.is_padding).sum())} queries of all heads"
    x = x[sight.is_looking]
    if not x.numel():
        return nan if n_nan else "no query looks at anything"
    known = f"{x.mean():.3f}{unit} on average, {x.min():.3f} to {x.max():.3f}"
    return f"{known}; {nan}" if n_nan else known


def _measured_also(sight: "Sight") -> list[str]:
    more = []
    if "map" in sight.statistics:
        more.append("a map of {} x {}".format(*sight.statistics["map"].shape[-2:]))
    if "top" in sight.statistics:
        more.append(f"the top {sight.statistics['top'].size(-1)}")
    return more + [name for name in sight.statistics if name in sight.axes]
