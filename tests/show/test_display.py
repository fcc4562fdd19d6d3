"""Figures show themselves: in a notebook, in a window, and with a sentence where there is neither."""

import sys
import types
import warnings

import matplotlib as mpl
import pytest
from matplotlib.backend_bases import FigureCanvasBase, FigureManagerBase

import sightline.show
from sightline.positions import sinusoidal
from sightline.show.display import DisplayFigure


@pytest.fixture
def figure():
    return sightline.show.positions(sinusoidal(8, 6))


def test_every_figure_of_the_package_is_one(figure):
    assert isinstance(figure, DisplayFigure)


def test_a_notebook_gets_a_picture(figure):
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_without_a_window_a_sentence_says_what_to_do(figure):
    with mpl.rc_context({"backend": "agg"}), pytest.warns(UserWarning, match=r"'agg'; figure.savefig"):
        figure.show()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.show(warn=False)
    assert figure._repr_png_().startswith(b"\x89PNG")  # it is as good as before


def test_a_notebook_is_asked_first(figure, monkeypatch):
    shown = []
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel="one")
    display = types.ModuleType("IPython.display")
    display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    figure.show()
    assert shown == [figure]


class WindowManager(FigureManagerBase):
    windows = ()

    def show(self):
        WindowManager.windows += (self.canvas.figure,)


class WindowCanvas(FigureCanvasBase):
    required_interactive_framework = "headless"
    manager_class = WindowManager


def test_where_there_is_a_window_the_figure_is_in_it(figure, monkeypatch):
    backend = types.ModuleType("backend_of_a_test")
    backend.FigureCanvas, backend.FigureManager = WindowCanvas, WindowManager
    monkeypatch.setitem(sys.modules, "backend_of_a_test", backend)
    import matplotlib.pyplot as plt

    before = mpl.get_backend()
    plt.switch_backend("module://backend_of_a_test")
    try:
        figure.show()
    finally:
        plt.switch_backend(before)
    assert WindowManager.windows == (figure,)
