"""Gives the checks of a folder the exercise.py next to them."""

import importlib.util
from types import ModuleType

import pytest


@pytest.fixture
def exercise(request: pytest.FixtureRequest) -> ModuleType:
    """Return the student's file as a module."""
    path = request.path.with_name("exercise.py")
    spec = importlib.util.spec_from_file_location("exercise", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
