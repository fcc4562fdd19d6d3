"""A figure that shows itself: in a notebook as the last line of a cell, and in a window where there is one.

Figures made here know nothing of pyplot and its windows, so none stays open in a long run;
``figure.show()`` joins them to a window of their own, which pyplot knows of from then on, and says what to
do where no window can be opened.
"""

import importlib
import io
import sys
import warnings

from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure

__all__ = ["DisplayFigure", "is_notebook"]


class DisplayFigure(Figure):
    """A matplotlib figure with a picture for notebooks and a ``show`` that works without pyplot."""

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

    def show(self, warn: bool = True, *, wait: bool = False) -> None:
        """Show the figure in the notebook or in a window of its own.

        As in matplotlib, a program that ends takes its windows along: ``wait=True``, or ``plt.show()``
        after the last figure, waits until they are closed.

        Args:
            warn: Whether a sentence says so where there is neither.
            wait: Whether to go on as ``plt.show()`` does: in a program, when all windows are closed.
        """
        if is_notebook():
            importlib.import_module("IPython.display").display(self)
            return
        import matplotlib.pyplot as plt  # noqa: PLC0415 - it chooses a backend

        manager = self.canvas.manager
        if manager is None or manager not in Gcf.get_all_fig_managers():
            number = max(plt.get_fignums(), default=0) + 1
            make = plt.new_figure_manager  # of whatever its class makes: of this very figure
            manager = make(number, FigureClass=lambda *_, **__: self)  # type: ignore[no-untyped-call]
        if manager.canvas.required_interactive_framework is None:
            if warn:
                warnings.warn(
                    f"no window can be opened here, matplotlib's backend is {plt.get_backend()!r}; "
                    "figure.savefig('figure.png') writes the figure, and a notebook shows it",
                    UserWarning,
                    stacklevel=2,
                )
            return
        Gcf._set_new_active_manager(manager)  # noqa: SLF001 - pyplot has no other door for a figure it did not make
        manager.show()
        if wait:
            plt.show()


def is_notebook() -> bool:
    """Whether a notebook or a console that shows pictures runs this; a terminal's IPython is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
