"""``python -m benchmarks look``: measure the cases of one bench and print them as a table."""

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.busy import busy_cores
from benchmarks.harness import Case, machine, measure, table

BENCHES = {
    "attention": "sl.attention and the modules of sl.nn beside torch's",
    "look": "attention measured beside the kernel alone and beside eager attention; further questions",
    "watch": "whole models watched, alone, and asked for their weights",
    "additive": "attention by additive scores beside the equation in PyTorch",
    "decode": "beam search beside Hugging Face's generate and a loop without a cache",
    "train": "a training step beside the same model on torch.nn's layers",
}
SECONDS = {"cpu": 1.0, "cuda": 0.5}  # for the laps of a case


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print; returns the exit code."""
    listed = "\n".join(f"  {name:10}{what}" for name, what in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=listed, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], help="default: the CPU, then the GPU if there is one"
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out long inputs, take a fifth of the time"
    )
    parser.add_argument(
        "--only", metavar="PATTERN", default="", help="cases whose name contains this; * is anything"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the results there, again after each case; - prints them"
    )
    parser.add_argument("--seconds", type=float, help="for the laps of each case")
    parser.add_argument("--busy", action="store_true", help="keep every core busy with a process of its own")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} sees no GPU; take --device cpu")
    if options.seconds is not None and not 0 < options.seconds < 3600:
        parser.error(f"--seconds must be above 0 and below 3600, got {options.seconds}")
    if options.json not in {None, "-"} and not Path(options.json).parent.is_dir():
        parser.error(f"--json {options.json} is in a folder that does not exist")
    chosen = _chosen(options)
    if not chosen:
        parser.error(f"no case of {options.bench} matches {options.only!r}")
    report = _measured(options, chosen)
    text = json.dumps(report, indent=1) + "\n"
    sys.stdout.write(text if options.json == "-" else table(report))
    return 0


def _chosen(options: argparse.Namespace) -> list[tuple[torch.device, Case]]:
    both = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    cases = import_module(f"benchmarks.{options.bench}").cases
    devices = map(torch.device, [options.device] if options.device else both)
    listed = [(device, case) for device in devices for case in cases(device, options.quick)]
    pattern = f"*{options.only.lower()}*"
    return [(on, case) for on, case in listed if fnmatch.fnmatch(f"{on} {case.name}".lower(), pattern)]


def _measured(options: argparse.Namespace, chosen: list[tuple[torch.device, Case]]) -> dict[str, Any]:
    """Measure the cases one after the other; a run that is stopped leaves what it has."""
    with busy_cores() if options.busy else nullcontext(0) as busy:
        where = machine(list(dict.fromkeys(device for device, _ in chosen))) | {"busy": busy}
        report: dict[str, Any] = {"bench": options.bench, "machine": where, "cases": []}
        for n, (device, case) in enumerate(chosen, 1):
            sys.stderr.write(f"[{n}/{len(chosen)}] {device} {case.name} ... ")
            sys.stderr.flush()
            start = time.perf_counter()
            seconds = options.seconds or SECONDS[device.type] / (5 if options.quick else 1)
            outcome = measure(case, device, seconds)
            report["cases"].append(outcome | {"case": f"{device} {case.name}"})
            ratio = "" if outcome["ratio"] is None else f"{outcome['ratio']:.2f} x {outcome['peer']} "
            said = ", ".join(outcome["faults"]).upper()
            sys.stderr.write(f"{said} {ratio}({time.perf_counter() - start:.1f} s)\n".lstrip())
            if options.json not in {None, "-"}:
                Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


if __name__ == "__main__":
    sys.exit(main())
