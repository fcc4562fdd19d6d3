"""Settings for captions of the embedded set, scenes, on two cores and no GPU."""

from sightline.train.presets import Preset

__all__ = ["PRESETS"]

# What limits a model of this size is seeing shapes, not telling them: so most of the work goes into
# convolutions. They carry what is in one cell to another, so cells are found by their own pixels. Of four
# heads one finds what is named and others what is not yet: directions are told before their second thing.
# Which layer has the one that finds differs from run to run, so the mean of all is what is shown: a head that
# looks everywhere moves no peak.
_MODEL = {
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
_DATA = {"source": "scenes", "captions": 5, "n_val": 200, "n_test": 500}
_TRAIN = {
    "batch_size": 32,
    "lr": 2e-3,
    "warmup": 100,
    "weight_decay": 0.01,
    "ema": 0.99,
    "metric": "loss",
    "tensorboard": False,
    "threads": 0,  # all is in memory, and threads that load would only take the cores from those that learn
}

PRESETS: dict[str, Preset] = {
    # Good captions that look where they should, in some minutes. Three of a scene's five captions, drawn anew
    # each epoch, teach to see nearly as well as all of them, and the time that this saves goes into scenes.
    "demo": {
        "model": _MODEL,
        "data": _DATA | {"n_train": 32000, "captions": 3},
        "train": _TRAIN | {"epochs": 4},
    },
    # A model that has begun to see, in less than a minute: to try things out.
    "tiny": {
        "model": _MODEL,
        "data": _DATA | {"n_train": 4000, "n_test": 200},
        "train": _TRAIN | {"epochs": 3},
    },
}
