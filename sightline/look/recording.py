"""What was seen of a model: a sight for each call of each attention in it, and what could not be seen."""

import fnmatch
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from sightline.look.calls import CallShape
from sightline.look.groups import is_integer
from sightline.look.isolate import isolated
from sightline.look.module_names import is_cross_name
from sightline.look.notebook import NotebookRepr
from sightline.look.recording_text import by_reason, seen_lines, seen_table
from sightline.look.runs import are_steps, split_runs
from sightline.look.sight import Sight
from sightline.look.steps import stack
from sightline.messages import check_bool, did_you_mean, format_value
from sightline.shapes import Int
from sightline.watch.listeners import silence

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

__all__ = ["Recording"]

_DARK = (
    "no attention kernel and no softmax over products of queries and keys ran in it; a look can't follow "
    "other ways to compute attention"
)


class StackedCalls(NamedTuple):
    """What was seen of calls that were measured as one; it holds on to nothing else of them.

    Attributes:
        sight: Of all of them, stacked along the batch.
        names: Their modules.
        orders: Their numbers.
    """

    sight: Sight
    names: tuple[str, ...]
    orders: tuple[int, ...]

    def split(self) -> Iterator[tuple[int, str, Sight]]:
        """Yield the number, the module and the sight of each call."""
        sight, n = self.sight, self.sight.lead[0] // len(self.names)
        parts = {name: x.split(n) for name, x in sight.statistics.items()}
        for i, (order, name) in enumerate(zip(self.orders, self.names, strict=True)):
            statistics = {key: pieces[i] for key, pieces in parts.items()}
            yield order, name, replace(sight, lead=(n, *sight.lead[1:]), statistics=statistics, name=name)


