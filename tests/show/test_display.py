"""Figures show themselves: in a notebook, in a window, and with a sentence where there is neither."""

import sys
import types
import warnings

import matplotlib as mpl
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureCanvasBase, FigureManagerBase

import sightline.show
import sightline.textbook
from sightline.positions import sinusoidal


@pytest.fixture
def figure():
    return sightline.show.positions(sinusoidal(8, 6))


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
    waited = ()

    def show(self):
        WindowManager.windows += (self.canvas.figure,)

    @classmethod
    def start_main_loop(cls):
        WindowManager.waited += tuple(manager.canvas.figure for manager in Gcf.get_all_fig_managers())


class WindowCanvas(FigureCanvasBase):
    required_interactive_framework = "headless"
    manager_class = WindowManager


@pytest.fixture
def windows(monkeypatch):
    backend = types.ModuleType("backend_of_a_test")
    backend.FigureCanvas, backend.FigureManager = WindowCanvas, WindowManager
    monkeypatch.setitem(sys.modules, "backend_of_a_test", backend)
    monkeypatch.setattr(WindowManager, "windows", ())
    monkeypatch.setattr(WindowManager, "waited", ())
    import matplotlib.pyplot as plt

    before = mpl.get_backend()
    plt.switch_backend("module://backend_of_a_test")
    yield WindowManager
    plt.close("all")
    plt.switch_backend(before)


def test_where_there_is_a_window_the_figure_is_in_it_and_stays(figure, windows):
    import matplotlib.pyplot as plt

    figure.show()
    assert windows.windows == (figure,)
    assert windows.waited == ()
    plt.show()  # waits, as pyplot does, for windows that it knows of
    assert windows.waited == (figure,)
    figure.show()
    assert len(plt.get_fignums()) == 1  # one window, however often it is shown
    plt.close(figure)
    assert plt.get_fignums() == []


def test_the_exercise_shows_its_heatmap_and_waits_as_its_document_does(windows):
    drawn = sightline.textbook.visualize_positional_encoding(sinusoidal(8, 6))
    assert windows.waited == (drawn,)


def test_the_exercise_says_nothing_where_there_is_no_window():
    with warnings.catch_warnings(), mpl.rc_context({"backend": "agg"}):
        warnings.simplefilter("error")
        assert sightline.textbook.visualize_positional_encoding(sinusoidal(8, 6)).axes
