"""The same with gradients: received, entropy, peak and lse as one function of q and k."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.args import KernelArgs
from sightline.look.kernels.backward import by_key_kernel, by_query_kernel
from sightline.look.kernels.measure import measure as measure_no_grad
from sightline.look.kernels.request import Stats, StatsRequest
from sightline.shapes import Float


def measure(inputs: ScoreInputs, request: StatsRequest, lse: Float[Tensor, "B H T"] | None = None) -> Stats:
    """Measure, so that lse, received, entropy and peak carry gradients to q and k."""
    stats: list[Stats] = []
    kept = inputs.detached()
    lse, received, entropy, peak = _MeasureFunction.apply(
        inputs.q, inputs.k, kept, request, None if lse is None else lse.detach(), stats
    )
    return stats[0]._replace(lse=lse, received=received, entropy=entropy, peak=peak)


class _MeasureFunction(torch.autograd.Function):
    """(q, k) -> lse, received, entropy, peak; what else was found is handed out beside them."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        inputs: ScoreInputs,
        request: StatsRequest,
        lse: Tensor | None,
        stats: list[Stats],
    ) -> tuple[Tensor | None, ...]:
        seen = measure_no_grad(inputs, request, lse)
        stats.append(seen)
        ctx.inputs = inputs
        ctx.set_materialize_grads(False)  # what no loss asks for costs no pass over the weights
        ctx.save_for_backward(q, k, seen.lse, seen.entropy, seen.peak, seen.peak_at)
        return seen.lse, seen.received, seen.entropy, seen.peak

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        g_lse: Tensor | None,
        g_received: Tensor | None,
        g_entropy: Tensor | None,
        g_peak: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        if g_lse is g_received is g_entropy is g_peak is None:
            return (None,) * 6
        q, k, lse, entropy, peak, peak_at = ctx.saved_tensors
        args = KernelArgs(ctx.inputs)
        slope = torch.zeros_like(lse) if g_lse is None else g_lse.float()
        if g_entropy is not None and entropy is not None:
            slope = slope - g_entropy * entropy
        if g_peak is not None and peak is not None:
            slope = slope - g_peak * peak
        g_received = None if g_received is None else g_received.float().contiguous()
        if g_received is not None:
            weighted_sum = torch.empty_like(lse)
            _run_by_query(args, lse, lse, None, g_received, weighted_sum, gradient=False)
            slope = slope - weighted_sum
        slope = slope.contiguous()
        g_entropy = None if g_entropy is None else g_entropy.float().contiguous()
        b, h, t, s = ctx.inputs.shape
        peaks, grouped = g_peak is not None and peak is not None, k.size(1) != h
        grad_q = q.new_empty((b, h, t, q.size(3)), dtype=torch.float32 if peaks else q.dtype)
        grad_k = q.new_empty((b, h, s, q.size(3)), dtype=torch.float32 if peaks or grouped else k.dtype)
        _run_by_query(args, lse, slope, g_entropy, g_received, grad_q, gradient=True)
        _run_by_key(args, lse, slope, g_entropy, g_received, grad_k)
        if g_peak is not None and peak is not None:
            _add_peaks(grad_q, grad_k, q, k, g_peak * peak * ctx.inputs.scale, peak_at)
        grad_k = grad_k.view(b, k.size(1), -1, s, q.size(3)).sum(2) if grouped else grad_k
        return grad_q.to(q.dtype), grad_k.to(k.dtype), None, None, None, None


def _run_by_query(
    args: KernelArgs,
    lse: Tensor,
    slope: Tensor,
    g_entropy: Tensor | None,
    g_received: Tensor | None,
    out: Tensor,
    *,
    gradient: bool,
) -> None:
    tile = args.tiles.by_query if gradient else args.tiles.weighted_sum
    by_query_kernel[args.blocks(args.t, tile.queries)](
        *args.tensors, lse, *args.mask, slope, lse if g_entropy is None else g_entropy,
        lse if g_received is None else g_received, out, *args.sizes, *args.scale_and_band,
        GRADIENT=gradient, RECEIVED=g_received is not None, ENTROPY=g_entropy is not None, **args.has,
        PRECISION=args.precision, BM=tile.queries, BN=tile.keys, BD=args.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip


def _run_by_key(
    args: KernelArgs,
    lse: Tensor,
    slope: Tensor,
    g_entropy: Tensor | None,
    g_received: Tensor | None,
    out: Tensor,
) -> None:
    tile = args.tiles.by_key
    by_key_kernel[args.blocks(args.s, tile.keys)](
        *args.tensors, lse, *args.mask, slope, lse if g_entropy is None else g_entropy,
        lse if g_received is None else g_received, out, *args.sizes, *args.scale_and_band,
        RECEIVED=g_received is not None, ENTROPY=g_entropy is not None, **args.has,
        PRECISION=args.precision, BM=tile.queries, BN=tile.keys, BD=args.width,
        STAGES=tile.stages, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
    )  # fmt: skip


def _add_peaks(grad_q: Tensor, grad_k: Tensor, q: Tensor, k: Tensor, slope: Tensor, peak_at: Tensor) -> None:
    """What a peak's gradient adds at the pair that has it."""
    group = q.size(1) // k.size(1)
    heads, s, d = peak_at.size(0) * peak_at.size(1), grad_k.size(2), q.size(3)
    at = peak_at.clamp(min=0)
    slope = slope.unsqueeze(-1)
    keys = k.repeat_interleave(group, 1) if group > 1 else k
    grad_q.add_(slope * keys.gather(2, at.unsqueeze(-1).expand(*at.shape, d)))
    # Queries may share a key: index_put_ sorts the rows first, so that the same sum comes out every time.
    rows = at.reshape(heads, at.size(2)) + s * torch.arange(heads, device=at.device).unsqueeze(1)
    grad_k.view(-1, d).index_put_((rows.view(-1),), (slope * q.float()).reshape(-1, d), accumulate=True)
