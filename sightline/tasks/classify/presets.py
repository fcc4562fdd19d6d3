"""Presets of classification; those that were measured say what they reach, and where."""

from sightline.models.vit import SIZES
from sightline.tasks.task import Preset

__all__ = ["PRESETS"]


def _photos(size: str, *, patch: int, drop_path: float) -> Preset:
    """A ViT of the papers' sizes on photos of 224 x 224, trained much as DeiT is (Touvron et al., 2021)."""
    return {
        "model": {**SIZES[size]._asdict(), "image_size": 224, "patch": patch, "drop_path": drop_path},
        "augment": {"crop": 0.25, "flip": 0.5, "rand": 2, "erase": 0.25, "mixup": 0.8, "cutmix": 1.0},
        "train": {
            "epochs": 300,
            "batch_size": 1024,
            "lr": 1e-3,
            "weight_decay": 0.05,
            "beta2": 0.999,
            "ema": 0.9999,
            "label_smoothing": 0.1,
            "metric": "accuracy",
        },
    }


PRESETS: dict[str, Preset] = {
    # A folder of some thousand photos, on one machine; few photos are gone through more often.
    "default": {
        "model": {
            **SIZES["compact"]._asdict(),
            "image_size": 64,
            "patch": 8,
            "stem": "conv",
            "drop_path": 0.1,
        },
        "augment": {
            "crop": 0.35,
            "flip": 0.5,
            "colour": 0.3,
            "rand": 1,
            "mixup": 0.2,
            "cutmix": 1.0,
            "mix": 0.5,
        },
        "train": {
            "epochs": 60,
            "min_steps": 1000,
            "lr": 1e-3,
            "weight_decay": 0.05,
            "ema": 0.998,
            "label_smoothing": 0.1,
            "metric": "accuracy",
        },
    },
    # scikit-learn's digits. One evaluation, at the end: no fold's test or val chooses anything.
    # 5-fold 0.9928 on average, 78 CPU seconds a fold.
    "digits": {
        "model": {
            "patch": 1,
            "stem": "conv",
            "positions": "rotary",
            "d_model": 48,
            "n_heads": 4,
            "n_layers": 2,
            "d_ff": 96,
        },
        "data": {"source": "digits", "val": 0.05},
        "augment": {"shift": 0.125, "subpixel": True, "zoom": 0.15, "rotate": 12.0, "shear": 0.15},
        "train": {
            "epochs": 60,
            "batch_size": 64,
            "lr": 3e-3,
            "weight_decay": 0.05,
            "ema": 0.99,
            "label_smoothing": 0.1,
            "metric": "accuracy",
            "evaluate_every": 60,
            "save_every": 10,
            "tensorboard": False,
        },
    },
    # Fashion-MNIST, 28 x 28 in 7 x 7 tokens, for one GPU: 0.9468 of the test, in 7 minutes of an H200 that
    # three other trainings shared.
    "fashion": {
        "model": {
            "patch": 4,
            "stem": "conv",
            "positions": "rotary",
            "d_model": 256,
            "n_heads": 4,
            "n_layers": 8,
            "d_ff": 768,
            "pool": "mean",
            "drop_path": 0.15,
        },
        "data": {"val": 0.03, "views": 2},
        "augment": {"shift": 0.08, "flip": 0.5, "erase": 0.25, "mixup": 0.4, "cutmix": 1.0, "mix": 0.6},
        "train": {
            "epochs": 110,
            "batch_size": 1024,
            "lr": 1.5e-3,
            "weight_decay": 0.06,
            "beta2": 0.99,
            "warmup": 0.05,
            "ema": 0.999,
            "label_smoothing": 0.1,
            "metric": "accuracy",
            "evaluate_every": 50,
            "save_every": 10,
            "log_every": 200,
            "tensorboard": False,
        },
    },
    # Seconds on a laptop, to see that everything runs.
    "tiny": {
        "model": {**SIZES["micro"]._asdict(), "n_layers": 2},
        "train": {"epochs": 2, "lr": 1e-3, "metric": "accuracy", "tensorboard": False},
    },
    "vit_ti16": _photos("tiny", patch=16, drop_path=0.0),
    "vit_s16": _photos("small", patch=16, drop_path=0.1),
    "vit_b16": _photos("base", patch=16, drop_path=0.2),
}
