"""``look``: attention, and what it attended to."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sightline.attention.attend import attention, is_causal
from sightline.attention.masks import Mask, as_mask
from sightline.attention.scores import Score
from sightline.look.asked import check_measure, fitted, measure_sight
from sightline.look.measure import Measure
from sightline.look.request import Look
from sightline.look.score_inputs import NO_MASK, captured_lse, make_score_inputs
from sightline.look.sight import Sight
from sightline.messages import check_bool
from sightline.shapes import Float, Shaped, are_plain
from sightline.watch.catch import call_kernel, run_with_lse

__all__ = ["look"]

_EVERYTHING = Look()


def look(
    q: Float[Tensor, "... T Dq"],
    k: Float[Tensor, "... S Dk"],
    v: Float[Tensor, "... S Dv"],
    mask: Shaped[Tensor, "..."] | Mask | None = None,
    *,
    measure: Look | Sequence[Measure] = _EVERYTHING,
    score: Score | str | None = None,
    scale: float | None = None,
    keep: bool = True,
    group: Any = None,
) -> Sight:
    """Attend as :func:`sightline.attention` does, and see where the weights went, in O(T + S) memory.

    Args:
        q, k, v, mask, score, scale: Those of :func:`sightline.attention`.
        measure: What to measure, an ``sl.Look`` or a list of ``sl.measures``. Default: received, entropy and
            peak.
        keep: Hold on to q and k, so that maps, rows and tops can be had later. They are not copied: it
            costs what q and k take, once nobody else needs them.
        group: A process group whose ranks have the queries, keys and values of one sequence between them,
            each its own part of T and S, rank after rank; the mask is that of the whole. Every rank calls.
            DTensors, spread over batch, heads or tokens, need none.

    Returns:
        A :class:`Sight`, whose ``output`` is bit for bit that of ``sl.attention``. Its lse, entropy, peak
        and received are differentiable.

    Example:
        >>> q = k = v = 9 * torch.eye(3)[None, None]                # each query matches one key
        >>> sight = look(q, k, v)
        >>> sight.peak_at
        tensor([[[0, 1, 2]]])
        >>> sight.rows([1]).round(decimals=2)
        tensor([[[[0., 1., 0.]]]])
    """
    asked = check_measure(measure)
    check_bool("keep", keep)
    if group is not None:
        from sightline.look.sharded.look import look_in_group  # noqa: PLC0415 (it is rare)

        return look_in_group(q, k, v, mask, group=group, measure=asked, score=score, scale=scale, keep=keep)
    if not type(q) is type(k) is type(v) is Tensor and any(type(x).__name__ == "DTensor" for x in (q, k, v)):
        from sightline.look.sharded.look import look_at_dtensors  # noqa: PLC0415

        return look_at_dtensors(look, q, k, v, mask, measure=asked, score=score, scale=scale, keep=keep)
    output, lses = _attend(q, k, v, mask, score, scale)
    mask = NO_MASK if mask is None else as_mask(mask)
    inputs, lead = make_score_inputs(q, k, v, mask, scale, score)
    measures = fitted(asked, *inputs.shape[2:], strict=True)
    lse = captured_lse(lses, inputs)
    return measure_sight(inputs, measures, lead=lead, lse=lse, output=output, keep=keep)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, score: Score | str | None, scale: float | None
) -> tuple[Tensor, list[Tensor | None]]:
    """What :func:`sightline.attention` gives, and the log-sum-exps of the kernels that it is made of."""
    if score is None and scale is None and are_plain(q, k, v) and (mask is None or is_causal(mask, q, k)):
        known = call_kernel(q, k, v, is_causal=mask is not None)  # as attention would, without a detour
        if known is not None:
            return known[0], [known[1]]
    return run_with_lse(lambda: attention(q, k, v, mask, score=score, scale=scale))
