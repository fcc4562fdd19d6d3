"""One loop for every model, on Accelerate, that can be killed and goes on to the bit.

fit(model, objective, TrainConfig(epochs=20), Path("runs/mine"))
"""

from sightline.train.config import TrainConfig
from sightline.train.loop import fit
from sightline.train.objective import Loss, Objective, Stage

__all__ = ["Loss", "Objective", "Stage", "TrainConfig", "fit"]
