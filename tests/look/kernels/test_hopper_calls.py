"""Arguments of calls inside the Hopper kernels, and of their launches, fit what is called.

Only a GPU of that kind, with the Triton they were written for, compiles them; here they are read.
"""

import ast
import inspect
from inspect import Parameter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sightline
from sightline.attention.masks import Mask, causal, padding
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.request import Cells, StatsRequest

PACKAGE = "sightline.look.kernels.hopper"
FOLDER = Path(sightline.__file__).parents[1].joinpath(*PACKAGE.split("."))
MODULES = {path.stem: ast.parse(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.py"))}


def defined_in(module):
    """The functions for the GPU that a module defines, by name."""
    functions = (node for node in MODULES[module].body if isinstance(node, ast.FunctionDef))
    return {
        x.name: x for x in functions if any(ast.unparse(y).startswith("gluon.jit") for y in x.decorator_list)
    }


def imported_into(module):
    """Where a module's names from its neighbours come from: (name here, module, name there)."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            for alias in node.names:
                yield alias.asname or alias.name, node.module.rpartition(".")[2], alias.name


def known_in(module):
    known = defined_in(module)
    for here, other, there in imported_into(module):
        if there in defined_in(other):
            known[here] = defined_in(other)[there]
    return known


def signature_of(function):
    """A function's signature as it is written; no other kind of parameter is used for the GPU."""
    given = function.args
    assert not any((given.posonlyargs, given.kwonlyargs, given.vararg, given.kwarg)), function.name
    no_default = len(given.args) - len(given.defaults)
    defaults = [Parameter.empty] * no_default + given.defaults
    return inspect.Signature(
        [
            Parameter(x.arg, Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for x, default in zip(given.args, defaults, strict=True)
        ]
    )


def calls_in(module):
    """(where, called function, call) of each call between functions for the GPU."""
    known = known_in(module)
    for function in defined_in(module).values():
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
                yield f"{module}.py:{node.lineno} {ast.unparse(node)}", known[node.func.id], node


def test_the_kernels_are_found():
    found = {name for module in MODULES for name in defined_in(module)}
    assert found >= {"weights_kernel", "rows_kernel", "top_kernel"}
    called = {function.name for module in MODULES for _, function, _ in calls_in(module)}
    assert called >= {"ring", "fetch", "product"}


@pytest.mark.parametrize("module", MODULES)
def test_what_is_imported_is_there(module):
    for _, other, name in imported_into(module):
        body = MODULES[other].body
        there = {x.name for x in body if isinstance(x, ast.FunctionDef)}
        there |= {ast.unparse(x.targets[0]) for x in body if isinstance(x, ast.Assign)}
        assert name in there, f"{module}.py imports {name} from {other}.py"


@pytest.mark.parametrize("module", MODULES)
def test_calls_fit_what_is_called(module):
    for where, called, call in calls_in(module):
        try:
            signature_of(called).bind(*call.args, **{x.arg: x.value for x in call.keywords})
        except TypeError as error:
            pytest.fail(f"{where}: {error}")


class Launched:
    """Stands for a kernel, and takes only arguments that fit its signature."""

    def __init__(self, module, name):
        self.signature = signature_of(defined_in(module)[name])
        self.calls = []

    def __getitem__(self, grid):
        def run(*args, num_warps, maxnreg, **constants):
            assert (num_warps, maxnreg) in ((4, 128), (4, 168))
            self.calls.append(self.signature.bind(*args, **constants).arguments)

        return run


@pytest.fixture
def launch(monkeypatch):
    launch = pytest.importorskip(f"{PACKAGE}.launch", reason="no Triton with Gluon", exc_type=ImportError)
    for module in ("weights", "rows", "top"):
        monkeypatch.setattr(launch, f"{module}_kernel", Launched(module, f"{module}_kernel"))
    monkeypatch.setattr(launch, "_multiprocessors", lambda device: 132)
    return launch


@pytest.mark.parametrize("mask", [Mask(), causal() & padding(torch.tensor([149, 131]))])
def test_launches_fit_the_kernels(launch, mask):
    from sightline.look.kernels.args import KernelArgs

    b, h, t, s, d = 2, 4, 131, 149, 64
    q, k = torch.zeros(b, h, t, d).half(), torch.zeros(b, 2, s, d).half()
    lse = torch.zeros(b, h, t)
    args = KernelArgs(ScoreInputs(q, k, mask.fitted((b, h), t, s), 0.125))
    whole, keys = torch.zeros(b, h, t).long(), torch.zeros(b, h, s)
    groups = torch.zeros(b, h, t, 8, dtype=torch.int32)
    cells = Cells(3, 5, (0, t), (0, s))
    request = StatsRequest(True, True, True, cells)
    launch.launch(args, launch.plan_weights(args, cells), lse, 192, cells, keys, whole, whole, request)
    launch.launch_rows(args, lse, lse, whole)
    launch.launch_top(args, groups)
    filled = {
        "weights": ("received", keys),
        "rows": ("entropy", lse),
        "top": ("groups", groups),
    }
    for name, (place, tensor) in filled.items():
        (given,) = getattr(launch, f"{name}_kernel").calls
        assert given[f"{place}_ptr"] is tensor, name
        assert [given[x] for x in ("H", "group", "T", "S", "D")] == [h, 2, t, s, d], name


@given(
    n_programs=st.integers(1, 10_000), n_tiles=st.integers(1, 20_000), n_slots=st.sampled_from([1, 396, 528])
)
def test_walks_that_are_shared(n_programs, n_tiles, n_slots):
    walks_of = pytest.importorskip(f"{PACKAGE}.launch", exc_type=ImportError).walks_of
    n_walks = walks_of(n_programs, n_tiles, n_slots)
    assert 1 <= n_walks <= min(n_tiles, 8)
    if n_programs * 2 <= n_slots and n_tiles >= 64:
        assert n_walks > 1, "half of the GPU has nothing to do"
    if n_programs % n_slots == 0:
        assert n_walks == 1, "every program ends at the same time"


@pytest.mark.parametrize("s", [937_984, 1_064_960, 1_310_720, 4_194_240])
def test_no_more_programs_than_a_grid_has(launch, s):
    from sightline.look.kernels.args import KernelArgs

    q = k = torch.empty(1, 1, 1, 64).half().expand(1, 1, s, 64)
    args = KernelArgs(ScoreInputs(q, k, Mask().fitted((1, 1), s, s), 0.125))
    assert 1 <= launch.plan_weights(args, None).n_walks * -(-s // 128) <= 65_535
