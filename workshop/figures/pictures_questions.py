"""Make the pictures of the how-to pages, from three small models that are trained here.

Usage: python -m workshop.figures.pictures_questions [MODELS] [FOLDER]

MODELS keeps the trained models, so that they are trained once; FOLDER gets the pictures (docs/pictures).
"""

import csv
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor, nn

import sightline as sl
from sightline.look import flow
from sightline.look.heads import head_table
from sightline.show.style import ACCENT, COLOURS, LINE, MAY_LOOK, SOFT, style
from workshop import PICTURES
from workshop.figures.pictures_questions_models import (
    N_FRAMES,
    N_SYMBOLS,
    PATCH,
    PERIOD,
    Listener,
    Repeater,
    digit_images,
    digit_model,
    listener,
    make_digit_model,
    repeater,
    stretched,
)

INK, GREY, WARM = SOFT, LINE, ACCENT


def kept(folder: Path, name: str, train: Callable[[], nn.Module], make: Callable[[], nn.Module]) -> Any:
    """A model, trained unless it has been."""
    path = folder / f"{name}.pt"
    if path.exists():
        model = make()
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    model = train()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    return model.eval()


def sheet(width: float, height: float, title: str) -> Figure:
    """An empty figure with its title."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", fontsize=12)
    return figure


def tidy(ax: Axes, **labels: str) -> None:
    """Quiet axes with names."""
    ax.set(**labels)  # type: ignore[arg-type]
    ax.tick_params(colors=INK)
    ax.spines["bottom"].set(visible=True, color=LINE)


def mass_picture(model: nn.Module) -> Figure:
    """How much of each head's weight the class token puts on ink."""
    _, _, images, _ = digit_images()
    ink = F.avg_pool2d(images, PATCH).flatten(1) > 0.15  # (B, patches)
    groups = F.pad(ink.long(), (1, 0), value=2)  # paper 0, ink 1, the class token 2
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(images)
    shares, names = [], []
    for layer, name in enumerate(seen.names()):
        mass = seen.calls(name)[0].mass(groups)[:, :, 0].mean(0)  # (H, 3), of the class token's row
        shares += mass.tolist()
        names += [f"{layer}.{head}" for head in range(len(mass))]
    chance = ink.float().mean().item() * ink.size(1) / (ink.size(1) + 1)
    figure = sheet(7.2, 3.1, "Where the class token looks: ink, paper, or itself")
    ax = figure.subplots()
    bottom = [0.0] * len(names)
    for group, (word, colour) in ((1, ("ink", MAY_LOOK)), (0, ("paper", GREY)), (2, ("itself", WARM))):
        heights = [share[group] for share in shares]
        ax.bar(names, heights, bottom=bottom, color=colour, label=word, width=0.75)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    ax.axhline(chance, color=INK, linewidth=1, linestyle="--")
    ax.annotate(
        f"share of patches with ink, {chance:.2f}",
        (len(names) - 0.45, chance),
        color=INK,
        va="bottom",
        fontsize=9,
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=10)
    tidy(ax, xlabel="layer.head", ylabel="share of the weight")
    return figure


def edit_picture(model: nn.Module) -> Figure:
    """Accuracy when each head is removed, in the order of importance."""
    _, _, images, labels = digit_images()
    with sl.watch(model, grad=True) as seen:
        F.cross_entropy(model(images), labels).backward()
    importance = {
        (name, head): float(x)
        for name in seen
        for head, x in enumerate(seen.calls(name)[0].importance.mean(0))
    }
    order = sorted(importance, key=lambda key: -importance[key])
    layers = {name: i for i, name in enumerate(seen.names())}

    def accuracy() -> float:
        with torch.no_grad():
            return (model(images).argmax(-1) == labels).float().mean().item()

    whole, without = accuracy(), []
    for name, head in order:
        with sl.edit(model, layers=name, heads=[head], ablate="zero"):
            without.append(accuracy())
    figure = sheet(7.2, 3.1, "Accuracy without each head; heads in the order of their importance")
    ax = figure.subplots()
    names = [f"{layers[name]}.{head}" for name, head in order]
    ax.bar(names, without, color=MAY_LOOK, width=0.7)
    ax.axhline(whole, color=INK, linewidth=1, linestyle="--")
    ax.annotate(
        f"all heads {whole:.3f}", (len(names) - 0.5, whole), ha="right", va="bottom", color=INK, fontsize=9
    )
    for i, height in enumerate(without):
        ax.annotate(f"{height:.2f}", (i, height - 0.05), ha="center", va="top", color="white", fontsize=9)
    ax.set_ylim(0, 1.08)
    tidy(ax, xlabel="layer.head, the most important first", ylabel="accuracy")
    return figure


