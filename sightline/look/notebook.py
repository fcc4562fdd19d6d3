"""How a notebook shows what was seen: as live views, where there is a room that draws them.

The look imports nothing that draws: the package's front door, ``sightline/__init__.py``, names the renderer.
"""

import html
from collections.abc import Callable
from typing import Any

__all__ = ["Html", "NotebookRepr", "set_renderer"]

_renderers: list[Callable[[Any], Any]] = []


def set_renderer(renderer: Callable[[Any], Any]) -> None:
    """Name what gives live views: a widget of what was seen, or None where it has none."""
    _renderers[:] = [renderer]


class NotebookRepr:
    """Shows itself as the last line of a notebook's cell."""

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """For Jupyter's notebooks: live views; without them nothing, and HTML or a picture is asked for."""
        widget = _live_views(self)
        return {} if widget is None else widget._repr_mimebundle_()

    def _display_(self) -> Any:
        """For marimo's, which take the widget as it is."""
        widget = _live_views(self)
        if widget is not None:
            return widget
        own = getattr(self, "_repr_html_", None)
        return Html(f"<pre>{html.escape(repr(self))}</pre>" if own is None else own())


class Html:
    """A text that is HTML already, as notebooks ask for it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _live_views(shown: Any) -> Any:
    return _renderers[0](shown) if _renderers else None
