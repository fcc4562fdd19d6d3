"""Pages from templates. All text is escaped; images, styles, scripts and data lie inside the page.

Templates are in ``templates``, styles and scripts in ``assets``. A page opens anywhere, offline; its content
policy forbids the browser to load anything from outside.
"""

import base64
import functools
import io
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from sightline.show.explorer.assets import content_policy, page_script, style

__all__ = ["render", "script_json", "to_png"]

_WIDE = 7.0  # inches, beyond which a figure is scrolled on a narrow screen
_DOTS = 96  # CSS pixels per inch
_LARGE = 10.0  # scores from here on are not shares of one


def render(template: str, **values: Any) -> str:
    """Fill a template of ``sightline/show/templates``; a value that it needs and does not get is an error.

    Example:
        >>> page = render("figures.html", title="<b>", introduction="", figures=[])
        >>> "&lt;b&gt;" in page and "<b>" not in page
        True
    """
    return _environment().get_template(template).render(values)


def script_json(value: Any) -> Markup:
    r"""A value as JSON for a ``<script type="application/json">``; no text in it can end the script.

    Example:
        >>> script_json(["</script>"])
        Markup('["\\u003c/script\\u003e"]')
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    text = text.encode(errors="backslashreplace").decode()  # half of a character, which no file can hold
    return Markup(text)  # noqa: S704  no character that HTML gives a meaning is left


def to_png(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def data_uri(data: bytes, kind: str = "png") -> str:
    """An image file as an address that holds the file itself.

    Example:
        >>> data_uri(b"GIF89a", "gif")
        'data:image/gif;base64,R0lGODlh'
    """
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _figure_uri(figure: Figure) -> str:
    return data_uri(to_png(figure))


def _figure_width(figure: Figure) -> int:
    """The width at which a page shows a figure, in CSS pixels."""
    return round(float(figure.get_figwidth()) * _DOTS)


def _is_wide(figure: Figure) -> bool:
    """Whether a figure keeps its width on a narrow screen and is scrolled there, to stay legible."""
    return float(figure.get_figwidth()) > _WIDE


def score_text(value: float) -> str:
    """A score as it is printed: three digits for shares of one, two for those that go to 100."""
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:.2f}"


def _asset(name: str) -> Markup:
    """The text of a style or script of ours, which is markup as it stands."""
    return Markup((resources.files("sightline.show") / "assets" / name).read_text(encoding="utf-8"))  # noqa: S704


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sightline.show"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "asset": _asset,
        "content_policy": content_policy,
        "explorer_script": lambda: Markup(page_script()),  # noqa: S704  ours
        "explorer_style": lambda: Markup(style()),  # noqa: S704  ours
    }
    environment.filters |= {
        "figure_uri": _figure_uri,
        "figure_width": _figure_width,
        "is_wide": _is_wide,
        "score": score_text,
        "script_json": script_json,
    }
    return environment