def relevance_picture(model: nn.Module) -> Figure:
    """Which patches mattered for the class, beside where the class token looks."""
    _, _, images, labels = digit_images()
    chosen = torch.stack([(labels == digit).nonzero()[0, 0] for digit in (0, 2, 3, 4, 7)])
    x, y = images[chosen], labels[chosen]
    with sl.watch(model, grad=True) as seen:
        logits = model(x)
    logits.gather(1, y[:, None]).sum().backward()
    sights = [seen.calls(name)[0] for name in seen]
    side = x.size(-1) // PATCH
    rows = {
        "the digit": x[:, 0],
        "last layer's weights": sights[-1]
        .mean_heads()
        .rows([0])[:, 0, 1:]
        .detach()
        .unflatten(-1, (side, side)),
        "relevance": flow.relevance(sights, token=0)[:, 1:].detach().unflatten(-1, (side, side)),
    }
    figure = sheet(7.2, 4.2, "Which patches mattered for the class that is right")
    axes = figure.subplots(len(rows), len(x))
    for i, (word, pictures) in enumerate(rows.items()):
        for j, picture in enumerate(pictures):
            axes[i, j].imshow(picture, cmap="gray_r" if i == 0 else COLOURS)
            axes[i, j].set(xticks=[], yticks=[])
        axes[i, 0].set_ylabel(word, color=INK, fontsize=9)
    return figure


