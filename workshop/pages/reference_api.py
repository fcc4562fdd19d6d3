"""The page of the reference with every public name: its signature and its docstring, as Markdown."""

import inspect
import re
import textwrap
from collections import defaultdict
from typing import Any

from workshop.pages.public_names import members, public_names

HEADINGS = {
    "sl": "The names of `sightline`",
    "sl.masks": "Masks",
    "sl.scores": "Scores",
    "sl.positions": "Positions",
    "sl.nn": "Layers, torch's and ours",
    "sl.models": "Models",
    "sl.show": "Figures and pages",
    "sl.tasks": "Tasks and runs",
    "sl.train": "Training",
    "sl.textbook": "The documents' names",
}
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Note):$")


def api() -> str:
    """Every public name with its signature and its docstring."""
    lines = [
        "# The API",
        "",
        "Written from the docstrings, whose examples run in the tests. `import sightline as sl`;",
        "B batch, H heads, T queries, S keys, D width of a head, E width of the model, V vocabulary.",
    ]
    by_space: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name, found in public_names():
        by_space[name.rpartition(".")[0]].append((name, found))
    for space, title in HEADINGS.items():
        lines += ["", f"## {title}", ""]
        for name, found in by_space[space]:
            lines += [f"### {name}", "", *_signature(name, found), *_markdown(found.__doc__ or "")]
            if inspect.isclass(found):
                lines += _members(found)
    return "\n".join(lines).rstrip() + "\n"


def _signature(name: str, found: Any) -> list[str]:
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except ValueError:
        return []
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    shown = [re.sub(r"<.*?>", "...", str(p)) for p in plain]
    if any(p.kind is p.KEYWORD_ONLY for p in plain) and not any(p.kind is p.VAR_POSITIONAL for p in plain):
        shown.insert(next(i for i, p in enumerate(plain) if p.kind is p.KEYWORD_ONLY), "*")
    text = f"{name}({', '.join(shown)})"
    wrapped = textwrap.wrap(
        text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return ["```python", *wrapped, "```", ""]


def _members(found: type) -> list[str]:
    rows, known = [], set()
    for name, member in members(found):
        if name not in known:
            known.add(name)
            first = (inspect.getdoc(member) or "").split("\n\n")[0]
            called = "" if isinstance(member, property) else "()"
            rows.append(f"- `{name}{called}`: {_inline(' '.join(first.split()))}")
    return [*rows, ""] if rows else []


def _markdown(doc: str) -> list[str]:  # noqa: C901
    """A docstring as Markdown: sections become lists, examples become code."""
    out: list[str] = []
    section = ""
    code = False
    for line in inspect.cleandoc(doc).splitlines():
        match = SECTION.match(line)
        if code and (match or (line.strip() and not line.startswith("    "))):
            out, code = [*_closed(out), ""], False
        if match:
            section = match[1]
            if section != "Example":
                out += [f"**{section}**", ""]
        elif section == "Example":
            if not code and line.strip():
                out.append("```python")
                code = True
            if code:
                out.append(line.removeprefix("    "))
        elif section and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            out.append(
                f"- `{name}`: {_inline(rest)}"
                if colon and " " not in name.replace(", ", "")
                else f"- {_inline(line.strip())}"
            )
        elif section and line.startswith("     "):
            out.append(f"  {_inline(line.strip())}")
        elif line.startswith("    ") and not section:
            out.append(line)
        else:
            section = section if not line.strip() else ""
            out.append(_inline(line))
    return [*_closed(out), ""] if code else [*out, ""]


def _closed(out: list[str]) -> list[str]:
    while out and not out[-1].strip():
        out.pop()
    return [*out, "", "```"]


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    text = re.sub(r"``([^`]*)``", r"`\1`", text)
    return re.sub(r"<(?![ =])", "&lt;", text) if "`" not in text else text
