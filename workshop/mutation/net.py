"""The net: the tests that reach the package through its public names alone.

    python -m workshop.mutation.net

prints every file of tests with how many of its test functions are of the net, and what the others reach.
`net.toml` lists the files from which `python -m workshop.mutation ROOM --net` takes a room's tests.

A test is of the net if it, and every helper and fixture that it uses, takes from `sightline` only what is
also at `sl.NAME` or `sl.MODULE.NAME`, or what a page of `docs` or `examples` imports, and names nothing else:
no private attribute that the package defines and no module in a string. `SEAMS` are helpers that may do so,
each for its one purpose, and `DOORS` the names of rooms that have none at `sl`.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
import re
import sys
import tomllib
import types

import sightline as sl
from workshop import ROOT

SEAMS = {
    "tests/attention/attend_oracle.py": "masked calls in blocks, at sizes that a test has time for",
    "tests/data/recorded.py": "how a data set is opened and checked, as one function",
}
DOORS = {
    ("sightline.cli", "main"): "the console script",
    ("sightline.decode.replay", "GraphReplay"): "a search, recorded",
    ("sightline.decode.search", "Hypotheses"): "what a search finds",
    ("sightline.decode.search", "beam"): "the searches over a model",
    ("sightline.decode.search", "greedy"): "the searches over a model",
    ("sightline.decode.search", "sample"): "the searches over a model",
    ("sightline.models.run_folder", "read_config"): "the settings that a run keeps",
}
_ASKED = set()
HOMES = ("sightline", "tests", "workshop", "benchmarks", "examples")


def files_of(room):
    """The files that have the tests of a room, from `net.toml`."""
    with (ROOT / "workshop/mutation/net.toml").open("rb") as file:
        return tomllib.load(file)[room]


def is_of_the_net(item):
    """Whether a collected test is one of the net; the examples of docstrings are not."""
    path = str(item.path.relative_to(ROOT))
    return hasattr(item, "originalname") and not reasons(path, item.originalname or item.name)


@functools.cache
def reasons(path, name):
    """What a function or class of a file of tests reaches that is not public, itself or by its helpers."""
    if path in SEAMS or (path, name) in _ASKED:  # helpers may need each other
        return ()
    _ASKED.add((path, name))
    found, seen, left = [], set(), [name, *_file(path).always]
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        if one not in _file(path).names:
            found += _of_conftest(path, one)
            continue
        for node in _file(path).names[one]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found += _imported(node, one)
                continue
            for inner in ast.walk(node):
                found += _reached(inner)
                left += _used(inner)
    return tuple(dict.fromkeys(found))


def _of_conftest(path, name):
    """The same of a fixture that is in a `conftest.py` of the test's folder or of one above."""
    for folder in (ROOT / path).parents:
        conftest = folder / "conftest.py"
        inside = str(conftest.relative_to(ROOT)) if conftest.exists() else ""
        if inside.startswith("tests") and inside != path and name in _file(inside).names:
            return reasons(inside, name)
        if folder == ROOT:
            break
    return ()


class _File:
    """What the names of a file of tests stand for; `always` are those that every test of it uses."""

    def __init__(self, path):
        self.names, self.always = {}, []
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            for name in _bound(node):
                self.names.setdefault(name, []).append(node)
            if isinstance(node, ast.FunctionDef) and "autouse=True" in ast.unparse(node).split("def ")[0]:
                self.always.append(node.name)
            self.always += [name for name in _bound(node) if name == "pytestmark"]


_file = functools.cache(_File)


