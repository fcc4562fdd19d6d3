"""Presets of translation; each says what it reaches, and where it was measured.

``NAME-recurrent`` is taken where ``NAME`` is asked for with ``--model recurrent``.
"""

from typing import Any

from sightline.tasks.task import Preset

__all__ = ["PRESETS"]

_DEFAULT_DATA: dict[str, Any] = {"joint": True, "bpe_dropout": 0.1, "max_tokens": 4096}
_DEFAULT_TRAIN: dict[str, Any] = {
    "epochs": 40,
    "min_steps": 1000,
    "lr": 1e-3,
    "warmup": 0.1,
    "label_smoothing": 0.1,
    "ema": 0.999,
    "metric": "bleu",
}

_DATES_DATA: dict[str, Any] = {"place": "dates", "tokens": "char"}
_DATES_TRAIN: dict[str, Any] = {
    "batch_size": 128,
    "warmup": 0.1,
    "schedule": "linear",
    "metric": "exact_match",
    "evaluate_every": 2,
    "save_every": 2,
}

_MULTI30K_DATA: dict[str, Any] = {
    "vocabulary": 8000,
    "joint": True,
    "bpe_dropout": 0.05,
    "consistency": 1.0,
    "max_tokens": 4096,
    "tune_length": True,
}

PRESETS: dict[str, Preset] = {
    # A folder of some ten thousand sentence pairs.
    "default": {
        "model": {"dropout": 0.3, "d_ff": 512},
        "data": _DEFAULT_DATA,
        "train": {**_DEFAULT_TRAIN, "schedule": "inverse_sqrt"},
    },
    "default-recurrent": {
        "model": {"architecture": "recurrent", "n_layers": 2, "feed": "none", "dropout": 0.3, "d_model": 384},
        "data": _DEFAULT_DATA,
        "train": _DEFAULT_TRAIN,
    },
    "dates": {
        "model": {
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 2,
            "d_ff": 256,
            "dropout": 0.0,
            "max_length": 64,
        },
        "data": _DATES_DATA,
        "train": {**_DATES_TRAIN, "epochs": 8, "lr": 3e-3},
    },
    "dates-recurrent": {
        "model": {
            "architecture": "recurrent",
            "d_model": 96,
            "d_attn": 64,
            "feed": "none",
            "dropout": 0.1,
            "max_length": 64,
        },
        "data": _DATES_DATA,
        "train": {**_DATES_TRAIN, "epochs": 5, "lr": 4e-3},
    },
    "multi30k": {
        "model": {
            "d_model": 256,
            "n_heads": 4,
            "n_layers": 4,
            "d_ff": 1024,
            "dropout": 0.2,
            "attention_dropout": 0.1,
            "max_length": 128,
        },
        "data": _MULTI30K_DATA,
        "train": {
            "epochs": 60,
            "lr": 1.5e-3,
            "warmup": 1000,
            "schedule": "cosine",
            "final_lr": 0.02,
            "weight_decay": 0.01,
            "label_smoothing": 0.1,
            "ema": 0.999,
            "metric": "bleu",
            "evaluate_every": 5,
            "save_every": 10,
        },
    },
    "multi30k-recurrent": {
        "model": {
            "architecture": "recurrent",
            "d_model": 512,
            "d_attn": 256,
            "n_layers": 2,
            "feed": "none",
            "dropout": 0.3,
            "max_length": 128,
        },
        "data": _MULTI30K_DATA,
        "train": {
            "epochs": 40,
            "lr": 1e-3,
            "warmup": 500,
            "schedule": "cosine",
            "final_lr": 0.02,
            "precision": "no",
            "weight_decay": 0.01,
            "label_smoothing": 0.1,
            "ema": 0.999,
            "metric": "bleu",
            "evaluate_every": 5,
            "save_every": 10,
        },
    },
}
