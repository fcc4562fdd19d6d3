"""Imports go one way. This test reads the syntax trees, so nothing need be importable to be judged."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sightline"

# Left to right. A file may import from its own place and from places with a smaller number.
ORDER = [
    ["messages"],
    ["untrusted"],
    ["shapes"],
    ["settings"],
    ["attention", "positions"],
    ["look"],
    ["watch"],
    ["edit"],
    ["layers"],
    ["data"],
    ["models"],
    ["nn"],
    ["__init__"],  # the public names
    ["decode"],
    ["train"],
    ["evaluate"],
    ["show"],
    ["seeds", "textbook"],  # the documents' names, and where they were before
    ["tasks"],
    ["serve"],
    ["cli"],
    ["__main__"],
]
RANK = {place: rank for rank, places in enumerate(ORDER) for place in places}
FRONT_DOOR = "__init__"  # imports a name from anywhere, when it is first asked for
TOP = {"nn"}
TOP_TAKES = {
    "shapes",
    "attention",
    "positions",
    "look",
    "watch",
    "edit",
    "layers",
    "models",
} | TOP
# What the look still takes of watching, until calls are read apart from where they are measured.
LOOK_TAKES = {
    "look/look.py": {"sightline.watch.catch"},
    "look/recording.py": {"sightline.watch.listeners"},
    "look/recording_text.py": {"sightline.watch.modules"},
    "look/sharded/look.py": {"sightline.watch.attention_call"},
    "look/sharded/placements.py": {"sightline.watch.attention_call", "sightline.watch.modules"},
}
ATTENTION_TAKES = {"torch", "triton", "sightline", *sys.stdlib_module_names}


def place_of(module: str) -> str:
    """The folder, or the file beside the folders, that a dotted name of ours lies in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in RANK else "__init__"


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Every module that a syntax tree imports, anywhere in it, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            if base == "sightline":  # from sightline import look: it is the names that matter
                yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)
            else:
                yield node.lineno, base


def offences(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = ("sightline", *path.relative_to(root).with_suffix("").parts)
        here = parts[1]
        if here not in RANK:
            found.append(f"{path.relative_to(root)}: no place in the order, expected one of {sorted(RANK)}")
            continue
        for line, module in imported(ast.parse(path.read_text()), ".".join(parts[:-1])):
            where = f"{path.relative_to(root)}:{line} imports {module}"
            if module.split(".")[0] != "sightline":
                if here == "attention" and module.split(".")[0] not in ATTENTION_TAKES:
                    found.append(f"{where}: attention/ takes torch, triton and the standard library alone")
                continue
            if here == FRONT_DOOR or module in LOOK_TAKES.get(path.relative_to(root).as_posix(), ()):
                continue
            there = place_of(module)
            own_or_left = there == here or RANK[there] < RANK[here]
            if not (there in TOP_TAKES if here in TOP else own_or_left):
                found.append(f"{where}: {here} stands left of {there} or beside it")
    return found


def test_imports_go_one_way():
    assert not offences(PACKAGE)


def test_the_walk_sees_the_package():
    trees = [ast.parse(path.read_text()) for path in (PACKAGE / "attention").glob("*.py")]
    seen = {module for tree in trees for _, module in imported(tree, "sightline.attention")}
    assert {"sightline.shapes", "sightline.attention.masks", "torch"} <= seen


@pytest.mark.parametrize(
    ("file", "source", "words"),
    [
        ("attention/a.py", "import sightline.layers.encoder", "a.py:1 imports sightline.layers.encoder"),
        (
            "attention/a.py",
            "from sightline import look",
            "sightline.look: attention stands left of look",
        ),
        ("attention/a.py", "import numpy as np", "imports numpy: attention/ takes torch"),
        ("attention/a.py", "import sightline as sl", "imports sightline: attention stands left of __init__"),
        (
            "attention/a.py",
            "from sightline.positions import x",
            "left of positions or beside it",
        ),
        ("attention/deep/a.py", "from ...look import x", "imports sightline.look"),
        ("attention/a.py", "def f():\n    from .. import train", "a.py:2 imports sightline.train"),
        ("layers/a.py", "from sightline.models import x", "layers stands left of models"),
        ("train/a.py", "from sightline.evaluate import bleu", "train stands left of evaluate"),
        ("shapes.py", "from sightline.attention import masks", "shapes stands left of attention"),
        ("nn.py", "import sightline.data", "nn.py:1 imports sightline.data"),
        ("models/a.py", "from sightline import nn", "models stands left of nn"),
        ("misc/a.py", "", "misc/a.py: no place in the order"),
    ],
)
def test_an_offender_is_named(tmp_path, file, source, words):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (found,) = offences(tmp_path)
    assert words in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("attention/a.py", "import math, torch.nn\nfrom . import masks\nfrom ..shapes import Float"),
        ("layers/a.py", "from sightline.attention.masks import Mask\nfrom sightline.positions import x"),
        ("look/a.py", "import numpy\nfrom sightline.attention import masks"),
        ("__init__.py", "from sightline import nn, look, positions\nfrom sightline.models import x"),
        ("nn.py", "import torch.nn\nfrom sightline.layers import Transformer"),
        ("serve/a.py", "import sightline as sl\nfrom sightline import show"),
        ("__main__.py", "from sightline.cli import main"),
    ],
)
def test_the_innocent_are_left_alone(tmp_path, file, source):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    assert not offences(tmp_path)
