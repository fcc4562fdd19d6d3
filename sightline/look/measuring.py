"""One call of a watched model, measured: whether it was asked for, what is padding, what is kept."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sightline.look.adapters import AttentionCall
from sightline.look.padding import padding_of
from sightline.look.score_inputs import StoredRows, Tile
from sightline.look.seen import Seen
from sightline.look.sight import KeptInputs, Look, Sight, measure_sight
from sightline.look.stream import tile_weights

__all__ = ["CallMeasurer", "RefusedError", "WatchOptions"]

_FEW_QUERIES = 8  # with so few it is cheaper to keep their weights than their keys


class RefusedError(RuntimeError):
    """What must not be watched at all."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WatchOptions:
    """What was asked of a watch; see :func:`sightline.watch`.

    Attributes:
        padding: What the user said is padding, as a function of the length T.
    """

    is_selected: Callable[[str], bool]
    every: int
    measure: Look
    keep: bool
    limit: int
    padding: Callable[[int], Tensor] | None
    tokens: tuple[tuple[str, ...], ...]
    grad: bool


class CallMeasurer:
    """Measures the calls that were asked for, and collects their sights."""

    def __init__(self, seen: Seen, options: WatchOptions) -> None:
        self._seen, self._options = seen, options
        self._counts: dict[str, int] = {}  # calls of each module so far

    def measure_call(
        self, name: str, module: nn.Module, read: Callable[[nn.Module], AttentionCall]
    ) -> Sight | None:
        call: AttentionCall | None = None
        if hasattr(module, "self_attn"):  # a whole layer may be one operator
            call = read(module)
            name = f"{name}.{call.child}".lstrip(".") if call.child else name
        self._seen.mark_called(name)
        if not self._options.is_selected(name):
            self._seen.mark_skipped(name)
            return None
        count = self._counts[name] = self._counts.get(name, -1) + 1
        if count % self._options.every:
            return None
        if self._seen.nbytes > self._options.limit:
            self._seen.full = True
            return None
        if _capturing():
            raise RefusedError(
                "a watched model can't be captured into a CUDA graph, whose replays write over what was "
                "seen; capture it outside the block, or watch it without the graph"
            )
        call = read(module) if call is None else call
        given = None if self._options.padding is None else self._options.padding(call.inputs.shape[2])
        padding, known = padding_of(call.inputs, name, given)
        if call.inputs.padding is None or isinstance(call.inputs, StoredRows):
            call = call.with_padding(padding)
        measure = self._options.measure.clip(*call.inputs.shape[2:])
        with _preserve_rng_state(call):
            sight = measure_sight(
                call.inputs.detached() if call.backward is None else call.inputs,
                measure,
                lead=call.lead,
                lse=call.lse,
                keep=self._options.keep,
                name=name,
                source=call.source,
                padding=known,
                tokens=self._tokens_of(call),
            )
        if call.backward is not None:
            sight = replace(sight, backward=call.backward)
        elif self._options.keep and sight.t <= _FEW_QUERIES and call.source != "weights":
            sight = _keep_rows(sight)
        self._seen.add(name, sight)
        return sight

    def _tokens_of(self, call: AttentionCall) -> tuple[tuple[str, ...], ...]:
        """The tokens that a call looks at, where they are as many as its keys."""
        tokens = self._options.tokens
        longest = max(map(len, tokens), default=0)
        return tokens if longest and longest == call.inputs.shape[3] else ()


def _preserve_rng_state(call: AttentionCall) -> contextlib.AbstractContextManager[object]:
    """Leave the random numbers as they are where a score draws some: it is asked twice, the model once."""
    if call.inputs.score is None:
        return contextlib.nullcontext()
    device = call.inputs.q.device
    return torch.random.fork_rng([device] if device.type != "cpu" else [], device_type=_accelerator(device))


def _accelerator(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type


def _keep_rows(sight: Sight) -> Sight:
    """Keep the weights themselves instead of q and k."""
    ((inputs, lse, _),) = sight.kept
    b, h, t, s = inputs.shape
    tile = Tile(slice(0, b), slice(0, h), (0, t), (0, s))
    rows = StoredRows.of(tile_weights(inputs, tile, lse))
    return sight.with_kept((KeptInputs(rows, torch.zeros_like(lse)),))


def _capturing() -> bool:
    """Whether a CUDA graph is being captured; a torch without CUDA can't be asked."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
