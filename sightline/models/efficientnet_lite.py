"""EfficientNet-Lite up to its last feature grid: a pretrained network that runs on small machines.

Tan & Le, 2019, table 1, as the Lite variants have it: no squeeze-and-excitation, ReLU6, and a stem and a head
that do not grow with the network. Each block widens its channels, looks around in each of them, and narrows
them again:

    x + norm(project(relu6(norm(depthwise(relu6(norm(expand(x))))))))

Parameters have the names of the published weights, and a convolution pads as those were trained: as little
as makes ``ceil(size / stride)`` cells, the odd pixel at the end.
"""

import math
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from sightline.shapes import Float

__all__ = ["EfficientNetLite"]

_STEM, _HEAD = 32, 1280
_EPS, _MOMENTUM = 1e-3, 0.01  # of every batch norm


class _Stage(NamedTuple):
    """Blocks alike: how many, their window, the step of the first, how much they widen, channels."""

    n: int
    kernel: int
    stride: int
    expand: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


class _Conv(nn.Conv2d):
    """A convolution without bias that leaves ``ceil(size / stride)`` cells."""

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(d_in, d_out, kernel, stride, groups=groups, bias=False)

    def forward(self, input: Float[Tensor, "B c h w"]) -> Float[Tensor, "B d y x"]:  # noqa: A002
        kernel, stride = self.kernel_size[0], self.stride[0]
        down, across = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in input.shape[-2:])
        if down or across:
            input = F.pad(input, (across // 2, across - across // 2, down // 2, down - down // 2))  # noqa: A001
        return super().forward(input)


class _Block(nn.Module):
    """An inverted bottleneck."""

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = d_in * expand
        self._expand_conv = _Conv(d_in, wide, 1) if expand > 1 else None
        self._bn0 = _norm(wide) if expand > 1 else None
        self._depthwise_conv = _Conv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = _Conv(wide, d_out, 1)
        self._bn2 = _norm(d_out)
        self._adds = stride == 1 and d_in == d_out

    def forward(self, x: Float[Tensor, "B c h w"]) -> Float[Tensor, "B d y x"]:
        y = x
        if self._expand_conv is not None and self._bn0 is not None:
            y = F.relu6(self._bn0(self._expand_conv(y)))
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return y + x if self._adds else y


class EfficientNetLite(nn.Module):
    """The network without its classes.

    Args:
        width: How many times as many channels as Lite0 has.
        depth: How many times as many blocks.

    Example:
        >>> EfficientNetLite().extract_features(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1280, 2, 2])
    """

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self._conv_stem = _Conv(3, _STEM, 3, 2)
        self._bn0 = _norm(_STEM)
        blocks: list[_Block] = []
        channels = _STEM
        for stage in _STAGES:
            is_end = stage in (_STAGES[0], _STAGES[-1])
            for i in range(stage.n if is_end else math.ceil(depth * stage.n)):
                wide = _multiple_of_8(width * stage.channels)
                stride = stage.stride if i == 0 else 1
                blocks.append(_Block(channels, wide, stage.kernel, stride, stage.expand))
                channels = wide
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = _Conv(channels, _HEAD, 1)
        self._bn1 = _norm(_HEAD)

    def extract_features(self, images: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B C y x"]:
        """The last grid: 1280 channels, a cell for every 32 x 32 pixels."""
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPS, momentum=_MOMENTUM)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, never a tenth below."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8