class Recording(NotebookRepr):
    """The sights of a model, by the qualified name of the module that attended.

    ``seen["layers.3.self_attn"]`` is a :class:`Sight`, or a list of them where the module was called more
    than once; :meth:`calls` is always a list, :meth:`stack` puts the steps of a decoding loop together.
    :meth:`unseen` says what ran and could not be read, and why.
    """

    def __init__(self, kind: str, attentions: Mapping[str, str]) -> None:
        """Begin with nothing seen.

        Args:
            kind: The class of the model.
            attentions: The modules that look like attention, and their classes.
        """
        self._kind, self._attentions = kind, dict(attentions)
        self.tokens: tuple[tuple[str, ...], ...] = ()
        self.launch: Callable[[], None] = do_nothing  # measures calls that wait
        self._stacked: list[
            tuple[StackedCalls, Callable[[int, Sight], Sight]]
        ] = []  # not split into calls yet
        self._expected: set[str] = set()  # the modules of calls that have been measured
        self._settled: dict[str, list[Sight]] = {}
        self._called: set[str] = set()  # attentions that ran, seen or not
        self._skipped: dict[str, None] = {}  # those that attended and were not chosen, in order
        self._failures: dict[str, str] = {}
        self._dark: dict[str, str] = {}  # why nothing may be seen, in case that nothing is
        self._silence: dict[str, str] = {}  # why nothing is heard of a module that looks like attention
        self.ran = False  # whether the model ran at all
        self.nbytes = 0
        self.full = False  # whether the limit was reached

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or sent: nothing waits in a copy."""
        self.settle()
        return self.__dict__ | {"launch": do_nothing}

    @property
    def _sights(self) -> dict[str, list[Sight]]:
        """All sights, those of calls that have waited until now included."""
        self.settle()
        return self._settled

    def mark_called(self, name: str) -> None:
        """Note that a module was called."""
        self._called.add(name)

    def was_called(self, name: str) -> bool:
        """Whether a module is known to have been called."""
        return name in self._called

    def mark_skipped(self, name: str) -> None:
        """Note that a module attended and ``layers=`` did not choose it."""
        self._skipped[name] = None

    def mark_unseen(self, name: str, reason: str) -> None:
        """Note that a module attended and could not be read."""
        self._failures.setdefault(name, reason)

    def mark_dark(self, name: str, reason: str) -> None:
        """Note why nothing may be seen of a module, in case that nothing is."""
        self._dark.setdefault(name, reason)

    def explain_silence(self, name: str, reason: str) -> None:
        """Note why nothing may be heard of a module that looks like attention, in case that nothing is."""
        self._silence.setdefault(name, reason)

    def expect(self, stacked: StackedCalls, finish: Callable[[int, Sight], Sight]) -> None:
        """Note that calls have been measured together; each of them gets its sight when one is asked for.

        Args:
            stacked: What was seen of them.
            finish: Gives the sight of a call what else is known of it, by the call's number.
        """
        self._stacked.append((stacked, finish))
        self._expected.update(stacked.names)
        self.nbytes += stacked.sight.nbytes

    def settle(self) -> None:
        """Measure what waits, and give each call its sight."""
        self.launch()
        if not self._stacked:
            return
        together, self._stacked = self._stacked, []
        with silence(), isolated():
            calls = [(finish, call) for stacked, finish in together for call in stacked.split()]
        for finish, (order, name, sight) in sorted(calls, key=lambda x: x[1][0]):
            self.add(name, finish(order, sight), is_counted=True)

    def add(self, name: str, sight: Sight, *, is_counted: bool = False) -> None:
        """Note what a call attended to."""
        self._settled.setdefault(name, []).append(sight)
        if not is_counted:
            self.nbytes += sight.nbytes

    def note_skipped(self, name: str, shape: CallShape) -> None:
        """Note a call that was not measured, which may tell what became of the one before."""
        calls = self._settled.get(name)
        if calls and calls[-1].after is None:
            calls[-1] = replace(calls[-1], after=shape)

    def rename(self, sight: Sight, name: str) -> None:
        """Put a sight under another name."""
        calls = self._sights.pop(sight.name)
        at = next(i for i, x in enumerate(calls) if x is sight)
        self._sights.setdefault(name, []).append(replace(calls.pop(at), name=name))
        if calls:
            self._sights[sight.name] = calls

    def take_back(self, name: str, reason: str) -> None:
        """Note that the weights which a module computed by hand are no matrix of queries and keys."""
        calls = [x for x in self._sights.pop(name, []) if x.source != "weights"]
        if calls:
            self._sights[name] = calls
        self.mark_unseen(name, reason)

    def names(self) -> list[str]:
        """The modules that attended, in the order of their first call; "" is the model itself."""
        return list(self._sights)

    def __getitem__(self, name: str | int | slice | Tensor) -> "Sight | list[Sight] | Recording":
        """The sight of a module, by its name or its place; a list where it was called more than once.

        A pattern, such as ``"*.3.*"``, gives the :class:`Recording` of all modules whose names match; a
        slice of places that of those modules.
        """
        if isinstance(name, Tensor) and name.numel() == 1:
            name = int(name) if not name.is_floating_point() else float(name)  # type: ignore[assignment]
        if isinstance(name, slice):
            return self._part(self.names()[name])
        if is_integer(name):
            if not -len(self) <= name < len(self):
                raise ValueError(f"{len(self)} modules were seen, got the place {name}")
            name = self.names()[name]
        if not isinstance(name, str):
            raise TypeError(
                f"seen takes the name of a module, a pattern or a place, got {name!r}; seen.names() has them"
            )
        if name not in self._sights and any(sign in name for sign in "*?["):
            return self._matching(name)
        calls = self.calls(name)
        return calls[0] if len(calls) == 1 else calls

    def _matching(self, pattern: str) -> "Recording":
        """What was seen of the modules whose names match."""
        names = [name for name in self._sights if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise ValueError(f"no module that was seen matches {pattern!r}, {did_you_mean(pattern, self)}")
        return self._part(names)

    def _part(self, names: list[str]) -> "Recording":
        """What was seen of these modules."""
        part = Recording.of(self.about())
        for name in names:
            for sight in self._sights[name]:
                part.add(name, sight)
        return part

    def about(self) -> dict[str, Any]:
        """What is known beside the sights, as what ``json.dumps`` takes."""
        return {
            "kind": self._kind,
            "attentions": self._attentions,
            "unseen": self.unseen(),
            "tokens": self.tokens,
        }

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "Recording":
        """One without sights, from what :meth:`about` gave."""
        seen = cls(about["kind"], about["attentions"])
        for name, reason in about["unseen"].items():
            seen.mark_unseen(name, reason)
        seen.tokens = tuple(map(tuple, about["tokens"]))
        seen.ran = True
        return seen

    def save(self, path: str | Path, *, keep: bool = False) -> None:
        """Write all sights to one safetensors file; ``keep`` as in :meth:`Sight.save`."""
        from sightline.look.files import save_seen  # noqa: PLC0415

        check_bool("keep", keep)
        save_seen(self, path, keep=keep)

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read what :meth:`save` wrote."""
        from sightline.look.files import load_seen  # noqa: PLC0415

        return load_seen(cls, Sight, path)

    def to_json(self) -> str:
        """All sights as a JSON object: names, and a list of calls for each."""
        from sightline.look.export import sight_to_dict  # noqa: PLC0415

        sights = {name: [sight_to_dict(x) for x in calls] for name, calls in self._sights.items()}
        return json.dumps(self.about() | {"sights": sights})

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each head of each layer; pandas has to be installed."""
        try:
            import pandas as pd  # noqa: PLC0415
        except ImportError:
            raise ImportError("to_pandas needs pandas, which is not installed; pip install pandas") from None
        from sightline.look.heads import head_table  # noqa: PLC0415

        return pd.DataFrame([asdict(head) for head in head_table(self)])

    def _repr_html_(self) -> str:
        """For notebooks: a row for each module."""
        return seen_table(self)

    def calls(self, name: str) -> list[Sight]:
        """The sights of a module, one for each call that was measured."""
        if not isinstance(name, str):
            raise TypeError(f"name must be that of a module, got {format_value(name)}; seen.names() has them")
        if name not in self._sights:
            if not self._sights:
                raise ValueError(self.explanation())
            if name in self.unseen():
                raise ValueError(f"{name!r} attended and was not seen: {self.unseen()[name]}")
            raise ValueError(f"no attention was seen in {name!r}, {did_you_mean(name, self._sights)}")
        return list(self._sights[name])

    def stack(self, name: str, *, beams: Sequence[int] | Int[Tensor, " n"] | None = None) -> Sight:
        """The calls of a module as one sight, their queries on top of each other.

        Where a beam search moved the items of the batch between the calls, the rows of an item are those of
        its own history.

        Args:
            name: The module.
            beams: Of a hypothesis, the item of each call that it went through, negative after its end: a row
                of the ``beam_indices`` that Hugging Face's ``generate`` returns. One item is left.
        """
        calls = self.calls(name)
        n = len(self._split(name))
        if n > 1:
            raise ValueError(
                f"the {len(calls)} calls of {name!r} are {n} runs, each over a whole sequence, as of layers "
                f"that share their weights; seen.runs({name!r}) gives one sight for each"
            )
        return stack(calls, beams.tolist() if isinstance(beams, Tensor) else beams)

    def runs(self, name: str, *, follow: bool = True) -> list[Sight]:
        """The passes of a module over a sequence: steps of a decoding loop are stacked, one sight a run.

        Args:
            name: The module.
            follow: Whether items that a beam search moved are followed back to where they came from.
        """
        check_bool("follow", follow)
        calls, runs = self.calls(name), []
        for run in self._split(name):
            chosen = [calls[i] for i in run]
            runs += [stack(chosen, follow=follow)] if are_steps(chosen) else chosen
        return runs

    def _split(self, name: str) -> list[list[int]]:
        """Which calls belong to one run; cross-attention starts again when the rest of the model does."""
        own = self._sights[name]
        runs = split_runs(own)
        if len(runs) > 1 or not is_cross_name(name):
            return runs
        beside = (x for other, x in self._sights.items() if len(x) == len(own) and not is_cross_name(other))
        return next(map(split_runs, beside), runs)

    def gather(self, *, batch: Any = None) -> "Recording":
        """Heads and tokens of all ranks of a sharded model put together, on each of them; all call it.

        Args:
            batch: A data-parallel process group, ``torch.distributed.group.WORLD`` for DDP and FSDP: the
                items of its ranks are put together too, rank after rank.
        """
        from sightline.look.sharded.gather import gather_seen  # noqa: PLC0415

        return gather_seen(self, batch)

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

    def unseen(self) -> dict[str, str]:
        """Modules that attended and could not be read, and why; those that look like attention included."""
        self.launch()
        known = {*self._settled, *self._expected, *self._skipped, *self._failures}
        if not self._failures and not self._dark and self._called <= known:
            return {}
        dark = {name: reason for name, reason in self._dark.items() if not self._is_covered(name, known)}
        known.update(dark)
        seen_inside = {outer for name in known for outer in _parents(name)}
        silent = {
            name: self._silence.get(name, _DARK)
            for name in self._attentions
            if name in self._called and name not in seen_inside and not self._is_covered(name, known)
        }
        return self._failures | dark | silent

    def explanation(self) -> str:
        """Why nothing was seen, and what to do about it."""
        if self._skipped:
            names = list(self._skipped)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return (
                f"nothing was seen because layers= chose none of the modules that attended: "
                f"{', '.join(map(repr, names[:3]))}{more}"
            )
        unseen = self.unseen()
        if unseen:
            return f"nothing was seen: {self.list_unseen(unseen)}"
        if not self.ran:
            return (
                "nothing was seen because the model has not run yet; call it inside the with block, and in "
                "the same thread: generate_batch, and DataParallel over several devices, call it in others"
            )
        return "nothing was seen: no attention kernel and no softmax over queries and keys ran"

    def unseen_warning(self) -> str | None:
        """One sentence on what could not be read; None if all could."""
        unseen = self.unseen()
        if not unseen:
            return None
        what = "an attention" if len(unseen) == 1 else f"{len(unseen)} attentions"
        return f"{what} of {self._kind} ran and could not be read: {self.list_unseen(unseen)}"

    def __repr__(self) -> str:
        """A line for each module."""
        if not self._sights:
            return f"Recording(nothing): {self.explanation()}"
        return seen_lines(self, f"{len(self)} attentions of {self._kind}, {self.nbytes / 1e6:.1f} MB")

    def list_unseen(self, unseen: Mapping[str, str]) -> str:
        """The first names of those that were not seen, by their reasons."""
        return by_reason(unseen, self._attentions)

    def _is_covered(self, name: str, known: set[str]) -> bool:
        """Whether the module, one inside it or one around it is among those that are known."""
        around = [outer for outer in _parents(name) if outer or outer in self._attentions]
        if name in known or not known.isdisjoint(around):
            return True
        return any(name in _parents(other) for other in known)


def _parents(name: str) -> list[str]:
    """The names of the modules around a module; the model itself is the last."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(len(parts) - 1, -1, -1)] if name else []


def do_nothing() -> None:
    """Nothing waits."""
