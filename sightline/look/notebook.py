"""How a notebook shows what was seen: as live views, where there is a room that draws them.

The look imports nothing that draws: the package's front door, ``sightline/__init__.py``, names the renderer.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["mimebundle", "set_renderer"]

_renderers: list[Callable[[Any], Any]] = []


def set_renderer(renderer: Callable[[Any], Any]) -> None:
    """Name what gives live views: a MIME bundle of what was seen, or None where it has none."""
    _renderers[:] = [renderer]


def mimebundle(shown: Any) -> Any:
    """What a notebook asks for; without a renderer nothing, and it goes on to ask for HTML or a picture."""
    bundle = _renderers[0](shown) if _renderers else None
    return {} if bundle is None else bundle
