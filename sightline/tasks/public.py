"""The public names of ``sightline.tasks`` that need PyTorch."""

from sightline.tasks.attention import Attention, Grid
from sightline.tasks.prediction import Alternative, Evaluation, Example, Prediction
from sightline.tasks.run import Run, open_run
from sightline.tasks.task import Part, Prepared, Settings, Task
from sightline.tasks.train import train

__all__ = [
    "Alternative",
    "Attention",
    "Evaluation",
    "Example",
    "Grid",
    "Part",
    "Prediction",
    "Prepared",
    "Run",
    "Settings",
    "Task",
    "open_run",
    "train",
]
