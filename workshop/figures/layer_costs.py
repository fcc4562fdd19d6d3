"""Count what one layer costs, by its kind, and draw it: operations, waiting steps, the way between two words.

Usage: python -m workshop.figures.layer_costs [PICTURE]

Self-attention, a recurrent layer and a convolution over three neighbours, of the same width. Operations are
counted by torch as the layer runs. Waiting steps and ways are counted in the graph that torch keeps for its
gradients: the longest chain of matrix products that wait for each other, and the shortest from the last
output to the first word.
"""

import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from workshop import PICTURES

E = 32
LENGTHS = (4, 8, 16, 32, 64, 128)
PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "ConvolutionBackward", "MvBackward")


class Attention(nn.Module):
    """One head of self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))

    def forward(self, words: list[Tensor]) -> Tensor:
        """T words, each (1, E), to (T, E)."""
        x = torch.cat(words)
        return torch.softmax(self.q(x) @ self.k(x).T / E**0.5, dim=-1) @ self.v(x)


class Recurrent(nn.Module):
    """A recurrent layer, one step for each word: state = tanh(W word + U state)."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.state = nn.Linear(E, E), nn.Linear(E, E, bias=False)

    def forward(self, words: list[Tensor]) -> Tensor:
        """T words, each (1, E), to (T, E)."""
        state, states = torch.zeros(1, E), []
        for word in words:
            state = torch.tanh(self.word(word) + self.state(state))
            states.append(state)
        return torch.cat(states)


class Convolution(nn.Module):
    """A convolution over a word and its two neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(E, E, 3, padding=1)

    def forward(self, words: list[Tensor]) -> Tensor:
        """T words, each (1, E), to (T, E)."""
        return self.mix(torch.cat(words).T[None])[0].T


def is_product(node: Any) -> bool:
    """Whether a node of the graph is a matrix product or a convolution."""
    return node.name().rstrip("0123456789") in PRODUCTS


def longest(node: Any) -> int:
    """The longest chain of products below a node."""
    order, seen, stack = [], set(), [(node, False)]
    while stack:
        here, is_done = stack.pop()
        if is_done:
            order.append(here)
        elif here not in seen:
            seen.add(here)
            stack.append((here, True))
            stack += [(below, False) for below, _ in here.next_functions if below is not None]
    depth: dict[Any, int] = {}
    for here in order:
        below = [depth[x] for x, _ in here.next_functions if x is not None]
        depth[here] = max(below, default=0) + is_product(here)
    return depth[node]


def shortest(node: Any, end: Any) -> int | None:
    """The fewest products between two nodes, None where there is no way."""
    best, queue = {node: int(is_product(node))}, deque([node])
    while queue:
        here = queue.popleft()
        for below, _ in here.next_functions:
            if below is not None:
                ways = best[here] + is_product(below)
                if ways < best.get(below, 1 << 30):
                    best[below] = ways
                    queue.append(below)
    return best.get(end)


def layers_to_reach(length: int) -> int:
    """How many convolutions it takes until a mark on the first word has spread to the last place."""
    spread, mark = torch.ones(1, 1, 3), torch.zeros(1, 1, length)
    mark[..., 0] = 1
    layers = 0
    while not mark[..., -1].any():
        mark = torch.nn.functional.conv1d(mark, spread, padding=1).clamp(max=1)
        layers += 1
    return layers


def costs(kind: type[nn.Module], length: int) -> tuple[int, int, int]:
    """Operations and waiting steps of one layer; products from the last output to the first word."""
    torch.manual_seed(0)
    words = [torch.randn(1, E, requires_grad=True) for _ in range(length)]
    with FlopCounterMode(display=False) as counter:
        y = kind()(words)
    steps = longest(y.grad_fn)
    # A convolution reaches one word further with every layer, and each layer is one product.
    way = layers_to_reach(length) if kind is Convolution else shortest(_last(y, kind), _leaf(words[0]))
    return counter.get_total_flops() // 2, steps, way or 0


def _last(y: Tensor, kind: type[nn.Module]) -> Any:
    """The node of the last output: a recurrent layer's outputs have a node each, below the joint."""
    node: Any = y.grad_fn
    return node.next_functions[-1][0] if kind is Recurrent else node


def _leaf(tensor: Tensor) -> Any:
    """The node where a gradient arrives at an input."""
    return tensor.expand_as(tensor).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def draw() -> Figure:
    """Three panels over the length."""
    figure = Figure(figsize=(10, 3.2), layout="constrained", dpi=130)
    panels = figure.subplots(1, 3)
    names = {"self-attention": Attention, "recurrent": Recurrent, "convolution": Convolution}
    for (name, kind), mark in zip(names.items(), "os^", strict=True):
        found = [costs(kind, length) for length in LENGTHS]
        for panel, values in zip(panels, zip(*found, strict=True), strict=True):
            panel.plot(LENGTHS, values, marker=mark, ms=4, lw=1.2, label=name)
    titles = (
        "multiplications of one layer",
        "steps that wait for each other",
        "products from last to first word",
    )
    for panel, title in zip(panels, titles, strict=True):
        panel.set(title=title, xlabel="words T", xscale="log", yscale="log")
        panel.set_xticks(LENGTHS, map(str, LENGTHS))
        panel.minorticks_off()
    panels[0].legend(frameon=False)
    return figure


def main() -> None:
    """Write the picture, and the numbers for the first and last length."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES / "layer_costs.png"
    draw().savefig(out)
    for length in (LENGTHS[0], LENGTHS[3], LENGTHS[-1]):
        for kind in (Attention, Recurrent, Convolution):
            sys.stdout.write(f"T {length:4d} {kind.__name__:12s} {costs(kind, length)}\n")


if __name__ == "__main__":
    main()
