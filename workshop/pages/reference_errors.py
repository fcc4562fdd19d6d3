"""Print every sentence that answers a mistake, read off the syntax trees, for reading out of context.

Usage: python -m workshop.pages.reference_errors
"""

import ast
import sys
import textwrap
from collections.abc import Iterator

from workshop import ROOT

ERRORS = {
    "AttributeError",
    "FileNotFoundError",
    "ImportError",
    "IndexError",
    "KeyError",
    "OSError",
    "RuntimeError",
    "TypeError",
    "ValueError",
}


def errors() -> str:
    """Every sentence that answers a mistake, with the condition under which it is said."""
    lines = [
        "# Error messages",
        "",
        "Every sentence that answers a mistake, by the file that says it, with the condition under which it",
        "does. What stands in braces is filled in with your values. In",
        "Python they are exceptions; a command prints the sentence alone and ends with exit code 2.",
    ]
    count = 0
    for path in sorted((ROOT / "sightline").rglob("*.py")):
        rows = list(_raised(ast.parse(path.read_text(encoding="utf-8"))))
        if not rows:
            continue
        name = path.relative_to(ROOT / "sightline").as_posix()
        lines += ["", f"## `{name}`", "", f"[source](../../sightline/{name})", ""]
        for kind, sentence, condition in rows:
            count += 1
            lines.append(
                f"- {kind}: `` {sentence} ``" + (f"<br>said if `` {condition} ``" if condition else "")
            )
    lines[4] += f" There are {count}."
    return "\n".join(lines).rstrip() + "\n"


def _raised(tree: ast.AST) -> Iterator[tuple[str, str, str]]:  # noqa: C901
    """Kind, sentence and condition of every raise of a sentence, in the order of the file."""

    def walk(node: ast.AST, condition: str) -> Iterator[tuple[str, str, str]]:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind = ast.unparse(node.exc.func)
            sentence = _sentence(node.exc.args[0])
            if kind in ERRORS and sentence:
                yield kind, sentence, condition
        for field, value in ast.iter_fields(node):
            inner = condition
            if isinstance(node, ast.If) and field == "body":
                inner = ast.unparse(node.test)
            elif isinstance(node, ast.If) and field == "orelse":
                inner = f"not ({ast.unparse(node.test)})"
            elif isinstance(node, ast.ExceptHandler) and field == "body":
                inner = f"{ast.unparse(node.type)} was raised" if node.type else ""
            elif isinstance(node, ast.FunctionDef):
                inner = ""
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, inner)

    for kind, sentence, condition in walk(tree, ""):
        yield kind, sentence, " ".join(textwrap.shorten(condition, 160, placeholder=" ...").split())


def _sentence(node: ast.expr) -> str:
    """The text of a message with the expressions of its values in braces; empty if it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                parts.append("{" + textwrap.shorten(ast.unparse(part.value), 60, placeholder="...") + "}")
        return " ".join("".join(parts).replace("`", "'").split())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _sentence(node.left), _sentence(node.right)
        return f"{left} {right}".strip() if left or right else ""
    return ""


if __name__ == "__main__":
    sys.stdout.write(errors())
