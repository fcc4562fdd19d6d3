"""A sight in a few lines that a person can read."""

import math

from sightline.look.padding import KNOWN, UNKNOWN
from sightline.look.sight import Sight

_PADDING = {
    KNOWN: "queries that are padding are left out",
    UNKNOWN: "if some queries are padding, they are counted; say which with attention_mask=",
}


def describe(sight: Sight) -> str:
    """What it is a sight of, how sharp it is, which key got most, and what it costs to keep."""
    lead = " x ".join(map(str, sight.shape)) or "1"
    what = "items, heads averaged" if sight.averaged else "heads"
    of = f" of {sight.name}" if sight.name else ""
    lines = [f"Sight{of}: {lead} {what}, T={sight.t} queries, S={sight.s} keys"]
    if "entropy" in sight.statistics and sight.t:
        even = f"even is {math.log(max(sight.s, 1)):.3f}"
        lines.append(f"  entropy   {_range(sight, 'entropy', ' nats')}; {even}")
    if "peak" in sight.statistics and sight.t:
        lines.append(f"  peak      {_range(sight, 'peak')}")
    if "received" in sight.statistics and sight.t and sight.s:
        share = sight.received.detach().double().reshape(-1, sight.s).mean(0)
        share /= sight.is_looking.double().reshape(-1, sight.t).sum(-1).mean().clamp(min=1)
        most = int(share.argmax())
        lines.append(
            f"  received  most by key {most}, {share[most]:.1%} of all weight; even is {1 / sight.s:.1%}"
        )
    more = _measured_also(sight)
    if more:
        lines.append(f"  measured  also {' and '.join(more)}")
    if sight.source == "weights":
        lines.append("  read      off the weights that the model computed by hand")
    if sight.padding in _PADDING:
        lines.append(f"  padding   {_PADDING[sight.padding]}")
    if sight.kept:
        size = f"{sight.kept_nbytes / 1e6:.1f} MB"
        lines.append(f"  keeps     q and k, {size}, for maps, rows and tops; forget() lets them go")
    return "\n".join(lines)


def _range(sight: Sight, name: str, unit: str = "") -> str:
    x = sight.statistics[name].detach().double()[sight.is_looking]
    if not x.numel():
        return "no query looks at anything"
    return f"{x.mean():.3f}{unit} on average, {x.min():.3f} to {x.max():.3f}"


def _measured_also(sight: Sight) -> list[str]:
    more = []
    if "map" in sight.statistics:
        more.append("a map of {} x {}".format(*sight.statistics["map"].shape[-2:]))
    if "top" in sight.statistics:
        more.append(f"the top {sight.statistics['top'].size(-1)}")
    return more
