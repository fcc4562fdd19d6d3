"""Compile for a Hopper GPU, without one, what each question would launch, and compare it with what is kept.

    python3 -m venv lock && lock/bin/pip install torch==2.13.0 triton==3.6.*     # the CPU's torch is enough
    lock/bin/python -m workshop.kernel_lock --check
    lock/bin/python -m workshop.kernel_lock --write

Each of the requests in `requests.py` is asked through public names. The package takes the tensors of the CPU
for those of an H200; a launch is compiled and written down instead: the kernel, its grid, the kinds and
values of its arguments, and a SHA-256 of its PTX. The answers are never computed, so none is looked at.
`lock.json` keeps what came out: a change that should only move code leaves it as it is.

A reduction that Triton 3.6 and 3.7 compile into a wrong one (see `reductions.py`) is an error in any launch.
What is not seen: how a launch is replayed (`plans`, `prepared`), and how long it takes.
"""

import argparse
import sys

from workshop.kernel_lock import lock


def main() -> int:
    """Write or check the lock; 1 if something differs or is compiled wrong."""
    parser = argparse.ArgumentParser(
        prog="workshop.kernel_lock", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="keep what comes out now")
    parser.add_argument("--check", action="store_true", help="compare with what is kept (the default)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the requests whose names hold this text")
    options = parser.parse_args()
    found = lock.record(options.only)
    wrong = lock.miscompiled(found)
    print("".join(f"WRONG {line}\n" for line in wrong), end="")
    if options.write:
        lock.write(found, options.only)
        differ = []
    else:
        differ = lock.differences(lock.read(options.only), found)
    print("".join(f"{line}\n" for line in differ), end="")
    n = sum(map(len, found.values()))
    print(
        f"{len(found)} requests, {n} launches; {len(differ)} requests differ, {len(wrong)} wrong reductions"
    )
    return int(bool(wrong or differ))


if __name__ == "__main__":
    sys.exit(main())
