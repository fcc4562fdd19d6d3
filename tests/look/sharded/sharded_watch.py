# ruff: noqa: T201
"""What is seen of sharded attention on 2 and 4 processes, beside one process: the table of many_machines.md.

    python tests/look/sharded/sharded_watch.py                                # 2 and 4 processes, all cases
    python tests/look/sharded/sharded_watch.py --ranks 2 --cases ring ddp

Each process joins a gloo group on this machine's CPU. A row of the table has the largest difference, over all
ranks, layers and entries, between what the ranks have seen and what one process sees; of numbers above one,
as a share of them.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sharded_watch_cases as by_part
import sharded_watch_tokens as by_token
from sharded_ranks import on_ranks
from sharded_watch_cases import Row

CASES = {
    case.__name__: case
    for case in (
        by_part.ddp, by_part.fsdp, by_part.tp_local, by_part.tp_dtensor, by_part.fsdp_and_tp,
        by_token.torch_ring, by_token.torch_ring_and_tp, by_token.ring, by_token.large_scores,
        by_token.dtensors, by_token.dtensors_watched, by_part.pipeline,
    )
}  # fmt: skip


def try_cases(mesh: Any, names: list[str]) -> list[tuple[str, str, float]]:
    """One rank: the rows of all cases."""
    return [(row.case, row.statistic, row.error) for name in names for row in CASES[name](mesh)]


def run(world: int, names: list[str]) -> list[Row]:
    """The largest error of each statistic of each case, over so many ranks."""
    found: dict[tuple[str, str], float] = {}
    for rows in on_ranks(world, try_cases, names):
        for case, statistic, error in rows:
            found[case, statistic] = max(found.get((case, statistic), 0.0), error)
    return [Row(*key, error) for key, error in found.items()]


def table(by_world: dict[int, list[Row]]) -> str:
    """A line per case: the largest error of any of its statistics, float32 and float64 apart."""
    cases = dict.fromkeys(_plain(row.case) for rows in by_world.values() for row in rows)
    return _lines("case", by_world, list(cases), lambda row: _plain(row.case))


def statistics_table(by_world: dict[int, list[Row]]) -> str:
    """A line per statistic: the largest error in any case but that of large scores."""
    some = {n: [row for row in rows if "hundreds" not in row.case] for n, rows in by_world.items()}
    names = dict.fromkeys(row.statistic for rows in some.values() for row in rows)
    return _lines("statistic", some, list(names), lambda row: row.statistic)


def _plain(case: str) -> str:
    return case.removesuffix(", float64")


def _lines(what: str, by_world: dict[int, list[Row]], names: list[str], key: Callable[[Row], str]) -> str:
    head = " | ".join(f"{n} ranks | {n} ranks, float64" for n in by_world)
    lines = [f"| {what} | {head} |", "|---|" + "---|" * (2 * len(by_world))]
    for name in names:
        cells = []
        for rows in by_world.values():
            for double in (False, True):
                own = [row.error for row in rows if key(row) == name and ("float64" in row.case) == double]
                cells.append(f"{max(own):.0e}".replace("0e+00", "0") if own else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", help="write all rows here")
    options = parser.parse_args()
    by_world = {world: run(world, options.cases) for world in options.ranks}
    if options.json:
        rows = {world: [(r.case, r.statistic, r.error) for r in rows] for world, rows in by_world.items()}
        Path(options.json).write_text(json.dumps(rows))
    print(f"{table(by_world)}\n\n{statistics_table(by_world)}")


if __name__ == "__main__":
    main()
