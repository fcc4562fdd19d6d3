"""Weights that are sharded over the processes (FSDP2: torch's ``fully_shard``), and how to get at them whole.

Each layer of a model is gathered when it is computed with and let go after it; what is between the layers is
one group of its own. The optimizer's state and the gradients are sharded alike. Buffers are not.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sightline.train.processes import world_size

__all__ = ["is_sharded", "local", "put", "shard", "share_weights", "unsharded", "whole_weights"]


def shard(module: nn.Module, device: torch.device) -> None:
    """Shard the weights of a module over all processes, in place: layer by layer, then what is left."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in _layers(module):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def _layers(module: nn.Module) -> list[nn.Module]:
    """The elements of lists of modules, but those with a weight that is tied to one elsewhere."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    found: dict[str, nn.Module] = {}
    for path, child in module.named_modules():
        if not isinstance(child, nn.ModuleList) or any(path.startswith(f"{outer}.") for outer in found):
            continue
        for i, layer in enumerate(child):
            own, prefix = list(layer.parameters()), f"{path}.{i}."
            if own and all(name.startswith(prefix) for weight in own for name in names[weight]):
                found[f"{path}.{i}"] = layer
    return list(found.values())


@torch.no_grad()
def share_weights(model: nn.Module) -> None:
    """Give the model of every process the weights of the main one's."""
    for tensor in model.state_dict().values() if world_size() > 1 else ():
        dist.broadcast(tensor, src=0)


@contextmanager
def unsharded(model: nn.Module) -> Iterator[None]:
    """Keep a model's weights whole on every process in this block; nothing where they are not sharded.

    Then methods besides ``forward`` work, and no process waits for another.
    """
    groups: list[Any] = [module for module in model.modules() if hasattr(module, "unshard")]
    for group in groups:
        group.set_reshard_after_forward(False, recurse=False)
        group.unshard()
    try:
        yield
    finally:
        for group in groups:
            group.reshard()
            group.set_reshard_after_forward(True, recurse=False)


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor lies in parts on several processes."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Any) -> Tensor:
    """This process's part of a tensor; a tensor that is not sharded is its own."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole_weights(weights: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Weights by name, whole, one after the other, on the CPU where they were sharded; all must call it.

    Args:
        weights: Sharded or not.
        keep: Whether this process wants them; else it helps the others, and gets none.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        full: Any = tensor
        if is_sharded(full):
            full = full.full_tensor().cpu()
        if keep:
            found[name] = full
    return found


@torch.no_grad()
def put(target: Any, value: Any) -> None:
    """Copy a tensor into another; of a whole one, its part into a sharded one. No process waits."""
    if is_sharded(target) and not is_sharded(value):
        from torch.distributed.tensor import DTensor, Replicate  # noqa: PLC0415

        mesh = target.device_mesh
        value = value.to(target.device)
        value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
    target.copy_(value)
