"""``Monitor``: the logits, entropies and sinks of every head while a model trains.

Every n-th optimizer step the forward passes are watched, each sight is reduced to a few numbers per head at
once, and at the end of the step they are logged: one collective where several processes train.
"""

import csv
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from sightline.look.groups import is_integer
from sightline.look.head_kinds import received_by_first
from sightline.look.isolate import is_recomputing
from sightline.look.sight import Look, Sight
from sightline.shapes import Float
from sightline.watch.names import name_filter
from sightline.watch.watch import Watch, watch

__all__ = ["HeadStatus", "Monitor"]

_ALL_ON_ONE = 0.99  # of a head's weight on one key: it passes nothing on
_FLAT = 0.01  # nats that a head's weights are away from looking at all alike
_NEARLY_ONE_KEY = 0.1  # nats; below it a head that looks at all alike looks at one key

Log = Callable[[int, Sequence["HeadStatus"]], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadStatus:
    """One head at one step, over all forward passes of the step.

    Attributes:
        step: How many optimizer steps had been taken.
        layer: The module's name.
        head: Which of its heads.
        max_logit: The largest score before the softmax. Growing without end, it is an exploding head.
        entropy: How spread out its weights are, in nats, averaged over the queries.
        first: The share of its weight on the first key, the attention sink.
        dead: Whether what it gives does not depend on the query: all weight on one key, or on all alike.
    """

    step: int
    layer: str
    head: int
    max_logit: float
    entropy: float
    first: float
    dead: bool


class Monitor:
    """Log the attention of a model while it trains: ``sl.Monitor(model, every=10, log="heads.csv")``.

    Steps are those of the optimizer that holds the model's parameters, however many forward passes each has
    (gradient accumulation); where none does (FSDP's flattened ones), call :meth:`step` after each. Forward
    passes in eval mode, without gradients, or recomputed in the backward pass are not counted. Where several
    processes train, all of them must run the same modules; the first one logs.

    Args:
        model: What trains.
        every: Watch each n-th step; the first one is watched.
        log: Where to: the path of a CSV file, a TensorBoard ``SummaryWriter``, or a function of the step and
            the :class:`HeadStatus` of every head. Default: only :attr:`latest` is kept.
        layers: Which modules, as in :func:`sightline.watch`.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with Monitor(model, every=2) as monitor:
        ...     for _ in range(3):
        ...         model(torch.randn(3, 5, 8)).sum().backward()
        ...         optimizer.step()
        >>> [(row.step, row.layer, row.head) for row in monitor.latest]
        [(2, 'self_attn', 0), (2, 'self_attn', 1)]
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 10,
        *,
        log: Log | str | Path | Any | None = None,
        layers: str | Callable[[str], bool] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"a Monitor takes an nn.Module, got {type(model).__name__}")
        if not is_integer(every) or every < 1:
            raise ValueError(f"every must be a whole number of steps >= 1, got {every!r}; 10 is the default")
        name_filter(layers)  # refuses what the first step would
        self._write = _writer(log)
        self._model, self._every, self._layers = model, every, layers
        self._sums: dict[str, Tensor] = {}
        self._watch: Watch | None = None
        self._optimizer: Optimizer | None = None
        self.n_steps = 0
        self.latest: list[HeadStatus] = []
        self._handles = [
            model.register_forward_pre_hook(self._before),
            model.register_forward_hook(self._after, always_call=True),
            register_optimizer_step_post_hook(self._stepped),
        ]

    def step(self) -> None:
        """Count an optimizer step; log what was seen in it."""
        if self._sums:
            sums = gather(self._sums)
            self.latest = [
                row for layer, table in sums.items() for row in _read_table(self.n_steps, layer, table)
            ]
            self._sums = {}
            if _rank() == 0:
                self._write(self.n_steps, self.latest)
        self.n_steps += 1

    def close(self) -> None:
        """Take all hooks off the model and the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> "Monitor":  # noqa: PYI034 (the shape hook knows no Self)
        """Stay until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take all hooks off."""
        self.close()

    def _before(self, model: nn.Module, _args: Any) -> None:
        """Start watching a forward pass of a step whose turn it is."""
        due = self.n_steps % self._every == 0 and model.training and torch.is_grad_enabled()
        if due and self._watch is None and not is_recomputing():
            self._watch = watch(model, layers=self._layers, measure=Look())
            self._seen = self._watch.__enter__()

    def _after(self, _model: nn.Module, _args: Any, _output: Any) -> None:
        """Stop watching; add up what was seen."""
        if self._watch is None or is_recomputing():
            return
        block, self._watch = self._watch, None
        block.__exit__(None, None, None)
        for name, calls in self._seen.items():
            for sight in calls:
                table = summarise(sight)
                known = self._sums.get(name)
                self._sums[name] = table if known is None else _joined(known, table)

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """An optimizer has taken a step; the first one that holds a parameter of the model counts."""
        if self._optimizer is None:
            own = {id(p) for p in self._model.parameters()}
            held = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
            if any(id(p) in own for p in held):
                self._optimizer = optimizer
        if optimizer is self._optimizer:
            self.step()


def summarise(sight: Sight) -> Float[Tensor, "heads 6"]:
    """What of a sight can be added up over calls: a row per head; only the first column is a maximum.

    The columns are the largest logit, and sums over queries: their number, entropy, weight on the first key,
    weight on the key that got most of an item's, and how far the weights are from looking at all alike.
    """
    heads = sight.lead[-1] if sight.has_heads else 1
    looking = sight.is_looking
    peak, entropy = sight.peak.masked_fill(~looking, 1.0), sight.entropy.masked_fill(sight.is_padding, 0.0)
    sums = [
        looking.sum(-1),
        entropy.sum(-1),
        received_by_first(sight),
        sight.received.amax(-1),
        (entropy + peak.log()).sum(-1),
    ]
    columns = [x.double().reshape(-1, heads).sum(0) for x in sums]
    largest = (
        sight.logit.masked_fill(sight.is_padding, -torch.inf)
        .double()
        .reshape(-1, heads, sight.t)
        .amax((0, 2))
    )
    return torch.stack([largest, *columns], dim=-1)


def gather(tables: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tables of all processes together, by one collective; as they are where there is one process."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return tables
    n = torch.distributed.get_world_size()
    packed = torch.cat(list(tables.values()))
    everyone = [torch.empty_like(packed) for _ in range(n)]
    torch.distributed.all_gather(everyone, packed)
    whole = everyone[0]
    for other in everyone[1:]:
        whole = _joined(whole, other)
    return dict(zip(tables, whole.split([len(x) for x in tables.values()]), strict=True))


def _joined(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([torch.maximum(a[:, :1], b[:, :1]), a[:, 1:] + b[:, 1:]], dim=-1)


def _read_table(step: int, layer: str, table: Tensor) -> list[HeadStatus]:
    rows = []
    for head, (logit, n, *sums) in enumerate(table.tolist()):
        entropy, first, most, gap = (x / max(n, 1.0) for x in sums)
        flat = gap < _FLAT and entropy > _NEARLY_ONE_KEY
        rows.append(
            HeadStatus(
                step=step,
                layer=layer,
                head=head,
                max_logit=logit,
                entropy=entropy,
                first=first,
                dead=most > _ALL_ON_ONE or flat,
            )
        )
    return rows


def _rank() -> int:
    on = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if on else 0


def _writer(log: Any) -> Log:
    """What writes the rows of a step."""
    if log is None:
        return lambda _step, _rows: None
    if isinstance(log, str | Path):
        path = Path(log)
        if path.suffix != ".csv":
            raise ValueError(f"a log file must end in .csv, got {str(path)!r}")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"a log file needs its folder, got {str(path)!r}; make {path.parent}")
        return lambda _step, rows: _append_csv(path, rows)
    if hasattr(log, "add_scalar"):
        return lambda step, rows: _add_scalars(log, step, rows)
    if callable(log):
        return log
    raise TypeError(
        f"log must be the path of a CSV file, a SummaryWriter or a function, got {type(log).__name__}"
    )


def _append_csv(path: Path, rows: Sequence[HeadStatus]) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [field.name for field in fields(HeadStatus)])
        if new:
            table.writeheader()
        table.writerows(asdict(row) for row in rows)


def _add_scalars(writer: Any, step: int, rows: Sequence[HeadStatus]) -> None:
    for row in rows:
        for name in ("max_logit", "entropy", "first", "dead"):
            writer.add_scalar(f"attention/{row.layer}/{row.head}/{name}", float(getattr(row, name)), step)
