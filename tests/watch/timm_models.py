"""timm without torchvision, which only its data sets and transforms use, not its models.

torchvision is tied to one build of torch, so it is not in the environment of the tests. While timm is
imported, empty classes are in its place.
"""

import importlib.util
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

__all__ = ["import_timm"]


class _Anything(type):
    """A class that has every name: members of enumerations."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Empty(ModuleType):
    """A module that has every name: classes."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Finder:
    """Finds torchvision and all below it."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] == "torchvision" else None

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        pass


def import_timm():
    """The package timm; a test is skipped where it is not installed."""
    finder = _Finder()
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pytest.importorskip("timm", reason="timm is not installed: pip install --no-deps timm")
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
