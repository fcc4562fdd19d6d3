"""Parts of losses against torch's own."""

import torch
import torch.nn.functional as F

from sightline.train.losses import symmetric_kl


def test_symmetric_kl_is_torchs_divergence_both_ways() -> None:
    log_p, log_q = (torch.randn(3, 5, 7, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    both = F.kl_div(log_q, log_p, log_target=True, reduction="none")
    both = both + F.kl_div(log_p, log_q, log_target=True, reduction="none")
    torch.testing.assert_close(symmetric_kl(log_p, log_q), both.sum(-1))
    assert torch.equal(symmetric_kl(log_p, log_p), torch.zeros(3, 5, dtype=torch.float64))
