"""The imports of the package among its own modules, read off the syntax trees, and the knots in them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "sightline"


class Import(NamedTuple):
    """One module of ours imports another.

    Attributes:
        importer, imported: Their dotted names.
        line: Where.
        is_lazy: Whether it is inside a function.
    """

    importer: str
    imported: str
    line: int
    is_lazy: bool


def imports(package=PACKAGE):
    """Every import of ours by ours, but for those that only types need."""
    files = {name_of(path, package): path for path in sorted(package.rglob("*.py"))}
    for name, path in files.items():
        is_package = path.name == "__init__.py"
        for node, is_lazy in _nodes(ast.parse(path.read_text(encoding="utf-8"))):
            for imported in _targets(node, name if is_package else name.rpartition(".")[0]):
                found = next((x for x in (imported, imported.rpartition(".")[0]) if x in files), None)
                if found not in {None, name}:
                    yield Import(name, found, node.lineno, is_lazy)


def name_of(path, package):
    """The dotted name of a file."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _nodes(tree, *, is_lazy=False) -> Iterator[tuple[ast.AST, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_lazy
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _nodes(ast.Module([other], []), is_lazy=is_lazy)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _nodes(node, is_lazy=is_lazy or inside)


def _targets(node, package):
    if isinstance(node, ast.Import):
        return [x.name for x in node.names if x.name.split(".")[0] == "sightline"]
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
    base = ".".join(filter(None, [base, node.module]))
    return [f"{base}.{x.name}" for x in node.names] if base.split(".")[0] == "sightline" else []


def knots(edges):
    """The groups of modules that import each other, directly or by others; each sorted, the largest first."""
    graph = {}
    for importer, imported in edges:
        graph.setdefault(importer, set()).add(imported)
        graph.setdefault(imported, set())
    found = {frozenset(_reached(graph, x) & _reached(_turned(graph), x)) for x in graph}
    return sorted((sorted(x) for x in found if len(x) > 1), key=lambda x: (-len(x), x))


def _reached(graph, first):
    seen, left = {first}, [first]
    while left:
        for x in graph[left.pop()] - seen:
            seen.add(x)
            left.append(x)
    return seen


def _turned(graph):
    turned = {x: set() for x in graph}
    for x, others in graph.items():
        for other in others:
            turned[other].add(x)
    return turned
