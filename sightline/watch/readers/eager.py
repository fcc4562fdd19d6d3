"""Weights computed by hand: multiply, soften, multiply again.

Models without a fused path compute ``softmax(q @ k) @ v`` in single operators. They are recognised by what
happens to the numbers: a product of two activations, changed in any way, softened over its last dimension,
and then multiplied over that dimension. The matrix that is there anyway is what a look is taken of.
"""

import collections
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from sightline.look.isolate import isolated

_MANY = 512  # tags, before those of freed memory are thrown away
_SINKS = 1  # columns that stand for no key, and meet no value
_HELD = 2  # softmax outputs held while nobody has multiplied them yet


def _overloads(*names: str) -> frozenset[Any]:
    packets = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    return frozenset(getattr(packet, overload) for packet in packets for overload in packet.overloads())


PRODUCTS = _overloads("bmm", "baddbmm")
MATRICES = _overloads("mm", "addmm")  # scores of one head without a batch, but linear layers too
NESTED = _overloads("matmul")  # of nested tensors it is an operator of its own
SOFTMAX = _overloads("_softmax", "_safe_softmax", "_masked_softmax")
# What may happen to scores before the softmax, and to weights before they meet the values; what torch makes
# of other operators, such as ``to`` of ``_to_copy``, is enough.
CHANGES = _overloads(
    "add", "sub", "rsub", "mul", "div", "masked_fill", "where", "cat", "clone", "_to_copy", "copy_", "copy",
    "native_dropout", "tanh", "constant_pad_nd", "gather", "index", "index_select", "clamp", "clamp_min",
    "maximum", "minimum", "_unsafe_view", "slice_scatter", "nan_to_num", "neg", "stack", "tril", "repeat",
)  # fmt: skip
# A mode in inference mode meets operators that have not been taken apart: some are, some count as they are.
COMPOSITE = _overloads("scaled_dot_product_attention", "_scaled_dot_product_attention_math", "softmax",
                       "matmul", "einsum", "linear", "tensordot")  # fmt: skip
WHOLE = _overloads("to", "dropout", "reshape", "contiguous", "flatten", "type_as")


class EagerWeights:
    """The output of a softmax over scores, until it is multiplied with values."""

    def __init__(
        self,
        weights: Tensor,
        lse: Tensor,
        storage: int,
    ) -> None:
        self.weights: Tensor | None = weights
        self.lse, self.storage = lse, storage
        self.lengths: list[int] | None = None  # how many queries each item has, of nested tensors
        self.shape = tuple(weights.shape)
        self.columns: tuple[int, int] = (0, self.shape[-1])
        self.dtype = weights.dtype  # in which they met their values
        self.is_in_blocks = False  # whether they met their values in another shape
        self.is_of_scores = True  # whether it is known that scores were softened

    def narrow(self, x: Tensor, storage: int) -> None:
        """Note which columns go on, where a view of some of them is passed on: a sink is left behind."""
        n = self.shape[-1]
        if x.is_nested:
            return
        outer = zip(x.shape[:-1], x.stride()[:-1], strict=True)
        whole_rows = x.stride(-1) == 1 and all(size == 1 or stride % n == 0 for size, stride in outer)
        if storage == self.storage and x.size(-1) < n and x.dim() > 1 and whole_rows:
            first = int(x.storage_offset()) % n
            self.columns = (first, first + x.size(-1))


