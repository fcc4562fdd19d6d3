"""What is missing is named with its remedy, in one sentence."""

import subprocess
from collections.abc import Callable


def refuses(extra: str, call: Callable[[], object]) -> None:
    """A call must end in an ImportError that names an extra."""
    try:
        call()
    except ImportError as missing:
        assert f"pip install 'sightline[{extra}]'" in str(missing), missing
        assert len(str(missing).splitlines()) == 1
    else:
        raise AssertionError(f"worked without sightline[{extra}]")


def command(*words: str, refused: str = "") -> str:
    """A command must work, or, where an extra is named, end in that one sentence and exit code 2."""
    done = subprocess.run(["sightline", *words], capture_output=True, text=True, check=False)  # noqa: S607
    if not refused:
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert f"pip install 'sightline[{refused}]'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
