"""Launches as they are written down, kept in ``lock.json`` and compared."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

# ruff: noqa: SLF001 (torch has no public way to its kernels)
PATH = Path(__file__).with_name("lock.json")
VERSION = "3.6."
MULTIPROCESSORS = 132  # of an H200


class Launch(NamedTuple):
    """A launch that was compiled.

    Attributes:
        kernel: Its name.
        grid: How many programs.
        args: Each argument with its kind and, but for a tensor, its value.
        ptx: A hash of the machine-independent code.
        wrong: What is wrong with its reductions, if anything.
    """

    kernel: str
    grid: tuple[int, ...]
    args: tuple[str, ...]
    ptx: str
    wrong: tuple[str, ...] = ()


Found = dict[str, list[Launch]]


def record(only: str = "") -> Found:
    """Ask every request whose name holds this text, and return what it launches."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # or a moved kernel would have another PTX
    import triton  # noqa: PLC0415 (in an environment of its own)

    if not triton.__version__.startswith(VERSION):
        raise SystemExit(f"the lock is of Triton {VERSION}x, got {triton.__version__}; see --help")
    found: Found = {}
    with _recorded() as launches:
        from workshop.kernel_lock.requests import requests  # noqa: PLC0415 (after the patches)

        for name, ask in requests():
            if only in name:
                ask()
                found[name] = list(launches)
                launches.clear()
                print(f"{name}: {', '.join(x.kernel for x in found[name]) or 'no kernel'}", flush=True)
    return found


def miscompiled(found: Found) -> list[str]:
    """Return which launches have a reduction that is compiled into a wrong one."""
    lines = (
        f"{name}: {launch.kernel}: {x}"
        for name, launches in found.items()
        for launch in launches
        for x in launch.wrong
    )
    return list(dict.fromkeys(lines))


def write(found: Found, only: str = "") -> None:
    """Keep what was launched: each launch once, and by its number for each request; those not asked stay."""
    if only:
        found = {name: x for name, x in read().items() if only not in name} | found
    found = {name: [x._replace(wrong=()) for x in launches] for name, launches in sorted(found.items())}
    table: dict[Launch, int] = {}
    for launches in found.values():
        for x in launches:
            table.setdefault(x, len(table))
    rows = [[x.kernel, list(x.grid), " ".join(x.args), x.ptx] for x in table]
    requests = {name: [table[x] for x in launches] for name, launches in found.items()}
    lines = ",\n".join(json.dumps(row) for row in rows)
    named = ",\n".join(f"{json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in requests.items())
    PATH.write_text(f'{{"launches": [\n{lines}\n],\n"requests": {{\n{named}\n}}}}\n')


def read(only: str = "") -> Found:
    """Return what is kept."""
    kept = json.loads(PATH.read_text())
    launches = [
        Launch(name, tuple(grid), tuple(args.split(" ")), ptx) for name, grid, args, ptx in kept["launches"]
    ]
    return {name: [launches[i] for i in x] for name, x in kept["requests"].items() if only in name}


def differences(kept: Found, found: Found) -> list[str]:
    """Return a line for each request that launches something else."""
    lines = [f"{name}: not kept" for name in found if name not in kept]
    for name, before in kept.items():
        now = [x._replace(wrong=()) for x in found.get(name, [])]
        if name not in found:
            lines.append(f"{name}: not asked")
        elif now != before:
            lines.append(f"{name}: {_difference(before, now)}")
    return lines


def _difference(before: list[Launch], now: list[Launch]) -> str:
    names = [", ".join(x.kernel for x in launches) for launches in (before, now)]
    if names[0] != names[1]:
        return f"launched {names[0] or 'nothing'}, now {names[1] or 'nothing'}"
    old, new = next((x, y) for x, y in zip(before, now, strict=True) if x != y)
    if old.grid != new.grid:
        return f"{old.kernel} has the grid {new.grid}, not {old.grid}"
    if old.args != new.args:
        gone, come = sorted(set(old.args) - set(new.args)), sorted(set(new.args) - set(old.args))
        return f"{old.kernel} is given {come}, not {gone}"
    return f"{old.kernel} has another PTX"


# What the package believes while requests are asked


@contextlib.contextmanager
def _recorded() -> Iterator[list[Launch]]:
    """Make the package see an H200, and launches a list."""
    from triton.backends.nvidia.compiler import CUDABackend  # noqa: PLC0415
    from triton.runtime import driver  # noqa: PLC0415
    from triton.runtime.jit import JITFunction  # noqa: PLC0415

    launches: list[Launch] = []
    compile_only = JITFunction.run
    known: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self: Any, *args: Any, grid: Any, **constants: Any) -> None:
        constants.pop("warmup")
        compiled = compile_only(self, *args, grid=grid, warmup=True, **constants)
        if compiled.hash not in known:
            known[compiled.hash] = _read_code(compiled)
        named = dict(zip(self.arg_names, args, strict=False)) | constants
        described = tuple(f"{name}={_describe(x)}" for name, x in named.items())
        size = tuple(grid(named) if callable(grid) else grid)
        language = "gluon" if self.is_gluon() else "triton"
        launches.append(Launch(f"{language}:{self.__name__}", size, described, *known[compiled.hash]))

    torch.use_deterministic_algorithms(True)  # what no kernel fills is the same in every run
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (JITFunction, "run", run),
            (CUDABackend, "make_cubin", lambda *_: b""),
            (torch.Tensor, "is_cuda", property(lambda _: True)),
            (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
            (
                torch.cuda,
                "get_device_properties",
                lambda *_: SimpleNamespace(multi_processor_count=MULTIPROCESSORS),
            ),
            (torch, "_scaled_dot_product_flash_attention", torch._scaled_dot_product_flash_attention_for_cpu),
            (torch._C, "_cuda_getDevice", lambda: 0),
        ):
            stack.callback(_put_back, owner, name, vars(owner).get(name, _MISSING))
            setattr(owner, name, value)
        driver.set_active(_Driver())
        yield launches


_MISSING = object()


def _put_back(owner: Any, name: str, value: Any) -> None:
    delattr(owner, name) if value is _MISSING else setattr(owner, name, value)


class _Driver:
    """What Triton asks its driver where nothing is launched."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget  # noqa: PLC0415

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


def _read_code(compiled: Any) -> tuple[str, tuple[str, ...]]:
    from workshop.kernel_lock.reductions import wrong_reductions  # noqa: PLC0415

    return hashlib.sha256(compiled.asm["ptx"].encode()).hexdigest(), tuple(
        wrong_reductions(compiled.asm["ttgir"])
    )


def _describe(x: Any) -> str:
    """Return the kind of an argument and, but for a tensor, its value; without a blank."""
    if isinstance(x, Tensor):
        text = f"{str(x.dtype).removeprefix('torch.')}*{'' if x.data_ptr() % 16 == 0 else ':unaligned'}"
    elif hasattr(x, "block_shape"):  # a tensor as the copy engine reads it
        parts = list(x.shape), list(x.strides), list(x.block_shape), getattr(x, "layout", "")
        text = _describe(x.base) + "".join(map(str, parts))
    else:
        text = repr(x)
    return text.replace(" ", "")
