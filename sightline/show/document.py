"""One HTML file that holds all it shows: it opens anywhere, offline, and can be sent as it is."""
# until cli/ is rebuilt

import base64
import html
import io
import json
from importlib import resources
from typing import Any

from matplotlib.figure import Figure

__all__ = ["asset", "document", "drawn", "escaped", "figure_tag", "json_tag"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
{script}</body>
</html>
"""
_WIDE = 7.0  # inches
_DOTS = 96  # a page has so many pixels an inch


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole page.

    Args:
        title: Plain text, for the window's bar.
        body: HTML.
        style: Rules beyond those of every page.
        script: An ES module that the page runs; it lies inside the page.
    """
    module = f'<script type="module">\n{script}</script>\n' if script else ""
    return _PAGE.format(title=html.escape(title), style=asset("page.css") + style, body=body, script=module)


def asset(name: str) -> str:
    """The text of a file that lies beside this one, in ``assets``."""
    return (resources.files("sightline.show") / "assets" / name).read_text(encoding="utf-8")


def escaped(text: str) -> str:
    """Plain text for a page: what a tokenizer, a file's name or a caption holds is never markup."""
    return html.escape(text)


def json_tag(value: Any, identity: str) -> str:
    r"""Data for a page's script, which no text inside it can end or turn into markup.

    Example:
        >>> json_tag(["</script>"], "words")
        '<script type="application/json" id="words">["\\u003c/script\\u003e"]</script>'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{html.escape(identity)}">{text}</script>'


def drawn(figure: Figure) -> bytes:
    """A figure as a PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def figure_tag(picture: bytes, *, alt: str, caption: str = "", inches: float | None = None) -> str:
    """A PNG inside the page, with what it shows; as wide as it was drawn where there is room.

    A wide one is not shrunk to a narrow screen, where it could not be read: it can be pushed to and fro.
    """
    data = base64.b64encode(picture).decode()
    width = f' width="{round(inches * _DOTS)}"' if inches else ""
    below = f"<figcaption>{html.escape(caption)}</figcaption>\n" if caption else ""
    image = f'<img class="drawn" alt="{html.escape(alt)}"{width} src="data:image/png;base64,{data}">'
    wide = ' class="wide"' if inches and inches > _WIDE else ""
    return f"<figure{wide}>\n{image}\n{below}</figure>\n"
