"""Write the golden files of the command line anew: ``python tests/golden/make.py``.

    flags.json    every command with its arguments and options: names, type, default, whether required
    help.json     the help texts of the same
    json.json     the shape of what each command prints with ``--json``: keys and types, no numbers

Do it only where a change of the command line is meant, and say in the change log what became of it.
"""

import io
import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from sightline.cli import main
from sightline.cli.app import LazyCommand, app

HERE = Path(__file__).parent
RUNS = HERE.parent / "fixtures" / "written_by_0_1"
BY_NAME = {
    "scores",
    "guesses",
    "layers",
    "splits",
    "problems",
    "counts",
}  # objects whose keys are data, not promised


def commands(command=None, name="sightline"):
    """Every command by its full name, groups before their members."""
    command = app() if command is None else command
    command = command.load() if isinstance(command, LazyCommand) else command
    yield name, command
    for inner, member in sorted(getattr(command, "commands", {}).items()):
        yield from commands(member, f"{name} {inner}")


def flags():
    """Arguments and options of every command, without their help."""
    return {name: [_flag(parameter) for parameter in command.params] for name, command in commands()}


def helps():
    """Help texts of every command and of its options."""
    return {
        name: {
            "": command.help or "",
            **{_names(p): p.help or "" for p in command.params if getattr(p, "help", None) is not None},
        }
        for name, command in commands()
    }


def shapes():
    """Keys and types of every ``--json``, by the run and the command as it was typed."""
    asked = json.loads((RUNS / "commands.json").read_text(encoding="utf-8"))["runs"]
    found = {}
    with tempfile.TemporaryDirectory() as place, chdir(place):
        Path("DATA").symlink_to(RUNS / "data")
        for run, described in asked.items():
            Path("RUN").symlink_to(RUNS / run / "finished")
            for words in described["asks"].values():
                found[f"{run}: {' '.join(words)}"] = shape(json.loads(printed(*words)))
            Path("RUN").unlink()
        _spoil(Path("DATA/pictures"), Path("spoiled"))
        for data in ("scenes", "dates", "DATA/pictures", "spoiled", "DATA/pairs"):
            words = ["data", "check", data, "--json"]
            found[" ".join(words)] = shape(json.loads(printed(*words)))
    return found


def shape(value, name=""):
    """A value with its numbers and words replaced by the names of their types.

    Example:
        >>> shape({"a": [1, 2], "b": None})
        {'a': ['int'], 'b': 'null'}
    """
    if isinstance(value, dict):
        inner = {key: shape(of_key, key) for key, of_key in value.items()}
        if name in BY_NAME and inner:
            return {"*": _merged(list(inner.values()))}
        return inner
    if isinstance(value, list):
        return [_merged([shape(x, name) for x in value])] if value else []
    return {type(None): "null", str: "str", bool: "bool", int: "int", float: "float"}[type(value)]


def printed(*words):
    """What a command prints on standard output."""
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(io.StringIO()) as err:
            main(list(words))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"sightline {' '.join(words)}: {err.getvalue()}") from ended
    return out.getvalue()


def written(golden):
    """JSON of two levels with a line for each entry of the second, so that a difference is a line."""
    parts = []
    for name, entries in golden.items():
        first, last = "[]" if isinstance(entries, list) else "{}"
        rows = [json.dumps(x, ensure_ascii=False) for x in entries]
        if isinstance(entries, dict):
            rows = [
                f"{row}: {json.dumps(entries[x], ensure_ascii=False)}"
                for row, x in zip(rows, entries, strict=True)
            ]
        inner = ",\n  ".join(rows)
        parts.append(f" {json.dumps(name, ensure_ascii=False)}: {first}\n  {inner}\n {last}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _spoil(pictures, place):
    """A copy of a set of pictures with one that is broken and one that is missing."""
    shutil.copytree(pictures, place)
    (place / "00.png").write_bytes(b"no picture")
    (place / "01.png").unlink()


def _merged(shapes):
    """The one shape that all have; where they differ, all of them."""
    distinct = [s for i, s in enumerate(shapes) if s not in shapes[:i]]
    return distinct[0] if len(distinct) == 1 else {"any of": sorted(distinct, key=json.dumps)}


def _flag(parameter):
    # What a field's own default is stands in its help: the parameter's None means "not typed".
    shown = re.search(r" \(default: (.*)\)\.$", getattr(parameter, "help", None) or "")
    return {
        parameter.param_type_name: _names(parameter),
        "type": parameter.metavar or parameter.type_descriptor.annotation.__name__,
        "default": shown[1] if shown else _default(parameter),
        "required": parameter.required,
        **({"many": True} if parameter.multiple or parameter.nargs != 1 else {}),
    }


def _default(parameter):
    said = getattr(parameter, "show_default", None)
    return said if isinstance(said, str) else _plain(parameter.default)


def _names(parameter):
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def _plain(value):
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


MAKERS = {"flags": flags, "help": helps, "json": shapes}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name, maker in MAKERS.items():
        (HERE / f"{name}.json").write_text(written(maker()), encoding="utf-8")
        sys.stdout.write(f"{HERE / name}.json\n")
