"""Reductions that Triton 3.6 and 3.7 compile into wrong ones, found in a kernel's TTGIR.

A reduction goes over what a thread has, over the lanes of a warp, and over warps. For the lanes these
compilers count those that hold different numbers along the axis, find the first of them, and exchange
numbers with the lanes at that distance times 1, 2, 4 ... So the bits of a lane's number that tell the axis
must follow each other. In

    #linear<{lane = [[0, 1], [0, 2], [0, 4], [0, 0], [0, 8]], ...}>          reduced over axis 1

they are 0, 1, 2 and 4, but numbers are exchanged over bits 0 to 3: half of them are never looked at. Such a
layout comes from a reshape and a reduction before. Triton 3.8 reads the layout as it is.
"""

import re

__all__ = ["wrong_reductions"]

Bases = list[tuple[int, ...]]  # what each bit of a lane's number adds to its place in the tensor

_ALIAS = re.compile(r"^(#\w+) = (#ttg\.\w+<.*>)$", re.MULTILINE)
_REDUCE = re.compile(
    r'"tt\.reduce"\([^)]*\) <\{axis = (\d+) : i32.*?\}\) : \(tensor<([^<>]*), (#.*?)>(?:, tensor|\) ->)',
    re.DOTALL,
)


def wrong_reductions(ttgir: str) -> list[str]:
    """Return what each wrong reduction goes over, once each."""
    aliases = dict(_ALIAS.findall(ttgir))
    found = []
    for axis, tensor, layout in _REDUCE.findall(ttgir):
        *shape, _ = tensor.split("x")
        sizes = tuple(map(int, shape))
        lanes = _lanes(layout, sizes, aliases)
        bits = [i for i, base in enumerate(lanes) if base[int(axis)]]
        if bits and bits != list(range(bits[0], bits[0] + len(bits))):
            found.append(f"a reduction of {tensor} over axis {axis}, which lies in the bits {bits} of a lane")
    n_reductions = ttgir.count('"tt.reduce"')
    if n_reductions != len(_REDUCE.findall(ttgir)):
        raise ValueError(f"{n_reductions} reductions, of which {len(_REDUCE.findall(ttgir))} could be read")
    return list(dict.fromkeys(found))


def _lanes(layout: str, shape: tuple[int, ...], aliases: dict[str, str]) -> Bases:
    kind, inside = _parsed(r"#ttg\.(\w+)<\{(.*)\}>", aliases.get(layout, layout))
    if kind == "slice":
        dim, parent = _parsed(r"dim = (\d+), parent = (.*)", inside)
        d = int(dim)
        wide = _lanes(parent, (*shape[:d], 1, *shape[d:]), aliases)
        return [base[:d] + base[d + 1 :] for base in wide]
    if kind == "linear":
        (lanes,) = _parsed(r".*lane = \[(\[.*?\])\].*", inside)
        bases = [tuple(_numbers(x)) for x in re.findall(r"\[([\d, ]+)\]", lanes)]
    elif kind == "blocked":
        given = {name: _numbers(x) for name, x in re.findall(r"(\w+) = \[([\d, ]+)\]", inside)}
        bases = [
            _unit(len(shape), d, given["sizePerThread"][d] << i)
            for d in given["order"]
            for i in range(given["threadsPerWarp"][d].bit_length() - 1)
        ]
    elif kind == "nvidia_mma":
        rows, columns = len(shape) - 2, len(shape) - 1
        places = (columns, 2), (columns, 4), (rows, 1), (rows, 2), (rows, 4)
        bases = [_unit(len(shape), *x) for x in places]
    else:
        raise ValueError(f"a layout of this kind is not known: {layout}")
    return [tuple(x if x < n else 0 for x, n in zip(base, shape, strict=True)) for base in bases]


def _parsed(pattern: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, text, re.DOTALL)
    if found is None:
        raise ValueError(f"a layout could not be read: {text}")
    return found.groups()


def _unit(n: int, dim: int, step: int) -> tuple[int, ...]:
    return tuple(step if i == dim else 0 for i in range(n))


def _numbers(text: str) -> list[int]:
    return [int(x) for x in re.findall(r"\d+", text)]
