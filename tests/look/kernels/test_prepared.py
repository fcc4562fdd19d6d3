"""Which launches share a compiled kernel, with a stand-in for Triton's compiler."""

import pytest
import torch

prepared = pytest.importorskip("sightline.look.kernels.prepared")  # needs triton


STREAM = 17


class Compiled:
    def __init__(self, launches):
        self.launches = launches

    function, packed_metadata = "function", "metadata"

    def __getitem__(self, grid):
        return lambda *args: self.launches.append((grid, args))

    def run(self, x, y, z, *args):
        assert args[:6] == (STREAM, self.function, self.packed_metadata, None, None, None)
        self.launches.append(((x, y, z), args[6:]))


class Kernel:
    arg_names = ("x", "n", "scale", "WIDE", "BM")

    def __init__(self):
        self.compiled, self.launches = [], []

    def __getitem__(self, grid):
        def run(*args, **constants):
            self.compiled.append((grid, args, constants))
            return Compiled(self.launches)

        return run


class Descriptor:
    def __init__(self, base, block_shape=(1, 16), layout="rows", padding="zero"):
        self.base, self.block_shape, self.layout, self.padding = base, list(block_shape), layout, padding


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(prepared, "JITFunction", Kernel)
    monkeypatch.setattr(prepared, "CompiledKernel", Compiled)
    monkeypatch.setattr(prepared, "_kept", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: STREAM, raising=False)
    return Kernel()


X = torch.zeros(64)  # begins at a multiple of 16 bytes
CONSTANTS = {"BM": 16, "WIDE": True, "num_warps": 4}


def test_the_second_launch_gives_the_kernel_all_its_arguments_in_its_own_order(kernel):
    other = torch.ones(64)
    prepared.launch(kernel, (3, 5), X, 7, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == 1
    assert not kernel.launches
    prepared.launch(kernel, (11, 13), other, 7, 0.25, **CONSTANTS)
    assert len(kernel.compiled) == 1
    ((grid, args),) = kernel.launches
    assert grid == (11, 13, 1)
    assert args[0] is other
    assert args[1:] == (7, 0.25, True, 16)


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profiler_that_waits_for_launches_is_told(kernel, monkeypatch, hook):
    prepared.launch(kernel, (3, 5), X, 7, 0.5, **CONSTANTS)
    monkeypatch.setattr(prepared.knobs.runtime, hook, print)
    monkeypatch.setattr(Compiled, "run", None)
    prepared.launch(kernel, (3, 5), X, 7, 0.5, **CONSTANTS)
    assert [grid for grid, _ in kernel.launches] == [(3, 5, 1)]


@pytest.mark.parametrize(
    ("args", "constants"),
    [
        ((X.double(), 7, 0.5), {}),
        ((X.int(), 7, 0.5), {}),
        ((X[1:], 7, 0.5), {}),  # begins 4 bytes later
        ((X, 1, 0.5), {}),  # compiled in
        ((X, True, 0.5), {}),
        ((X, 16, 0.5), {}),  # a multiple of 16
        ((X, 2**31, 0.5), {}),  # 64 bits
        ((X, 7, 1), {}),
        ((X, 7, None), {}),
        ((X, 7, X), {}),
        ((Descriptor(X), 7, 0.5), {}),
        ((X, 7, 0.5), {"WIDE": False}),
        ((X, 7, 0.5), {"WIDE": 1}),
        ((X, 7, 0.5), {"BM": 32}),
        ((X, 7, 0.5), {"num_warps": 8}),
        ((X, 7, 0.5), {"maxnreg": 168}),
    ],
)
def test_whatever_changes_the_compiled_kernel_compiles_another(kernel, args, constants):
    prepared.launch(kernel, (1, 1), X, 7, 0.5, **CONSTANTS)
    prepared.launch(kernel, (1, 1), *args, **{**CONSTANTS, **constants})
    assert len(kernel.compiled) == 2
    assert not kernel.launches


@pytest.mark.parametrize(
    "other",
    [
        Descriptor(X.half()),
        Descriptor(X, block_shape=(1, 32)),
        Descriptor(X, layout="columns"),
        Descriptor(X, padding="nan"),
    ],
)
def test_descriptors_are_told_apart(kernel, other):
    for x in (Descriptor(X), other, Descriptor(X[16:])):
        prepared.launch(kernel, (1, 1), x, 7, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == 2
    assert len(kernel.launches) == 1


def test_equal_numbers_of_other_types_are_told_apart(kernel):
    for n in (1, True, 1.0, 1):
        prepared.launch(kernel, (1, 1), X, n, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == 3
    assert len(kernel.launches) == 1


def test_kernels_and_devices_are_told_apart(kernel, monkeypatch):
    other = Kernel()
    for each in (kernel, other, kernel):
        prepared.launch(each, (1, 1), X, 7, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == len(other.compiled) == len(kernel.launches) == 1
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    prepared.launch(kernel, (1, 1), X, 7, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == 2


def test_what_the_interpreter_runs_is_never_kept(kernel, monkeypatch):
    monkeypatch.setattr(prepared, "JITFunction", Compiled)  # so the kernel is none
    for _ in range(2):
        prepared.launch(kernel, (1, 1), X, 7, 0.5, **CONSTANTS)
    assert len(kernel.compiled) == 2
    assert not prepared._kept


def test_the_table_does_not_grow_without_end(kernel, monkeypatch):
    monkeypatch.setattr(prepared, "_MAX_KEPT", 3)
    for n in range(2, 12):
        prepared.launch(kernel, (1, 1), X, n, 0.5, **CONSTANTS)
        assert len(prepared._kept) <= 3
