"""The whole matrix, and everything that can be asked of it: an ``sl.Sight`` without any cleverness."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.oracle.masks import INF


def matrix(q, k, added=None, *, scores=None, scale=None, sink=None):
    """(weights, lse) from the whole matrix; a query with nothing to look at has zeros and -inf.

    ``sink`` is one score per head next to those of the keys, which takes its share of every row.
    """
    k = repeated(q, k)
    if scores is None:
        scores = torch.einsum("...td,...sd->...ts", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    if added is not None:
        scores = scores + added
    empty = (scores == -INF).all(-1, keepdim=True)
    shown = scores.masked_fill(empty, 0.0)
    if sink is not None:
        shown = torch.cat([shown, sink.double()[:, None, None].expand(*shown.shape[:-1], 1)], -1)
    high = shown.detach().amax(-1, keepdim=True)  # torch's own has gradients of one where scores are huge
    lse = ((shown - high).exp().sum(-1).log() + high[..., 0]).masked_fill(empty[..., 0], -INF)
    return shown.softmax(-1)[..., : scores.size(-1)].masked_fill(empty, 0.0), lse


def repeated(q, x):
    """Keys or values with as many heads as the queries."""
    grouped = q.dim() == x.dim() == 4 and q.size(1) != x.size(1)
    return x.repeat_interleave(q.size(1) // x.size(1), 1) if grouped else x


@dataclass(frozen=True, eq=False)
class Dense:
    """The weights (..., T, S) and log-sum-exps (..., T), asked by the names that a sight has."""

    weights: Tensor
    lse: Tensor

    @classmethod
    def of(cls, q, k, added=None, **options):
        """That of queries, keys and what is added to their scores; see :func:`matrix`."""
        return cls(*matrix(q.double(), k.double(), added, **options))

    def __getitem__(self, index):
        return Dense(self.weights[index], self.lse[index])

    @property
    def t(self):
        return self.weights.size(-2)

    @property
    def s(self):
        return self.weights.size(-1)

    @property
    def is_looking(self):
        return (self.weights > 0).any(-1)

    @property
    def entropy(self):
        return -torch.where(self.weights > 0, self.weights * self.weights.clamp(min=1e-300).log(), 0.0).sum(
            -1
        )

    @property
    def received(self):
        return self.weights.sum(-2)

    @property
    def peak(self):
        return self.weights.amax(-1)

    @property
    def peak_at(self):
        return torch.where(self.is_looking, self.weights.argmax(-1), -1)

    @property
    def logit(self):
        return torch.where(self.is_looking, self.peak, 1.0).log() + self.lse

    def map(self, size, queries=None, keys=None):
        """The mean weight in each cell; cell i of n begins at floor(i * length / n)."""
        rows, columns = (size, size) if isinstance(size, int) else size
        (top, bottom), (left, right) = queries or (0, self.t), keys or (0, self.s)
        window = self.weights[..., top:bottom, left:right]
        t, s = bottom - top, right - left
        if (rows, columns) == (t, s):
            return window
        cells = [
            window[..., t * i // rows : t * (i + 1) // rows, s * j // columns : s * (j + 1) // columns]
            for i in range(rows)
            for j in range(columns)
        ]
        return torch.stack([cell.mean((-2, -1)) for cell in cells], -1).unflatten(-1, (rows, columns))

    def rows(self, index):
        return self.weights[..., index, :]

    def columns(self, index):
        return self.weights[..., index]

    def top(self, k):
        values, places = self.weights.topk(k, dim=-1)
        return values, torch.where(values > 0, places, -1)

    def mass(self, groups):
        """The sum of each group of keys; ids number the groups, -1 is none."""
        if isinstance(groups, Tensor):
            groups = [(groups == g).nonzero().flatten() for g in range(int(groups.max()) + 1)]
        return torch.stack([self.weights[..., keys].sum(-1) for keys in groups], -1)

    def received_from(self, queries=None, reduce="sum", *, n_kv_heads=None):
        """The sum, mean or maximum over some queries, and over the heads that share a key head."""
        x = self.weights[..., slice(*(queries or (0, self.t))), :]
        x, dims = (x, -2) if n_kv_heads is None else (x.unflatten(-3, (n_kv_heads, -1)), (-3, -2))
        return {"sum": x.sum, "mean": x.mean, "max": x.amax}[reduce](dims)

    def offsets(self, n, *, first=0):
        """The sums along the diagonals t + first - s = 0 ... n - 1."""
        sums = [self.weights.diagonal(first - i, -2, -1).sum(-1) for i in range(n)]
        return torch.stack(sums, -1)

    def context(self, v):
        """The mixed values."""
        weights = self.weights
        return weights @ (repeated(weights, v.double()) if v.dim() == 4 else v.double())

    def importance(self, v, gradient):
        """|sum of output x gradient| of each head."""
        return (self.context(v) * gradient.double()).sum((-2, -1)).abs()

    def relevance(self, v, gradient):
        """Sums over queries and over keys of weight x its gradient, where that is positive."""
        v = repeated(self.weights, v.double())
        products = (self.weights * (gradient.double() @ v.mT)).clamp(min=0)
        return products.sum(-2), products.sum(-1)
