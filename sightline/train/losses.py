"""Parts of a loss that several tasks share."""

from torch import Tensor

from sightline.shapes import Float

__all__ = ["symmetric_kl"]


def symmetric_kl(log_p: Float[Tensor, "... V"], log_q: Float[Tensor, "... V"]) -> Float[Tensor, "..."]:
    """The divergence of two distributions, both ways: what R-Drop (Liang et al., 2021) makes small.

        KL(p ‖ q) + KL(q ‖ p) = Σ (p - q) (log p - log q)

    R-Drop passes a batch twice under different dropout; p and q are what the two passes predict.

    Args:
        log_p, log_q: Log-probabilities, as ``log_softmax`` gives them.

    Example:
        >>> import torch
        >>> p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])
        >>> symmetric_kl(p.log(), q.log()), symmetric_kl(q.log(), q.log())
        (tensor(0.2747), tensor(0.))
    """
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
