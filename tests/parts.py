"""Run the parts of `make test`, each in a process of its own, and list what was skipped.

    python -m tests.parts                # all of them, three at a time
    python -m tests.parts shaped types   # these, one after the other

Each test runs once: those of a room under a hook that checks the shapes of all they call (shaped), those that
the hook would change (plain), kernels, which Triton could not read under it, and the other rooms, tasks and
commands among them (commands). A part has one process with one thread, so that what many tests import and
train is imported and trained once. They begin in the order of the table, the longest first: all wait for it.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "pytest")]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.name != "api.md")
COMMANDS = {
    "commands": [*PYTEST, "tests", "--part", "commands"],
    "types": [str(BIN / "mypy")],  # early, since it needs no torch while another part compiles it
    "shaped": [*PYTEST, "tests", "--jaxtyping-packages=sightline,tests.shape_hook.checked"],
    "plain": [*PYTEST, "tests", "--part", "plain"],
    "kernels": [*PYTEST, "tests", "--part", "kernels"],
    # the examples of docs/lookup/api.md are those of the docstrings
    "doctest": [*PYTEST, "--doctest-modules", "--doctest-glob=*.md", "sightline", "README.md", *PAGES],
    "examples": [sys.executable, "-W", "error", "examples/run_all.py"],
}
SKIPPED_EXAMPLE = re.compile(r"^.* skipped: (.*)$", re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(COMMANDS)}; all by default")
    parser.add_argument("--jobs", type=int, default=3, help="parts at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/parts", help="for what parts print")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in COMMANDS]:
        parser.error(f"there is no part {unknown[0]!r}; expected one of {', '.join(COMMANDS)}")
    codes = [started(name) for name in options.parts] or together(options.folder, options.jobs)
    sys.exit(int(any(codes)))


def started(name, *more, **streams):
    """Run a part to its end and return its exit code; all but the longest give way to other processes."""
    nice = ["nice", "-n", "0" if name == "commands" else "10"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*nice, *COMMANDS[name], *more], cwd=ROOT, env=env, check=False, **streams
    ).returncode


def together(folder, jobs):
    """Run all parts, some at a time; print what a part printed when it has ended, and at last the skips."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped = (folder / "skipped.txt").resolve()
    skipped.write_text("")
    print(f"what a part prints is in {folder}/PART.txt, and comes here when it has ended", flush=True)

    def run(name):
        with (folder / f"{name}.txt").open("w") as file:
            more = ["--note-skips", str(skipped)] if PYTEST[0] in COMMANDS[name] else []
            return name, started(name, *more, stdout=file, stderr=subprocess.STDOUT)

    codes, pool = {}, ThreadPoolExecutor(jobs)
    try:
        for each in as_completed([pool.submit(run, name) for name in COMMANDS]):
            name, codes[name] = each.result()
            text = (folder / f"{name}.txt").read_text(errors="replace")
            print(f"== {name}, exit code {codes[name]}\n{text}", end="", flush=True)
            if name == "examples":
                with skipped.open("a") as file:
                    file.writelines(f"{reason}\n" for reason in SKIPPED_EXAMPLE.findall(text))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C no further part begins
    print("== not tested here, how many and why")
    for reason, count in collections.Counter(skipped.read_text().splitlines()).most_common():
        print(f"{count:7} {reason}")
    return list(codes.values())


if __name__ == "__main__":
    main()
