"""What was seen of a model: a sight for each call of each attention in it."""

from collections.abc import Iterator

from torch import nn

from sightline.look.sight import Sight
from sightline.look.steps import stack
from sightline.shapes import did_you_mean

__all__ = ["Seen"]


class Seen:
    """The sights of a model, by the qualified name of the module that attended.

    ``seen["layers.3.self_attn"]`` is a :class:`Sight`, or a list of them where the module was called more
    than once; :meth:`calls` is always a list, :meth:`stack` puts the steps of a decoding loop together.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._sights: dict[str, list[Sight]] = {}
        self._called: set[str] = set()  # the modules that ran, seen or not
        self._skipped: dict[str, None] = {}  # those that attended and were not chosen, in order
        self.nbytes = 0
        self.full = False  # whether the limit was reached

    def mark_called(self, name: str) -> None:
        """Note that a module was called."""
        self._called.add(name)

    def mark_skipped(self, name: str) -> None:
        """Note that a module attended and ``layers=`` did not choose it."""
        self._skipped[name] = None

    def add(self, name: str, sight: Sight) -> None:
        """Note what a call attended to."""
        self._sights.setdefault(name, []).append(sight)
        self.nbytes += sight.nbytes

    def names(self) -> list[str]:
        """The modules that attended, in the order of their first call; "" is the model itself."""
        return list(self._sights)

    def __getitem__(self, name: str) -> Sight | list[Sight]:
        """The sight of a module; a list where it was called more than once."""
        calls = self.calls(name)
        return calls[0] if len(calls) == 1 else calls

    def calls(self, name: str) -> list[Sight]:
        """The sights of a module, one for each call that was measured."""
        if name not in self._sights:
            if not self._sights:
                raise ValueError(self.explanation())
            raise ValueError(f"no attention was seen in {name!r}, {did_you_mean(name, self._sights)}")
        return list(self._sights[name])

    def stack(self, name: str) -> Sight:
        """All calls of a module as one sight, their queries on top of each other."""
        return stack(self.calls(name))

    def items(self) -> Iterator[tuple[str, list[Sight]]]:
        """Names and the sights of their calls."""
        return ((name, list(sights)) for name, sights in self._sights.items())

    def __len__(self) -> int:
        """How many modules were seen."""
        return len(self._sights)

    def __iter__(self) -> Iterator[str]:
        """Over the names."""
        return iter(self._sights)

    def __contains__(self, name: object) -> bool:
        """Whether attention was seen in this module."""
        return name in self._sights

    def unseen(self) -> list[str]:
        """Modules that ran and look like attention, yet neither they nor anything in them was seen."""
        return [
            name
            for name, module in self._model.named_modules()
            if name in self._called and looks_like_attention(module) and not self._is_covered(name)
        ]

    def explanation(self) -> str:
        """Why nothing was seen, and what to do about it."""
        if not self._called:
            return "nothing was seen because the model has not run yet; call it inside the with block"
        if self._skipped:
            names = list(self._skipped)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return (
                f"nothing was seen because layers= chose none of the modules that attended: "
                f"{', '.join(map(repr, names[:3]))}{more}"
            )
        suspects = self.unseen()
        if not suspects:
            return (
                "nothing was seen: no fused attention ran; a model that computes weights by hand must call "
                "F.scaled_dot_product_attention or sl.attention instead"
            )
        kinds = dict(self._model.named_modules())
        named = ", ".join(f"{name} ({type(kinds[name]).__name__})" for name in suspects[:3])
        more = f" and {len(suspects) - 3} more" if len(suspects) > 3 else ""
        return (
            f"nothing was seen of {named}{more}: the weights were computed by hand, not by a fused kernel; "
            "load a Hugging Face model with attn_implementation='sdpa', set fused_attn=True in timm's, call "
            "F.scaled_dot_product_attention or sl.attention"
        )

    def __repr__(self) -> str:
        """A line for each module."""
        if not self._sights:
            return f"Seen(nothing): {self.explanation()}"
        lines = [f"Seen: {len(self)} attentions of {type(self._model).__name__}, {self.nbytes / 1e6:.1f} MB"]
        width = max(map(len, self._sights))
        for name, sights in self._sights.items():
            last = sights[-1]
            facts = [f"{len(sights)} calls" if len(sights) > 1 else "1 call", f"T={last.t} S={last.s}"]
            if "entropy" in last.statistics:
                facts.append(f"entropy {last.entropy.detach().mean():.3f}")
            if "peak" in last.statistics:
                facts.append(f"peak {last.peak.detach().mean():.3f}")
            lines.append(f"  {name or '(the model itself)':<{width}}  {', '.join(facts)}")
        hidden = self.unseen()
        if hidden:
            lines.append(f"  not seen, though they look like attention: {', '.join(hidden[:5])}")
        return "\n".join(lines)

    def _is_covered(self, name: str) -> bool:
        """Whether the module, one inside it or one around it was seen."""
        inside, around = f"{name}.", name
        return any(
            seen == name or seen.startswith(inside) or (seen and around.startswith(f"{seen}."))
            for seen in (*self._sights, *self._skipped)
        )


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module's class is named like one that attends."""
    kind = type(module).__name__.lower()
    return "attention" in kind or "attn" in kind or isinstance(module, nn.MultiheadAttention)
