"""What ``sightline look`` shows, whatever kind of model it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sightline.look.seen import Seen


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A model that was watched while it read one input.

    Attributes:
        title: Which model it is and where it lies, for a line of text.
        name: What to call it in a heading.
        text: What it read.
        seen: What it attended to, q and k kept.
        keys: For each layer that was seen, a name for each of its keys.
        is_part: Whether only some layers were chosen.
    """

    title: str
    name: str
    text: str
    seen: Seen
    keys: Mapping[str, Sequence[str]]
    is_part: bool = False

    def keys_of(self, layer: str) -> Sequence[str]:
        """The names of a layer's keys; it may be one of several calls of a module, as a table names it."""
        return self.keys[layer.partition(" call ")[0]]
