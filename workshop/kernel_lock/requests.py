"""Questions asked through public names, over masks, dtypes, widths of heads and lengths."""

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import sightline as sl

Ask = Callable[[], object]
Shape = tuple[int, int, int, int, int]  # B, H, heads of keys, T, S

ODD: Shape = (2, 4, 2, 521, 523)
EVEN: Shape = (1, 2, 2, 512, 512)  # lengths that are multiples of every tile
LONG: Shape = (1, 1, 1, 2053, 2053)  # long enough for the kernel of mass
HALF = torch.bfloat16
WIDTHS = {torch.bfloat16: (40, 128, 256), torch.float16: (64, 128), torch.float32: (64, 256)}
OTHERS = tuple((dtype, d) for dtype, widths in WIDTHS.items() for d in widths)


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return random numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def lengths(b: int, s: int) -> Tensor:
    """Return how many keys of each item are real."""
    return torch.tensor([s, s - 13][:b])


MASKS: dict[str, Callable[[Shape], sl.Mask | None]] = {
    "none": lambda _: None,
    "causal": lambda _: sl.masks.causal(),
    "causal from start": lambda _: sl.masks.causal(align="start"),
    "window": lambda _: sl.masks.window(37, 11),
    "padding": lambda x: sl.masks.padding(lengths(x[0], x[4])),
    "causal and padding": lambda x: sl.masks.causal() & sl.masks.padding(lengths(x[0], x[4])),
    "bias of keys": lambda x: sl.masks.bias(draw(9, 1, 1, 1, x[4])),
    "bias of heads": lambda x: sl.masks.bias(draw(9, 1, x[1], x[3], x[4], dtype=HALF)),
    "bias and causal": lambda x: sl.masks.bias(draw(9, 1, 1, 1, x[4])) & sl.masks.causal(),
    "allowed": lambda x: sl.Mask(allowed=((draw(8, 1, 1, x[3], x[4]) > -1),)),
}
BY_POSITION = ("none", "causal", "window", "padding")
BY_TENSOR = {"bias of keys", "bias of heads", "bias and causal", "allowed"}


def tensors(shape: Shape, d: int, dtype: torch.dtype, *, grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v."""
    b, h, n_kv, t, s = shape
    sizes = (b, h, t, d), (b, n_kv, s, d), (b, n_kv, s, d)
    q, k, v = (draw(i, *x, dtype=dtype).requires_grad_(grad) for i, x in enumerate(sizes))
    return q, k, v


# What is asked


def statistics(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask what a key receives, and each query's entropy and peak, as far as kernels take the mask."""
    sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=sl.Look(peak=mask != "allowed"))


def statistics_and_map(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask for a map too; cells smaller than a tile, and larger ones."""
    for cells in (16, 3):
        sl.look(
            *tensors(shape, d, dtype), MASKS[mask](shape), measure=sl.Look(map=cells, peak=mask != "allowed")
        )


def of_queries(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask for what needs no sum over queries."""
    measure = sl.Look(received=False, peak=mask != "allowed")
    sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=measure)


def received_alone(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask for what needs no logarithm."""
    sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=sl.Look(entropy=False, peak=False))


def largest(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask for few largest weights, and for many."""
    for k in (3, 11):
        measure = sl.Look(received=False, entropy=False, peak=False, top=k)
        sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=measure)


