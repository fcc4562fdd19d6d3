"""Run every example in turn, all in this Python, and stop at the first that fails.

Usage: python examples/run_all.py [FOLDER]          pictures go to FOLDER, else to runs/examples
"""

import contextlib
import io
import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    folder = sys.argv[1:]
    for script in sorted(Path(__file__).parent.glob("[0-9]*.py")):
        started, printed = time.perf_counter(), io.StringIO()
        sys.argv = [str(script), *folder]
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(str(script), run_name="__main__")
        except BaseException as ended:
            if not (isinstance(ended, SystemExit) and not ended.code):  # what is not installed is skipped
                print(f"{printed.getvalue()}\n{script.name} failed")
                raise
        said = printed.getvalue().strip() if printed.getvalue().startswith("skipped: ") else ""
        print(f"{script.name:28s} {time.perf_counter() - started:5.1f} s {said}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
