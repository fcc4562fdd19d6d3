"""What was seen of a model as text: lines for a terminal, a table for a notebook, sentences for a warning."""

import html
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sightline.look.calls import UNKNOWN_PADDING
from sightline.look.describe import count_padding

if TYPE_CHECKING:
    from sightline.look.recording import Recording
    from sightline.look.sight import Sight
    from sightline.watch.modules import ModuleResolver

__all__ = ["by_reason", "closing_words", "seen_lines", "seen_sizes", "seen_table"]


def seen_lines(seen: "Recording", summary: str) -> str:
    """A line for each module, below one for all of them."""
    lines = [f"Recording: {summary}"]
    width = max(map(len, seen.names()))
    for name, sights in seen.items():
        last = sights[-1]
        facts = [f"{len(sights)} calls" if len(sights) > 1 else "1 call", f"T={last.t} S={last.s}"]
        if last.shard is not None:
            facts.append(f"this rank has {last.shard}")
        facts += [f"{x} {_mean(last, x):.3f}" for x in ("entropy", "peak") if x in last.statistics]
        lines.append(f"  {name or '(the model itself)':<{width}}  {', '.join(facts)}")
    lines += _padding_lines(seen)
    unseen = seen.unseen()
    if unseen:
        lines.append(f"  not seen: {len(unseen)}, {seen.list_unseen(unseen)}")
    return "\n".join(lines)


def _padding_lines(seen: "Recording") -> Iterator[str]:
    """How many queries were left out of all sights together, a line for each who said so."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for sight in itertools.chain.from_iterable(calls for _, calls in seen.items()):
        if sight.padding:
            counts.setdefault(sight.padding, []).append(count_padding(sight))
    for source, found in counts.items():
        n, of = (sum(x) for x in zip(*found, strict=True))
        if source == UNKNOWN_PADDING:
            yield f"  padding: not known for {of} queries, all of them count; say it with attention_mask="
        else:
            yield f"  padding: {n} of {of} queries are left out, as {source} says"


def seen_sizes(seen: "Recording") -> str:
    """Return the sizes of the first calls, for a sentence."""
    sizes = dict.fromkeys((x.lead[0] if x.lead else 1, x.t) for _, calls in seen.items() for x in calls)
    return ", ".join(f"B={b} T={t}" for b, t in list(sizes)[:3])


def seen_table(seen: "Recording") -> str:
    """HTML: a row for each module."""
    rows = "".join(
        f"<tr><td>{html.escape(name or '(the model itself)')}</td><td>{len(calls)}</td>"
        f"<td>{calls[-1].t}</td><td>{calls[-1].s}</td><td>{html.escape(calls[-1].source)}</td></tr>"
        for name, calls in seen.items()
    )
    head = "<tr><th>module</th><th>calls</th><th>T</th><th>S</th><th>read off</th></tr>"
    unseen = seen.unseen()
    note = f"<p>not seen: {html.escape(seen.list_unseen(unseen))}</p>" if unseen else ""
    return f"<table>{head}{rows}</table>{note}"


def closing_words(seen: "Recording", limit: int, owners: "ModuleResolver") -> Iterator[str]:
    """What a block has to say at its end, beside what could not be read.

    Args:
        seen: What was seen in it.
        limit: How many bytes of sights it was to collect.
        owners: The modules of its model.
    """
    if not seen.ran and owners.attentions:
        yield seen.explanation()
    if seen.full:
        yield (
            f"sights of more than {limit} bytes were collected, later calls are not "
            "measured; raise limit=, or ask for less with every=, layers= or measure="
        )
    for name, n in owners.nameless().items():
        yield (
            f"{n} attentions in compiled code are all called {name!r}, since none of their classes is "
            "named like attention; watch the model before it is compiled to tell them apart"
        )


def _mean(sight: "Sight", name: str) -> float:
    """The mean of a statistic over the queries that look at something; NaN where one of them is."""
    values = sight.statistics[name].detach()
    values = values[sight.is_looking | (values.isnan() & ~sight.is_padding)]
    return float(values.mean()) if values.numel() else 0.0


def by_reason(unseen: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """The first names of the modules that were not seen, by their reasons.

    Args:
        unseen: Why, by their names.
        kinds: The classes of modules that look like attention, by their names.
    """
    groups: dict[str, list[str]] = {}
    for name, reason in unseen.items():
        kind = kinds.get(name, "")
        groups.setdefault(reason, []).append(f"{name or 'the model itself'}{f' ({kind})' if kind else ''}")
    parts = []
    for reason, names in groups.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"{', '.join(names[:3])}{more} ({reason})")
    return "; ".join(parts)
