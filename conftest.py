"""What every doctest may use without importing it, a fixed seed, and which tests check shapes."""

import gc
from pathlib import Path

import pytest
import torch

import sightline as sl

# The files that take longest, first: a long one at the end keeps one core busy and the other waiting.
LONGEST = [
    "tests/tasks/test_contract.py",
    "tests/look/kernels/test_look_kernels.py",
    "tests/look/test_watch_implementations.py",
    "tests/look/test_watch_compiled.py",
    "tests/look/kernels/test_question_kernels.py",
    "tests/look/sharded/test_sharded.py",
    "tests/fuzz/test_fuzz.py",
    "tests/test_runs_of_0_1.py",
    "tests/train/test_train_loop.py",
    "tests/train/test_processes.py",
    "tests/show/test_figures.py",
    "tests/serve/test_browser.py",
    "tests/show/explorer/test_browser_pictures.py",
    "tests/attention/test_as_torch.py",
    "tests/look/test_look_questions.py",
    "tests/look/test_look_stream.py",
]
SHAPED_ROOMS = {"attention", "decode", "evaluate", "layers", "look", "models", "positions", "show"}


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, nn=torch.nn, sl=sl)
    torch.manual_seed(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--without-shaped`: the tests that `--jaxtyping-packages` leaves out."""
    parser.addoption("--without-shaped", action="store_true", help="leave out what runs under the shape hook")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole rooms that the shape hook has nothing to say about, and examples that run elsewhere."""
    if collection_path == config.rootpath / "docs/lookup/api.md":  # those of the docstrings
        return True
    hooked = bool(config.getoption("jaxtyping_packages", None))
    is_room = collection_path.parent == config.rootpath / "tests" and collection_path.is_dir()
    return True if hooked and is_room and collection_path.name not in SHAPED_ROOMS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this pass, under the shape hook or without it, and put long files first.

    Those marked `long` are in neither: `make test-long` runs them, and so does a plain `pytest`.
    """
    hooked = bool(config.getoption("jaxtyping_packages", None))
    if not hooked and not config.getoption("--without-shaped"):
        return
    chosen = [item for item in items if _is_shaped(item) == hooked and not any(item.iter_markers("long"))]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen
    long = {config.rootpath / name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: long.get(item.path, len(LONGEST)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported out of the garbage collections of `make test`: a million objects that stay.

    Not elsewhere, for `gc.get_objects`, by which `make mutants` finds functions, leaves it out too.
    """
    if hasattr(session.config, "workerinput"):
        gc.collect()
        gc.freeze()


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