class EagerTracker:
    """Follows scores to their softmax and weights to their product.

    Args:
        is_parameter: Whether a tensor is a parameter of the model, or a view of one: a product with one of
            them makes no scores.
    """

    def __init__(self, is_parameter: Callable[[Tensor], bool]) -> None:
        self._is_parameter = is_parameter
        self._scores: dict[int, StorageWeakRef] = {}
        self._weights: dict[int, tuple[StorageWeakRef, EagerWeights]] = {}
        self._held: collections.deque[EagerWeights] = collections.deque()

    @property
    def is_following(self) -> bool:
        """Whether there are scores or weights whose way is not known yet."""
        for storage, (ref, made) in list(self._weights.items()):
            if not ref.expired() and made.weights is not None:
                return True
            del self._weights[storage]
        for storage, scores in list(self._scores.items()):
            if not scores.expired():
                return True
            del self._scores[storage]
        return False

    @property
    def has_weights(self) -> bool:
        """Whether there may be weights that have not met their values."""
        return bool(self._weights)

    def multiply(self, operands: tuple[Any, ...], result: Tensor) -> EagerWeights | None:
        """Note scores that a product has made; give weights that have met their values in it."""
        a, b = operands
        for x, dim in ((a, -1), (b, -2)) if self._weights else ():
            made = self._weights_of(x)
            if made is None or made.weights is None:
                continue
            made.narrow(x, _storage(x))
            made.dtype = x.dtype
            n = made.columns[1] - made.columns[0]  # of some sparse attention they meet their values in parts
            made.is_in_blocks = not x.is_nested and (x.size(dim) != n or n < made.shape[-1] - _SINKS)
            return made
        if not self._is_parameter(b) and not self._is_parameter(a):
            self._trim()
            self._scores[_storage(result)] = StorageWeakRef(result.untyped_storage())
        return None

    def done(self, made: EagerWeights) -> Tensor:
        """Hand out weights that have been recognised, once: rounded as they met their values."""
        weights = made.weights
        assert weights is not None  # noqa: S101
        made.weights = None
        if made in self._held:
            self._held.remove(made)
        if weights.dtype != made.dtype:
            weights = weights.to(made.dtype).to(weights.dtype)
        return weights if made.columns == (0, made.shape[-1]) else weights[..., slice(*made.columns)]

    def soften(self, args: tuple[Any, ...], weights: Tensor, *, all_heard: bool = True) -> None:
        """Note the weights that a softmax has made of scores; of nested tensors it is believed.

        Args:
            args: What the softmax was given.
            weights: What it gave.
            all_heard: Whether every product was heard; else what was softened may be scores unknown to us.
        """
        scores, dim = args[:2]
        if dim not in (-1, scores.dim() - 1):
            return
        known = scores.is_nested or self._is_scores(scores)
        if known or not all_heard:
            with isolated():
                self._soften(scores, weights.detach(), known=known)

    def _soften(self, scores: Tensor, softened: Tensor, *, known: bool = True) -> None:
        weights, storage = softened, _storage(softened)
        if weights.is_nested:
            dense = torch.nested.to_padded_tensor(scores, -torch.inf)
            weights = torch.nested.to_padded_tensor(weights, 0.0)
            made = EagerWeights(weights.float(), dense.float().logsumexp(-1), storage)
            made.lengths = [part.size(-2) for part in scores.unbind()]
        else:
            exact = scores if scores.dtype == torch.float64 else scores.float()
            weights = weights if weights.dtype == torch.float64 else weights.float()
            made = EagerWeights(weights, exact.logsumexp(-1), storage)
        made.is_of_scores = known
        self._held.append(made)
        while len(self._held) > _HELD:
            self._held.popleft().weights = None
        self._trim()
        self._tag(storage, softened, made)

    def pass_on(self, args: tuple[Any, ...], out: Tensor) -> None:
        """Note what is made of scores or weights."""
        if not self._scores and not self._weights:
            return
        for x in args:
            for part in x if isinstance(x, list | tuple) else (x,):
                if not isinstance(part, Tensor):
                    continue
                made = self._weights_of(part)
                if made is not None:
                    made.narrow(part, _storage(part))
                    self._tag(_storage(out), out, made)
                    return
                if self._is_scores(part):
                    self._scores[_storage(out)] = StorageWeakRef(out.untyped_storage())
                    return

    def _tag(self, storage: int, x: Tensor, made: EagerWeights) -> None:
        self._weights[storage] = (StorageWeakRef(x.untyped_storage()), made)
        self._scores.pop(storage, None)

    def _weights_of(self, x: Tensor) -> EagerWeights | None:
        tag = self._weights.get(_storage(x))
        return None if tag is None or tag[0].expired() else tag[1]

    def _is_scores(self, x: Tensor) -> bool:
        tag = self._scores.get(_storage(x))
        return tag is not None and not tag.expired()

    def _trim(self) -> None:
        if len(self._scores) > _MANY:
            self._scores = {key: ref for key, ref in self._scores.items() if not ref.expired()}
        if len(self._weights) > _MANY:
            self._weights = {key: tag for key, tag in self._weights.items() if not tag[0].expired()}


def _storage(x: Tensor) -> int:
    """The identity of the memory of a tensor, the same for its views."""
    return x.untyped_storage()._cdata  # noqa: SLF001
