"""``sightline`` and ``python -m sightline``: the command line, deaf to nothing from its first line on."""

# The bare one: ``signal`` itself imports for some milliseconds.
import _signal  # type: ignore[import-not-found]

_HEARD = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # not where a shell ignores it

# While the command is imported nothing has begun: Ctrl-C ends the process as it ends one in C, in silence.
if _HEARD:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Import the command line, and from there on let Ctrl-C be answered by it."""
    from sightline.cli import import_commands  # noqa: PLC0415
    from sightline.cli import main as command  # noqa: PLC0415

    import_commands()
    if _HEARD:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
