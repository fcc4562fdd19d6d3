"""When to stop, without asking a GPU too often: every question makes the host wait for it."""

import torch
from torch import Tensor

from sightline.shapes import Bool, Int

_EVERY = 8  # steps between two questions to a GPU


def may_ask(device: torch.device, t: int) -> bool:
    """Whether to ask after step ``t`` if all is done: a GPU in some steps only, and never while recorded."""
    if device.type != "cuda":
        return True
    return t % _EVERY == _EVERY - 1 and not torch.cuda.is_current_stream_capturing()


def all_done(done: Bool[Tensor, "..."], t: int) -> bool:
    """Whether all is done after step ``t``, where that may be asked."""
    return may_ask(done.device, t) and bool(done.all())


def check_length(max_length: int) -> None:
    """Refuse a search that may not take a step."""
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1 token, got {max_length}")


def column_index(ids: tuple[int, ...], device: torch.device) -> Int[Tensor, " F"]:
    """Some ids as an index, written on the device: a copy from the host can't be recorded."""
    index = torch.zeros(len(ids), dtype=torch.long, device=device)
    for i, number in enumerate(ids):
        index[i].fill_(number)
    return index
