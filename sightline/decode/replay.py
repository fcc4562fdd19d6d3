"""A search captured once as a CUDA graph and replayed: small steps take less time than their launches.

    write = GraphReplay(lambda images: beam(model, model.start(images), width=5, max_length=20))
    write(images).texts(tokenizer)                       # recorded at the first batch of a shape
    write(others)                                        # replayed: one launch for the whole search

A recording is a CUDA graph of all steps, encoder included. It uses the model's weights where they lie, so it
may be trained on between two replays; it always takes ``max_length`` steps. Nothing in it may depend on
chance or wait for the GPU: ``greedy`` and ``beam`` are fine, ``sample`` is not. On a CPU the search is
simply called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sightline.decode.hypotheses import Hypotheses
from sightline.shapes import Shaped

__all__ = ["GraphReplay"]

Search = Callable[[Tensor], Hypotheses]


@dataclass(frozen=True, eq=False)
class _Recording:
    graph: Any
    inputs: Tensor
    found: Hypotheses


class GraphReplay:
    """A search that is captured for each shape of its inputs, and replayed from then on.

    Args:
        search: From inputs to what was decoded.
        most: How many shapes to keep recordings of; the oldest goes first. Each holds the memory of a search.

    Example:
        >>> from sightline.decode.hypotheses import Hypotheses
        >>> search = GraphReplay(lambda x: Hypotheses(x.long()[:, None], x.new_ones(2, 1).long(), x[:, :1]))
        >>> search(torch.tensor([[5.0], [7.0]])).lists()
        [[[5]], [[7]]]
    """

    def __init__(self, search: Search, *, most: int = 4) -> None:
        self._search = search
        self._most = most
        self._recordings: dict[tuple[object, ...], _Recording] = {}

    def __call__(self, inputs: Shaped[Tensor, "B ..."]) -> Hypotheses:
        """Search; the result is the caller's own, a later call does not change it."""
        if not inputs.is_cuda:
            return self._search(inputs)
        key = (tuple(inputs.shape), inputs.dtype, inputs.device)
        if key not in self._recordings:
            if len(self._recordings) == self._most:
                del self._recordings[next(iter(self._recordings))]
            self._recordings[key] = self._recorded(inputs)
        recording = self._recordings[key]
        recording.inputs.copy_(inputs)
        recording.graph.replay()
        found = recording.found
        return Hypotheses(
            ids=found.ids.clone(),
            lengths=found.lengths.clone(),
            scores=found.scores.clone(),
            attention_weights=None if found.attention_weights is None else found.attention_weights.clone(),
        )

    @torch.no_grad()
    def _recorded(self, inputs: Tensor) -> _Recording:
        """Run it twice beside the main stream, so that libraries set themselves up, then record it."""
        with torch.inference_mode(mode=False):  # or it could only be written to in that mode
            held = inputs.clone()
        side = torch.cuda.Stream(inputs.device)
        side.wait_stream(torch.cuda.current_stream(inputs.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self._search(held)
        torch.cuda.current_stream(inputs.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self._search(held)
        return _Recording(graph, held, found)
