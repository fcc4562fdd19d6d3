import torch

from sightline.models.without_cudnn_sdpa import without_cudnn_sdpa


def test_cudnn_is_left_out_inside_and_comes_back(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with without_cudnn_sdpa():
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_without_a_gpu_nothing_is_touched(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with without_cudnn_sdpa():
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
