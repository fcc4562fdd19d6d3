"""Where a measurement was made: numbers without this are no use to anyone else."""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import sightline


def describe(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Name the machine, its devices and the versions, as a JSON object.

    Example:
        >>> list(describe([torch.device("cpu")]))[:6]
        ['machine', 'system', 'devices', 'threads', 'load', 'python']
    """
    cudnn = torch.backends.cudnn
    return {
        "machine": platform.node(),
        "system": platform.platform(),
        "devices": {str(device): device_name(device) for device in devices},
        "threads": torch.get_num_threads(),
        "load": _load(),
        "python": platform.python_version(),
        "sightline": sightline.__version__,
        "torch": str(torch.__version__),
        "triton": _version("triton"),
        "cudnn": cudnn.version() if cudnn.is_available() else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device_name(device: torch.device) -> str:
    """Give the name its maker sells a device under, where the system tells."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _load() -> float | None:
    """How many processes wanted a core, on average over the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
