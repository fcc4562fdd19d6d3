"""A picture of a matrix that is never stored: every token of a long document against every other, causal.

At a million tokens the weights of one head would take two terabytes. Here they are pooled into cells while
they are computed, tile by tile. The document is made so that the picture proves itself: one chapter is
told sixteen times, and near the end a passage of its beginning is quoted. A token's key says which word it is
and its query asks for the same word, so attention must show

* parallel diagonals, one for each earlier telling of the chapter;
* where the quotation stands, a gap in them and short lines elsewhere: the places it is quoted from.

Usage: python examples/10_a_long_document.py [FOLDER] [--tokens N]
"""

import argparse
import time
from pathlib import Path

import matplotlib as mpl
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from rich.progress import Progress
from torch import Tensor

import sightline as sl

D_HEAD = 128
TELLINGS = 16
SHARPNESS = 256.0  # how much louder a query asks than a key answers


def document(n_tokens: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Unit vectors (1, 1, T, D), one for each token: a chapter told again and again, and a quotation."""
    generator = torch.Generator().manual_seed(0)
    chapter = n_tokens // TELLINGS
    words = torch.randn(chapter, D_HEAD, generator=generator).to(device)
    order = torch.arange(n_tokens, device=device) % chapter
    quoted, at = chapter // 2, n_tokens * 13 // 16 + chapter // 3
    order[at : at + quoted] = torch.arange(quoted, device=device)
    tokens = words[order]
    tokens = F.avg_pool1d(tokens.T[None], 9, stride=1, padding=4)[0].T  # a word leans on its neighbours
    return F.normalize(tokens, dim=-1).to(dtype)[None, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="runs/examples", help="Where the picture goes.")
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--tokens", type=int, default=1 << 20 if on_gpu else 4096)
    wanted = parser.parse_args()
    t, cells = wanted.tokens, min(1024, max(64, wanted.tokens // 32))
    device = torch.device("cuda" if on_gpu else "cpu")
    mask, look = sl.masks.causal(), sl.Look(map=cells)

    with Progress() as bar, torch.no_grad():
        task = bar.add_task("writing the document", total=3)
        k = document(t, device, torch.bfloat16 if on_gpu else torch.float32)
        q = k * SHARPNESS
        sl.look(q, k, k, mask, measure=look, keep=False)  # kernels are compiled and planned when first used
        bar.update(task, advance=1, description=f"looking at {t:,} x {t:,} weights")
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        start = time.perf_counter()
        sight = sl.look(q, k, k, mask, measure=look, keep=False)
        picture = sight.map(cells)[0, 0].float().cpu()  # waits for the device
        seconds = time.perf_counter() - start
        bar.update(task, advance=1, description="drawing")
        path = Path(wanted.folder) / "a_long_document.png"
        draw(picture, t, path)
        bar.update(task, advance=1, description="done")

    print(
        f"{t:,} x {t:,} weights, {2 * t * t / 1e9:.3g} GB in half precision, in {seconds:.2f} s on {device}"
    )
    if on_gpu:
        peak = torch.cuda.max_memory_allocated() / 1e9
        print(f"{torch.cuda.get_device_name()}, {peak:.2f} GB at the peak, inputs and outputs included")
    print(path)
    assert abs(sight.received.sum().item() / t - 1) < 1e-3, "every query gives away exactly one"
    chapter = cells // TELLINGS  # a row near the end must see the chapter's earlier tellings, and little else
    row = picture[-cells // 32 - 1]
    told = row[(cells - cells // 32 - 1) % chapter :: chapter].sum() / row.sum()
    assert told > 0.5, f"the diagonals hold {told:.2f} of the weight"


def draw(picture: Tensor, t: int, path: Path) -> None:
    """Save the picture, brighter where the mean weight is larger; the scale is logarithmic."""
    uniform = 1 / t
    figure = Figure(figsize=(8, 7.4), layout="constrained")
    ax = figure.subplots()
    scale = mpl.colors.LogNorm(uniform, picture.max().item())
    image = ax.imshow(picture.clamp_min(uniform).numpy(), norm=scale, cmap="magma", extent=(0, t, t, 0))
    ax.set(xlabel="key", ylabel="query", title=f"{t:,} tokens: one chapter, told {TELLINGS} times")
    ax.ticklabel_format(style="plain")
    ax.tick_params(axis="x", rotation=20)
    figure.colorbar(image, label="mean weight in a cell", shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main()
