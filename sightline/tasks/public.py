"""The public names of ``sightline.tasks`` that need PyTorch."""

from sightline.data.memory import MemoryDataset
from sightline.evaluate.scores import Scores
from sightline.models.run_folder import SaveableModel
from sightline.tasks.attention import Attention, Grid
from sightline.tasks.objective import DatasetObjective
from sightline.tasks.prediction import Alternative, Evaluation, Example, Prediction
from sightline.tasks.predictor import Predictor
from sightline.tasks.run import Run, open_run
from sightline.tasks.task import TRAINING, Part, Prepared, Preset, Settings, Task
from sightline.tasks.training import train

__all__ = [
    "TRAINING",
    "Alternative",
    "Attention",
    "DatasetObjective",
    "Evaluation",
    "Example",
    "Grid",
    "MemoryDataset",
    "Part",
    "Prediction",
    "Predictor",
    "Prepared",
    "Preset",
    "Run",
    "SaveableModel",
    "Scores",
    "Settings",
    "Task",
    "open_run",
    "train",
]
