"""What tests reach of the package beyond its public names, read off the syntax trees."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS = ROOT / "sightline", ROOT / "tests"
# Modules whose names are documented; every other one may move.
PUBLIC = {
    "",
    "masks",
    "scores",
    "positions",
    "nn",
    "models",
    "show",
    "reference",
    "tasks",
    "textbook",
    "train",
    "cli",
}
ALLOWED = {"seams.py"}  # the one place where tests of public behaviour reach inside
_PRIVATE = re.compile(r"_[a-zA-Z]\w*")


def reaches(file, private):
    """The deep names that a file imports, and the private ones that it reads or patches, each once.

    Args:
        file: The file.
        private: The private names that there are in the package.
    """
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {x.name for x in node.names if is_deep(x.name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{x.name}" for x in node.names if is_deep(node.module, x.name)}
        elif isinstance(node, ast.Attribute) and node.attr in private and not is_own(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.Call):  # monkeypatch.setattr(module, "_name", ...)
            found |= {x.value for x in node.args if isinstance(x, ast.Constant) and x.value in private}
    return found


def is_deep(module, name=""):
    """Whether a module of ours, or a name in it, is none that is documented."""
    room, _, rest = module.partition(".")
    if room != "sightline":
        return False
    if rest not in PUBLIC:
        return True
    return name.startswith("_") or (not rest and name not in PUBLIC and (PACKAGE / name).exists())


def is_own(node):
    """Whether an attribute is one of the test's own object."""
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def private_names(package=PACKAGE):
    """The private names that the package defines: functions, classes, values, attributes."""
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in found if _PRIVATE.fullmatch(name)} - {"_C"}  # that is torch's


def all_reaches(tests=TESTS):
    """File -> how many such names, for those that have any."""
    private = private_names()
    files = {path.relative_to(tests).as_posix(): path for path in sorted(tests.rglob("*.py"))}
    found = {name: len(reaches(path, private)) for name, path in files.items() if name not in ALLOWED}
    return {name: n for name, n in found.items() if n}
