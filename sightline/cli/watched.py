"""What ``sightline look`` shows, whatever kind of model it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sightline.look.seen import Seen
from sightline.look.sight import Sight


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A model that was watched while it read one input.

    Attributes:
        title: Which model it is and where it lies, for a line of text.
        name: What to call it in a heading.
        text: What it read.
        seen: What it attended to, q and k kept.
        keys: For each layer that was seen, a name for each of its keys.
        queries: The same for its queries.
        is_part: Whether only some layers were chosen.
    """

    title: str
    name: str
    text: str
    seen: Seen
    keys: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[str]]
    is_part: bool = False

    def keys_of(self, layer: str) -> Sequence[str]:
        """The names of a layer's keys; it may be one of several calls of a module, as a table names it."""
        return self.keys[layer.partition(" call ")[0]]

    def queries_of(self, layer: str) -> Sequence[str]:
        """The names of its queries."""
        return self.queries[layer.partition(" call ")[0]]

    def sides_of(self, layer: str, sight: Sight) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """The names of its queries and keys for a picture; None for a side on which they don't stand."""
        queries, keys = self.queries_of(layer), self.keys_of(layer)
        return queries if len(queries) == sight.t else None, keys if len(keys) == sight.s else None
