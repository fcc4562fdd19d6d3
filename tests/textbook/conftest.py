"""Figures as a document prints them."""

import pytest
import torch


@pytest.fixture
def agrees():
    """Compare a tensor with printed figures, to the four digits that are printed."""

    def compare(found, figures):
        torch.testing.assert_close(found.detach().float(), torch.tensor(figures), rtol=0, atol=0.51e-4)

    return compare
