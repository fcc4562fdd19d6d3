"""The command line: one short file a command, gathered in ``app.py``."""

import sys
import warnings

# What a command may need beyond torch: an absent one is answered with the line that installs it.
_EXTRAS = ("matplotlib", "rich", "typer")


def main(args: list[str] | None = None) -> None:
    """Run ``sightline``. What a user gets wrong is answered by one sentence and exit code 2."""
    # An image between the library's limit and twice that is refused by a sentence of ours, said once.
    warnings.filterwarnings("ignore", message="Image size .* could be decompression bomb")
    try:
        from sightline.cli.app import app  # noqa: PLC0415  typer is an extra

        app(args, prog_name="sightline")
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if "pip install 'sightline[" in str(missing):  # a sentence already
            _refuse(str(missing))
        if package not in _EXTRAS:
            raise
        _refuse(f"the command line needs {package}, which is not installed; pip install 'sightline[cli]'")
    except (ValueError, TypeError, OSError) as problem:
        _refuse(str(problem))


def _refuse(sentence: str) -> None:
    sys.stderr.write(" ".join(sentence.split()) + "\n")
    sys.exit(2)
