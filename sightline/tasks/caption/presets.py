"""Settings for captions of photos."""

from sightline.tasks.task import Preset

__all__ = ["PRESETS"]

_SEEN = {
    "encoder": "efficientnet_lite0",
    "image_size": 288,
    "d_model": 384,
    "n_heads": 6,
    "n_layers": 3,
    "n_encoder_layers": 1,
    "d_ff": 1536,
    "dropout": 0.3,
    "feature_dropout": 0.3,
    "max_length": 20,
}
_DATA = {"min_count": 3, "word_dropout": 0.1}
_AUGMENT = {"crop": 0.5, "flip": 0.5, "colour": 0.2}
_TRAIN = {
    "epochs": 30,
    "batch_size": 64,
    "lr": 4e-4,
    "weight_decay": 0.05,
    "label_smoothing": 0.1,
    "ema": 0.999,
    "average_last": 5,
    "metric": "cider",
    "log_every": 100,
    "threads": 8,
}

PRESETS: dict[str, Preset] = {
    "default": {"train": {"metric": "cider", "label_smoothing": 0.1}},
    # Some thousand photos with five captions each, on one GPU: some minutes. The encoder learns along gently,
    # every step sees another crop, and what could be learned by heart is dropped.
    "photos": {
        "model": _SEEN | {"finetune": True},
        "data": _DATA | {"consistency": 1.0, "val_beam": 5},
        "augment": _AUGMENT,
        "train": _TRAIN | {"evaluate_every": 2, "pretrained_lr": 0.1},
    },
    # The same on a CPU: the encoder is frozen, and its grids of four views are computed once and kept.
    "photos-cpu": {
        "model": _SEEN
        | {"image_size": 224, "d_model": 256, "n_heads": 4, "d_ff": 1024, "n_encoder_layers": 0},
        "data": _DATA | {"cached": True, "views": 4},
        "train": _TRAIN | {"epochs": 15},
    },
}
