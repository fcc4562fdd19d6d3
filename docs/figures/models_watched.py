"""Write docs/lookup/models_watched.md: which models `sl.watch` sees, how, how exactly, and at what cost.

    python docs/figures/models_watched.py [--out FILE] [--quick]

Models have random weights and few, narrow layers: what is asked is whether every attention is seen, not what
it says. For each, the output with and without `sl.watch` is compared bit by bit, and the rows of weights with
those that the model itself returns with eager attention (`output_attentions=True`, or `need_weights=True`).
"""

# ruff: noqa: E501, INP001 (a table is read by its rows)

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from models_watched_checks import (
    cached_error,
    half_error,
    half_statistics,
    output_of,
    own_error,
    padded_error,
    set_attention,
)
from models_watched_families import FAMILIES, NO_TEXT, SHARPNESS, SMALL, TEXT, B, E, H, T, inputs_of
from torch import Tensor, nn

import sightline as sl

__all__ = ["RUNS", "SMALL", "table", "try_all"]

RUNS = 5
Model = Callable[[], tuple[nn.Module, dict[str, Any]]]


def families(only: tuple[str, ...] | None) -> Iterator[tuple[str, str, Model]]:
    """Name, implementation of attention and maker of every model that is tried."""
    try:
        import transformers  # noqa: PLC0415 (an extra)
    except ImportError:
        return
    for name, model, config, settings, kind in FAMILIES:
        if only is not None and name not in only:
            continue
        try:
            made_by, made_from = getattr(transformers, model), getattr(transformers, config)
        except (AttributeError, ImportError) as error:
            sys.stderr.write(f"{name}: not tried, {error}\n")
            continue

        def make(
            made_by: Any = made_by, made_from: Any = made_from, settings: Any = settings, kind: str = kind
        ) -> tuple[nn.Module, dict[str, Any]]:
            is_composed = "text_config" in settings or "encoder" in settings
            words = {} if kind in NO_TEXT or is_composed else TEXT
            return made_by(made_from(**words, **settings)).eval(), inputs_of(kind)

        for implementation in ("sdpa", "eager"):
            yield name, implementation, make


def torch_models() -> Iterator[tuple[str, str, Model]]:
    """Torch's own modules and ours, with their weights by hand and without."""
    x = torch.randn(B, T, E)
    for library, package in (("torch.nn", nn), ("sl.nn", sl.nn)):
        for need_weights in (False, True):
            how = "need_weights" if need_weights else "fused"
            module = package.MultiheadAttention(E, H, batch_first=True)
            called = {"query": x, "key": x, "value": x, "need_weights": need_weights}
            yield f"{library} MultiheadAttention", how, lambda m=module, c=called: (m.eval(), c)
        layer = package.TransformerEncoderLayer(E, H, 20, batch_first=True)
        encoder = package.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        yield f"{library} TransformerEncoder", "fused", lambda m=encoder: (m.eval(), {"src": x})


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was found of one model."""

    name: str
    implementation: str
    seen: int
    unseen: int
    sources: str
    is_equal: bool
    error: float | None
    cost: float
    padded: float | None = None
    cached: float | None = None
    half: float | None = None
    note: str = ""


def try_model(name: str, implementation: str, make: Model) -> Row | None:
    """Run a model blind, watched and eager; None where it has no such implementation."""
    torch.manual_seed(0)
    model, inputs = make()
    sharpen(model, SHARPNESS.get(name, 3.0))
    if hasattr(model, "set_attn_implementation"):
        if implementation == "sdpa" and not getattr(model, "_supports_sdpa", False):
            return None
        set_attention(model, implementation)
    with torch.no_grad():
        blind, blind_seconds = timed(lambda: output_of(model(**inputs)))
        with sl.watch(model, keep=True) as seen:
            watched, watched_seconds = timed(lambda: output_of(model(**inputs)))
        calls = [x for _, x in seen.items()]
        error = own_error(
            model, inputs, blind, [x for one in calls for x in one[len(one) - len(one) // RUNS :]]
        )
    sights = [call for _, calls in seen.items() for call in calls]
    reasons = list(dict.fromkeys(seen.unseen().values()))
    sources = sorted({x.source for x in sights})
    if any(token.startswith("image[") for x in sights for text in x.tokens for token in text):
        sources.append("images by name")
    return Row(
        name=name,
        implementation=implementation,
        seen=len(sights),
        unseen=len(seen.unseen()),
        sources=", ".join(sources) or "-",
        is_equal=torch.equal(blind, watched),
        error=error,
        cost=watched_seconds / blind_seconds,
        note="; ".join(reasons),
        padded=padded_error(model, inputs, implementation),
        cached=cached_error(model, inputs, implementation),
        half=half_error(model, inputs, implementation),
    )


def sharpen(model: nn.Module, by: float) -> None:
    """Random models look everywhere alike; let this one look somewhere."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(by)


