"""Run every example in turn, each in a Python of its own, and stop at the first that fails.

Usage: python examples/run_all.py [FOLDER]          pictures go to FOLDER, else to runs/examples
"""

import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    warnings = [f"-W{option}" for option in sys.warnoptions]
    for script in sorted(Path(__file__).parent.glob("[0-9]*.py")):
        started = time.perf_counter()
        command = [sys.executable, *warnings, str(script), *sys.argv[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\n{script.name} failed, exit code {done.returncode}")
        print(f"{script.name:28s} {time.perf_counter() - started:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
