"""The report for people: one line for each contestant of each case, ours with the ratio and a mark."""

import io

from sightline.bench.result import Outcome, Report, Result

COLUMNS = ("case", "contestant", "ms", "spread", "peak MB", "error", "ratio", "bar", "")
_NUMBERS = range(2, 8)


def text(report: Report, *, color: bool = False) -> str:
    """Give the table and its summary: by rich where it is installed, else as plain text."""
    try:
        from rich.console import Console  # noqa: PLC0415 - rich is an extra
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return plain(report)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if i in _NUMBERS else "left", no_wrap=True)
    for outcome in report.outcomes:
        style = "red" if outcome.faults else ""
        for cells in lines(outcome):
            table.add_row(*map(Text, cells), style=style if cells[7] or cells[8] else "")
    console = Console(file=io.StringIO(), width=1000, force_terminal=color)  # no name is cut short
    with console.capture() as captured:
        console.print(table)
    return captured.get() + summary(report)


def plain(report: Report) -> str:
    """Give the table and its summary as text."""
    rows = [COLUMNS, *(cells for outcome in report.outcomes for cells in lines(outcome))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    drawn = ""
    for row in rows:
        cells = (
            cell.rjust(width) if i in _NUMBERS else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        drawn += "  ".join(cells).rstrip() + "\n"
    return drawn + summary(report)


def lines(outcome: Outcome) -> list[tuple[str, ...]]:
    """Give the cells of each contestant's line; the first names the case."""
    rows: list[tuple[str, ...]] = []
    for i, result in enumerate(outcome.results or (Result(case=outcome.case, contestant="-"),)):
        ours = result.contestant == outcome.ours
        rows.append(
            (
                outcome.case if i == 0 else "",
                result.contestant,
                _number(result.milliseconds, ".3f"),
                _number(result.spread, ".0%"),
                _number(None if result.peak_bytes is None else result.peak_bytes / 1e6, ".1f"),
                _number(result.error, ".1e"),
                _ratio(outcome, result),
                _bar(outcome) if ours else "",
                ", ".join(outcome.faults).upper() if ours or (outcome.own is None and i == 0) else "",
            )
        )
    return rows


def summary(report: Report) -> str:
    """Say where it was measured, what fell short, and what a reader should know."""
    machine = report.machine
    named = ", ".join(machine["devices"].values())
    triton = f", triton {machine['triton']}" if machine["triton"] else ""
    load = f"; load {machine['load']}" if machine.get("load") is not None else ""
    busy = f", {machine['busy']} cores kept busy" if machine.get("busy") else ""
    summary_text = f"\n{named}; {machine['threads']} threads{load}{busy}; torch {machine['torch']}{triton}\n"
    summary_text += (
        "ratio: the best peer's time over ours, 1 or more is at least as fast, the bar is the least;\n"
        "with a peer's name: a time over that peer's, what seeing costs, the bar is the most;\n"
        "error: against float64\n"
    )
    for note, cases in _by_note(report).items():
        summary_text += (
            f"note: {note} ({cases[0] if len(cases) == 1 else f'{len(cases)} cases, first {cases[0]}'})\n"
        )
    total = len(report.outcomes)
    summary_text += f"{total - len(report.failing)} of {total} cases stand\n"
    for outcome in report.failing:
        summary_text += f"  {', '.join(outcome.faults)}: {outcome.case} {outcome.verdict}".rstrip() + "\n"
    return summary_text


def _by_note(report: Report) -> dict[str, list[str]]:
    notes: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        for note in outcome.notes:
            notes.setdefault(note, []).append(outcome.case)
    return notes


def _bar(outcome: Outcome) -> str:
    if outcome.memory_bar is not None:
        return f"{outcome.memory_bar / 1e6:.0f} MB"
    if outcome.cost_bar is not None:
        return "-" if outcome.cost_bar.most is None else f"at most {outcome.cost_bar.most:.2f}"
    return "-" if outcome.bar is None else f"at least {outcome.bar:.2f}"


def _ratio(outcome: Outcome, result: Result) -> str:
    """Ours over the peers; where a peer's time is the measure, everyone's time in times of it."""
    if outcome.cost_bar is None:
        return _number(outcome.ratio, ".2f") if result.contestant == outcome.ours else ""
    times = outcome.times(result)
    known = times is not None and result.contestant != outcome.cost_bar.peer
    return f"{times:.2f} x {outcome.cost_bar.peer}" if known else ""


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