def timed(call: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """The result, of the same dice each time, and the least processor time of a few runs."""
    seconds = []
    for _ in range(RUNS):
        torch.manual_seed(1)
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def table(rows: list[Row]) -> str:
    """The page."""
    lines = [
        "# Models that were watched",
        "",
        f"Written by `python docs/figures/models_watched.py`: random weights, two narrow layers, {B} x {T} tokens, float32, torch",
        f"{torch.__version__} on one CPU thread. *Recording* counts calls of attention in one run; *read off* says how: off a",
        "kernel's own q, k and log-sum-exp, or off the weights that the model computed by hand. *Error* is the largest",
        "difference of any weight from those that the model itself returns with eager attention; - where it returns none,",
        "or not all. *Cached* is the same with a prompt and single steps, put together, against all tokens at once.",
        "*Padded*, on the right and on the left, and *bfloat16* compare kernels with a softmax in float64 over the same q and",
        "k, and weights by hand with those that eager returns. *Cost* is the processor time watched, with q and k kept, over",
        "that of the blind model: for models as small as these it is Python's, not the look's.",
        "",
        "| model | attention | seen | not seen | read off | output | error | padded | cached | bfloat16 | cost |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        errors = (row.error, row.padded, row.cached, row.half)
        cells = " | ".join("-" if x is None else f"{x:.0e}" for x in errors)
        equal = "bit-equal" if row.is_equal else "**differs**"
        lines.append(
            f"| {row.name} | {row.implementation} | {row.seen // RUNS} | {row.unseen or ''} | {row.sources} | {equal} "
            f"| {cells} | {row.cost:.1f} |"
        )
    notes: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.note:
            notes.setdefault(row.note, {})[row.name] = None
    if notes:
        lines += ["", "Not seen:", "", *(f"- {', '.join(names)}: {note}." for note, names in notes.items())]
    return "\n".join(lines) + "\n"


def half_table() -> str:
    """The part on statistics in bfloat16."""
    lines = [
        "",
        "## Statistics in bfloat16",
        "",
        "Eager attention rounds scores and weights to bfloat16, a kernel neither. What is seen of eager attention equals the",
        "statistics of its `output_attentions`. What is seen of a kernel is as far from them as they are from float64 over the",
        "same q and k: that distance is eager's rounding. First layer, largest difference; deeper layers of the two have other",
        "q and k in bfloat16.",
        "",
        "| model | statistic | seen in eager, from what it returns | seen in the kernel, from what eager returns | what eager returns, from float64 |",
        "|---|---|---|---|---|",
    ]
    for name, _, make in (x for x in families(("BERT", "GPT-2", "Llama", "T5")) if x[1] == "sdpa"):
        torch.manual_seed(0)
        model, inputs = make()
        sharpen(model, SHARPNESS.get(name, 3.0))
        for statistic, apart in half_statistics(model, inputs).items():
            lines.append(f"| {name} | {statistic} | {' | '.join(f'{x:.0e}' for x in apart)} |")
    return "\n".join(lines) + "\n"


def try_all(only: tuple[str, ...] | None = None) -> list[Row]:
    """A row for every model and implementation that there is."""
    rows = []
    for name, implementation, make in (*torch_models(), *families(only)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = try_model(name, implementation, make)
        if row is not None:
            rows.append(row)
            sys.stderr.write(f"{name}, {implementation}: {row.seen // RUNS} seen, {row.unseen} not\n")
    return rows


def main() -> None:
    """Try all models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "lookup" / "models_watched.md"
    )
    parser.add_argument("--quick", action="store_true", help="Only a few families.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    page = table(try_all(SMALL if options.quick else None)) + half_table()
    options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
