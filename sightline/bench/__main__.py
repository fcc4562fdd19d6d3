"""``python -m sightline.bench attention``: the bench where neither typer nor rich is installed."""

import argparse
import sys
from collections.abc import Sequence

from sightline.bench.command import BENCHES, HELP, STANDARD_OUTPUT, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sightline.bench", description=__doc__)
    parser.add_argument("bench", help=f"One of {', '.join(BENCHES)}.")
    parser.add_argument("--device", help=HELP["device"])
    parser.add_argument("--quick", action="store_true", help=HELP["quick"])
    parser.add_argument("--json", nargs="?", const=STANDARD_OUTPUT, metavar="FILE", help=HELP["json"])
    parser.add_argument("--only", metavar="PATTERN", help=HELP["only"])
    parser.add_argument("--model", metavar="KIND", help=HELP["model"])
    parser.add_argument("--budget", type=float, metavar="SECONDS", help=HELP["budget"])
    parser.add_argument("--busy", action="store_true", help=HELP["busy"])
    options = parser.parse_args(arguments)
    try:
        run(
            options.bench,
            device=options.device,
            quick=options.quick,
            json_to=options.json,
            only=options.only,
            model=options.model,
            budget=options.budget,
            busy=options.busy,
        )
    except ValueError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