def _bound(node):
    """The names that a statement of a module gives a meaning to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [name.asname or name.name.partition(".")[0] for name in node.names]
    return [x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def _used(node):
    """The names that a node uses; an argument may be a fixture."""
    if isinstance(node, ast.Name):
        return [node.id]
    return [node.arg] if isinstance(node, ast.arg) else []


def _reached(node):
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [x for name in _bound(node) for x in _imported(node, name)]
    if isinstance(node, ast.Attribute):
        return _attribute(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _text(node.value)
    return []


def _imported(node, name):
    """What an import of one name brings that is not public."""
    real = next(x.name for x in node.names if name == (x.asname or x.name.partition(".")[0]))
    module, inner = (node.module, real) if isinstance(node, ast.ImportFrom) else (real, None)
    if module is None or module.partition(".")[0] not in HOMES:
        return []
    if module.partition(".")[0] == "sightline":
        return [] if _is_public(module, inner) else [f"{module}:{inner}"]
    path = f"{module.replace('.', '/')}.py"
    if inner is not None and (ROOT / path).exists():
        return reasons(path, inner)
    whole = f"{module.replace('.', '/')}/{inner}.py"  # a module: all that it has
    return [x for y in _file(whole).names for x in reasons(whole, y)] if (ROOT / whole).exists() else []


def _is_public(module, name):
    """Whether `sl.NAME` or `sl.MODULE.NAME` is what is imported."""
    if (module, name) in DOORS or (module, name) in _documented():
        return True
    try:
        thing = importlib.import_module(module)
    except ImportError:
        return True  # a name that must not be there
    if module == "sightline":
        return name is None or name in sl.__all__ or name.startswith("__")
    if name is not None and importlib.util.find_spec(module).submodule_search_locations:
        with contextlib.suppress(ImportError):  # a module of its own, which nobody need have imported
            importlib.import_module(f"{module}.{name}")
    thing = thing if name is None else getattr(thing, name, None)
    return thing is None or id(thing) in _public_ids()


@functools.cache
def _documented():
    """What a page or an example imports from a module of its own, (module, name)."""
    pages = [ROOT / "README.md", *(x for y in ("docs", "examples") for x in (ROOT / y).rglob("*.*"))]
    texts = [x.read_text(encoding="utf-8") for x in pages if x.suffix in {".md", ".py", ".ipynb"}]
    lines = [x for text in texts for x in re.findall(r"from (sightline[.\w]*) import ([\w, ]+)", text)]
    return {(module, name.split()[0]) for module, names in lines for name in names.split(",")}


@functools.cache
def _public_ids():
    tops = [getattr(sl, name) for name in sl.__all__]
    modules = [x for x in tops if isinstance(x, types.ModuleType)]
    names = [(x, name) for x in modules for name in getattr(x, "__all__", vars(x)) if name[0] != "_"]
    inner = [x for x in (getattr(of, name) for of, name in names) if not isinstance(x, types.ModuleType)]
    return {id(x) for x in [*tops, *inner] if not isinstance(x, int | float | str)}


def _attribute(node):
    """A private attribute whose name the package uses, unless it is of an object of torch's."""
    text = ast.unparse(node)
    is_private = node.attr.startswith("_") and not node.attr.startswith(("__", "_repr_"))
    if is_private and node.attr in _private_names() and not text.startswith(("torch.", "self.")):
        return [text]
    parts = text.split(".")
    is_hidden = parts[0] == "sl" and len(parts) == 2 and parts[1] not in sl.__all__ and hasattr(sl, parts[1])
    return [text] if is_hidden and not parts[1].startswith("__") else []


@functools.cache
def _private_names():
    """Every private name that the package defines: a function, a class, or what is assigned to."""
    found = set()
    for path in (ROOT / "sightline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def _text(text):
    """The name of something in a module of the package, in a string: what is patched."""
    if not re.fullmatch(r"sightline(\.\w+){2,}", text):
        return []
    inside = ROOT / text.rpartition(".")[0].replace(".", "/")
    return [repr(text)] if inside.is_dir() or inside.with_suffix(".py").exists() else []


def names(path):
    """The test functions of a file."""
    return [name for name in _file(path).names if name.startswith("test")]


def main():
    """Print every file of tests: functions of the net, all functions, and what the others reach."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(path.relative_to(ROOT))
        why = [reasons(name, test) for test in names(name)]
        reached = ", ".join(dict.fromkeys(x for some in why for x in some))[:110]
        sys.stdout.write(f"{why.count(()):3} of {len(why):3}  {name}  {reached}\n")


if __name__ == "__main__":
    main()
