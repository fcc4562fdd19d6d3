"""What every doctest may use without importing it, a fixed seed, and the parts of `make test`."""

import gc
import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import tests.shape_hook  # noqa: F401 - by this name the hook has it, which begins with the next line

# isort: split
import sightline as sl

_N_MODULES = pytest.StashKey[int]()
SHAPED_ROOMS = {"attention", "decode", "evaluate", "layers", "look", "models", "positions", "show"}


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, nn=torch.nn, sl=sl)
    torch.manual_seed(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part`: the tests that `--jaxtyping-packages` leaves out, by their rooms."""
    parts = ["commands", "plain", "kernels"]
    parser.addoption("--part", choices=parts, help="of what `make test` runs without the shape hook")


def _part(config: pytest.Config) -> str | None:
    """The part of `make test` that this is; None for all tests, the long ones too."""
    return "shaped" if config.getoption("jaxtyping_packages", None) else config.getoption("--part")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole rooms that are of another part, and examples that run elsewhere."""
    if collection_path == config.rootpath / "docs/lookup/api.md":  # those of the docstrings
        return True
    part = _part(config)
    parts = collection_path.relative_to(config.rootpath).parts
    if part is None or len(parts) < 2 or not (collection_path.is_dir() or parts[-1].startswith("test_")):
        return None
    if "kernels" in parts:
        return part != "kernels" or None
    if parts[1] not in SHAPED_ROOMS:
        return part != "commands" or None
    return part == "commands" or (part == "kernels" and not collection_path.is_dir()) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this part of `make test`.

    Those marked `long` are in none: `make test-long` runs them, and so does a plain `pytest`.
    """
    for item in _further_combinations(items):
        item.add_marker(pytest.mark.long)
    part = _part(config)
    if part is None:
        return
    own = [item for item in items if _is_shaped(item) == (part == "shaped")]
    chosen = [item for item in own if not any(item.iter_markers("long"))]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported out of the garbage collections of `make test`: a million objects that stay.

    Not elsewhere, for `gc.get_objects`, by which `make mutants` finds functions, leaves it out too.
    """
    _leave_imported_out(session.config)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The same for what tests import, where that is much."""
    _leave_imported_out(item.config)


def _leave_imported_out(config: pytest.Config) -> None:
    before = config.stash.get(_N_MODULES, 0)
    if len(sys.modules) > before + 100 and (_part(config) or hasattr(config, "workerinput")):
        config.stash[_N_MODULES] = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Give it back: what Triton's bindings hold would be told of as leaked."""
    gc.unfreeze()


def _further_combinations(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the tests marked `combinations`, the cases that bring nothing that others have not."""
    functions = defaultdict(list)
    for item in items:
        if any(item.iter_markers("combinations")):
            functions[item.path, item.originalname].append(item)  # type: ignore[attr-defined]
    further: list[pytest.Item] = []
    for cases in functions.values():
        values = {case: _values(case) for case in cases}
        brings = {case: _pairs(own) for case, own in values.items()}
        missing, used = set[object]().union(*brings.values()), Counter[object]()
        while missing:  # the case that brings most; of equals the one whose values were taken least
            case = max(brings, key=lambda x: (len(brings[x] & missing), -sum(used[v] for v in values[x])))
            missing -= brings.pop(case)
            used.update(values[case])
        further += brings
    return further


def _values(item: pytest.Item) -> list[tuple[object, ...]]:
    """The values of a case: one for each `parametrize`, and one for each fixture that has parameters."""
    params = item.callspec.params  # type: ignore[attr-defined]
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    rows = [x.replace(" ", "").split(",") if isinstance(x, str) else list(x) for x in names]
    rows += [[name] for name in params if not any(name in row for row in rows)]
    return [tuple((name, id(params[name])) for name in row) for row in rows]


def _pairs(values: list[tuple[object, ...]]) -> set[object]:
    """What a case has to bring: its values, or pairs of them where there are more than two."""
    return set(values) if len(values) <= 2 else set(itertools.combinations(values, 2))


def _is_shaped(item: pytest.Item) -> bool:
    """Whether a test runs under the shape hook.

    Kernels do not: the hook rewrites functions whose source Triton must read. Tasks, training and commands
    call what these rooms' own tests call.
    """
    parts = item.path.relative_to(item.config.rootpath).parts
    return (
        parts[0] == "tests"
        and parts[1] in SHAPED_ROOMS
        and "kernels" not in parts
        and not any(item.iter_markers("bad_input"))
        and not any(item.iter_markers("plain"))
    )
