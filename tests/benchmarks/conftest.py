import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny inputs gain nothing from threads, which wait for each other where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
