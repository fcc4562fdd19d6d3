"""Presets of captioning: photos of your own, and the embedded scenes."""

from sightline.tasks.task import Preset

__all__ = ["PRESETS"]

_PHOTOS_MODEL = {
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
_PHOTOS_DATA = {"min_count": 3, "word_dropout": 0.1}
_PHOTOS_AUGMENT = {"crop": 0.5, "flip": 0.5, "colour": 0.2}
_PHOTOS_TRAIN = {
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

# What limits a model of this size is seeing shapes, not telling them: so most of the work goes into
# convolutions. They carry what is in one cell to another, so cells are found by their own pixels. Of four
# heads one finds what is named and others what is not yet: directions are told before their second thing.
# Which layer has the one that finds differs from run to run, so the mean of all is what is shown: a head that
# looks everywhere moves no peak.
_SCENES_MODEL = {
    "encoder": "patches",
    "decoder": "transformer",
    "image_size": 64,
    "patch": 8,
    "stem": 3,
    "n_convs": 1,
    "local_keys": True,
    "d_model": 96,
    "n_heads": 4,
    "n_layers": 2,
    "n_encoder_layers": 0,
    "d_ff": 192,
    "dropout": 0.0,
    "max_length": 20,
    "embedding_scale": 0.5,
    "position_scale": 0.1,
    "look_layer": None,
}
_SCENES_DATA = {"source": "scenes", "captions": 5, "n_val": 200, "n_test": 500}
_SCENES_TRAIN = {
    "batch_size": 32,
    "lr": 2e-3,
    "warmup": 100,
    "weight_decay": 0.01,
    "ema": 0.99,
    "metric": "loss",
    "tensorboard": False,
    "threads": 0,  # all is in memory, and threads that load would only take the cores from those that learn
}

# The textbook's model: no convolutions, patches are embedded by one matrix and look at each other. Heads that
# begin at one neighbour each see shapes after a third of the steps that heads without a place need.
_TRANSFORMER_MODEL = _SCENES_MODEL | {
    "stem": 0,
    "n_convs": 0,
    "local_keys": False,
    "n_encoder_layers": 3,
    "relative_bias": True,
    "d_model": 128,
    "n_heads": 8,
    "d_ff": 256,
}

PRESETS: dict[str, Preset] = {
    # A folder with captions, whatever it holds; a few photos are gone through often enough to learn from.
    "default": {"train": {"metric": "cider", "label_smoothing": 0.1, "min_steps": 1000}},
    # Some thousand photos with five captions each, on one GPU: some minutes. The encoder learns along gently,
    # every step sees another crop, and what could be learned by heart is dropped.
    "photos": {
        "model": _PHOTOS_MODEL | {"finetune": True},
        "data": _PHOTOS_DATA | {"consistency": 1.0, "val_beam": 5},
        "augment": _PHOTOS_AUGMENT,
        "train": _PHOTOS_TRAIN | {"evaluate_every": 2, "pretrained_lr": 0.1},
    },
    # The same on a CPU: the encoder is frozen, and its grids of four views are computed once and kept.
    "photos-cpu": {
        "model": _PHOTOS_MODEL
        | {"image_size": 224, "d_model": 256, "n_heads": 4, "d_ff": 1024, "n_encoder_layers": 0},
        "data": _PHOTOS_DATA | {"cached": True, "views": 4},
        "train": _PHOTOS_TRAIN | {"epochs": 15},
    },
    # The scenes on two cores and no GPU: good captions that look where they should, in some minutes. Three
    # of a scene's five captions, drawn anew each epoch, teach to see nearly as well as all of them, and the
    # time that this saves goes into scenes.
    "demo": {
        "model": _SCENES_MODEL,
        "data": _SCENES_DATA | {"n_train": 32000, "captions": 3},
        "train": _SCENES_TRAIN | {"epochs": 4},
    },
    # The scenes by a Transformer end to end, from patches to words.
    "transformer": {
        "model": _TRANSFORMER_MODEL,
        "data": _SCENES_DATA | {"n_train": 24000, "captions": 3},
        "train": _SCENES_TRAIN | {"epochs": 4, "batch_size": 16, "lr": 1.5e-3, "warmup": 500, "ema": 0.998},
    },
    # A model that has begun to see, in less than a minute: to try things out.
    "tiny": {
        "model": _SCENES_MODEL,
        "data": _SCENES_DATA | {"n_train": 4000, "n_test": 200},
        "train": _SCENES_TRAIN | {"epochs": 3},
    },
}