def monitor_picture() -> Figure:
    """The largest logit of every head while a model trains, at a good learning rate and at one too large."""
    figure = sheet(7.2, 3.1, "The largest logit of each head, while the digits are learned")
    axes, largest = figure.subplots(1, 2, sharey=True), []
    for ax, rate in zip(axes, (3e-3, 6e-2), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "heads.csv"
            monitors: list[sl.Monitor] = []

            def follow(model: nn.Module, path: Path = path, monitors: list[sl.Monitor] = monitors) -> None:
                monitors.append(sl.Monitor(model, every=5, log=path))

            digit_model(n_steps=150, lr=rate, follow=follow)
            monitors[0].close()
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        heads = sorted({(row["layer"], row["head"]) for row in rows})
        for head in heads:
            curve = [row for row in rows if (row["layer"], row["head"]) == head]
            first = head[0] == heads[0][0]
            steps, logits = ([float(row[name]) for row in curve] for name in ("step", "max_logit"))
            ax.plot(steps, logits, color=MAY_LOOK if first else WARM, linewidth=1.3)
        ax.set(yscale="log")
        largest.append(max(float(row["max_logit"]) for row in rows))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_title(f"learning rate {rate:g}", loc="left", fontsize=10, color=INK)
        tidy(ax, xlabel="step")
    axes[0].set_ylim(0.5, 1.5 * max(largest))
    axes[0].set_ylabel("largest score before the softmax", color=INK)
    axes[0].plot([], [], color=MAY_LOOK, label="layer 0")
    axes[0].plot([], [], color=WARM, label="layer 1")
    axes[0].legend(fontsize=9)
    return figure


def read_twice(model: nn.Module) -> tuple[Tensor, Any]:
    """A random sequence, and again, with what the model attends to."""
    torch.manual_seed(1)
    half = torch.randint(N_SYMBOLS, (64, PERIOD))
    ids = torch.cat([half, half], 1)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(ids)
    return ids, seen


def heads_picture(model: nn.Module) -> Figure:
    """The weight at each distance, for the heads of a model that has learned to repeat."""
    _, seen = read_twice(model)
    table = head_table(seen, period=PERIOD)
    figure = sheet(7.6, 3.6, f"Weight by distance t - s, in a sequence that repeats after {PERIOD} tokens")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    for layer, name in enumerate(seen.names()):
        offsets = seen.calls(name)[0].offsets(2 * PERIOD).mean(0) / (2 * PERIOD)
        for head, curve in enumerate(offsets):
            ax = axes[layer, head]
            row = next(row for row in table if (row.layer, row.head) == (name, head))
            ax.bar(range(len(curve)), curve, color=MAY_LOOK if row.kind else GREY, width=1.0)
            ax.set_title(f"{layer}.{head} {row.kind}", loc="left", fontsize=9, color=INK)
            tidy(ax)
    axes[1, 0].set(xlabel="distance", ylabel="weight")
    return figure


def cache_picture(model: nn.Module) -> Figure:
    """What each key received from the last queries, and the keys that a cache keeps."""
    _, seen = read_twice(model)
    sight = seen.calls(seen.names()[1])[0]
    t = sight.t
    received = sight.received_from((t - 8, t), "mean")[0].sum(0)
    keep = received[: t - 8].topk(12).indices
    colours = [WARM if i >= t - 8 else MAY_LOOK if i in keep else GREY for i in range(t)]
    figure = sheet(7.2, 2.8, "What the last eight queries looked at, and the twelve keys worth keeping")
    ax = figure.subplots()
    ax.bar(range(t), received, color=colours, width=0.85)
    for word, colour in (("forgotten", GREY), ("kept", MAY_LOOK)):
        ax.bar([0], [0], color=colour, label=word)
    # hardly looked at itself, so its bars alone would not show where it is
    ax.axvspan(t - 8.5, t - 0.5, color=WARM, alpha=0.15, linewidth=0, label="the last eight")
    ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.68, 1.0))
    tidy(ax, xlabel="key", ylabel="mean weight received")
    return figure


def align_picture(model: nn.Module) -> Figure:
    """The path through the cross-attention of a model that writes down what it hears."""
    torch.manual_seed(3)
    frames, words, starts = stretched(32)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(frames, words)
    name = next(name for name in seen if "multihead" in name)
    sight = seen.calls(name)[0]
    path = sl.align(sight, filter_width=3)
    error = (path - starts)[:, :9].abs().float().mean().item()
    figure = sheet(7.2, 3.4, f"When each word was spoken: off by {error:.1f} frames on average")
    ax = figure.subplots()
    ax.imshow(sight[0].mean_heads().map((sight.t, sight.s)), cmap=COLOURS, aspect="auto")
    ax.step(path[0], range(sight.t), color="white", linewidth=2, where="post", label="alignment")
    ax.plot(starts[0], range(sight.t), "o", color=WARM, markersize=5, label="truth")
    ax.legend(fontsize=9, loc="upper right", labelcolor="white")
    ax.set_xlim(-0.5, N_FRAMES - 0.5)
    tidy(ax, xlabel="frame", ylabel="word")
    return figure


def main() -> None:
    """Train what is not there yet, and draw all seven."""
    models = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURES
    digits = kept(models, "digits", digit_model, make_digit_model)
    repeats = kept(models, "repeater", repeater, Repeater)
    listens = kept(models, "listener", listener, Listener)
    pictures: dict[str, Callable[[], Figure]] = {
        "mass": lambda: mass_picture(digits),
        "edit": lambda: edit_picture(digits),
        "relevance": lambda: relevance_picture(digits),
        "monitor": monitor_picture,
        "heads": lambda: heads_picture(repeats),
        "cache": lambda: cache_picture(repeats),
        "align": lambda: align_picture(listens),
    }
    for name, draw in pictures.items():
        with style():
            draw().savefig(folder / f"howto_{name}.png")


if __name__ == "__main__":
    main()