def later(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask a sight what keys received, their maximum, and the weight at distances."""
    measure = sl.Look(received=False, entropy=False, peak=False)
    sight = sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=measure)
    sight.received_from((shape[3] // 3, shape[3]))
    sight.received_from(None, "max")
    sight.offsets(29, first=2)


def mass(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask for the weight of groups that lie among each other, and of some that follow each other."""
    measure = sl.Look(received=False, entropy=False, peak=False)
    sight = sl.look(*tensors(shape, d, dtype), MASKS[mask](shape), measure=measure)
    sight.mass(torch.arange(shape[4]) % 5)
    sight.mass([slice(i, i + 97) for i in range(0, shape[4] - 97, 97)])


def gradients(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Differentiate what keys receive and the entropy; then the log-sum-exp alone."""
    q, k, v = tensors(shape, d, dtype, grad=True)
    sight = sl.look(q, k, v, MASKS[mask](shape), measure=sl.Look(peak=False))
    both = sight.received.nan_to_num().sum() + sight.entropy.nan_to_num().sum()
    torch.autograd.grad(both, (q, k), retain_graph=True)
    torch.autograd.grad(sight.lse.nan_to_num().sum(), (q, k))


class Attend(nn.Module):
    """A model that attends once."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: sl.Mask | None) -> Tensor:
        """Attend."""
        return sl.attention(q, k, v, mask)


def relevance(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask what mattered for a loss."""
    given, model = tensors(shape, d, dtype, grad=True), Attend()
    with sl.watch(model, grad=True) as seen:
        output = model(*given, MASKS[mask](shape))
    output.backward(draw(7, *output.shape, dtype=dtype))
    _ = seen[""].relevance


def additive(shape: Shape, mask: str, dtype: torch.dtype, d: int) -> None:
    """Attend by additive scores, and differentiate."""
    torch.manual_seed(0)
    q, k, v = tensors(shape, d, dtype, grad=True)
    score = sl.scores.Additive(d, d, 24).to(dtype)
    sl.attention(q, k, v, MASKS[mask](shape), score=score).float().sum().backward()


def average(shape: Shape, _mask: str, dtype: torch.dtype, d: int) -> None:
    """Ask a module for the mean of its weights over the heads."""
    torch.manual_seed(0)
    b, h, _, t, _ = shape
    module = sl.nn.MultiheadAttention(h * d, h, batch_first=True).to(dtype).eval()
    x = draw(1, b, t, h * d, dtype=dtype)
    with torch.no_grad():
        module(x, x, x)


TABLE: dict[str, tuple[Callable[[Shape, str, torch.dtype, int], None], Shape, tuple[str, ...]]] = {
    "statistics": (statistics, ODD, tuple(MASKS)),
    "statistics and map": (statistics_and_map, ODD, tuple(MASKS)),
    "of queries": (of_queries, ODD, tuple(MASKS)),
    "received alone": (received_alone, ODD, ("none", "causal", "bias of keys")),
    "largest": (largest, ODD, tuple(MASKS)),
    "later questions": (later, ODD, (*BY_POSITION, "bias of heads", "allowed")),
    "mass": (mass, LONG, ("none", "causal", "padding", "bias of heads", "allowed")),
    "gradients": (gradients, ODD, (*BY_POSITION, "bias of heads", "allowed")),
    "relevance": (relevance, ODD, (*BY_POSITION, "bias of heads")),
    "additive": (additive, (1, 2, 2, 67, 71), ("causal", "padding", "bias of heads", "allowed")),
    "average": (average, (1, 2, 2, 2081, 2081), ("none",)),
}
MAXIMA = ("statistics", "of queries", "largest")
EVEN_ALSO = ("statistics", "statistics and map", "largest")


def requests() -> Iterator[tuple[str, Ask]]:
    """Yield each request and how it is asked: all masks, and under one all dtypes and widths."""
    for what, (ask, shape, masks) in TABLE.items():
        asked: list[tuple[Shape, str, torch.dtype, int]] = [(shape, mask, HALF, 64) for mask in masks]
        one = "causal" if "causal" in masks else masks[0]
        asked += [(shape, one, dtype, d) for dtype, d in OTHERS]
        for mask in BY_TENSOR & set(masks):
            asked += [(shape, mask, HALF, 128)]
            asked += [(shape, mask, HALF, 256), (shape, mask, torch.float32, 64)] if what in MAXIMA else []
        if what in EVEN_ALSO:
            asked += [(EVEN, mask, HALF, 128) for mask in ("none", "causal", "bias of keys")]
        for shape_, mask, dtype, d in sorted(set(asked), key=str):
            name = f"{what}, {mask}, {str(dtype).removeprefix('torch.')}, {'x'.join(map(str, shape_))}x{d}"

            yield name, functools.partial(ask, shape_, mask, dtype, d)
