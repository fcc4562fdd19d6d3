"""Sightline: attention, from the equation to the trained model, and a line of sight into any of them.

import sightline as sl

sl.reference.scaled_dot_product_attention(q, k, v, mask)   # the equation, with its weights
sl.attention(q, k, v, sl.masks.causal())                   # the same output, by the fastest exact way
sl.nn.TransformerEncoderLayer(512, 8)                      # torch's layers, drop-in
sl.look(q, k, v).entropy                                   # what it attended to, without the matrix
with sl.watch(model) as seen: model(x)                     # the same of any model
sl.open_run("runs/demo").predict(["a.jpg"])                # trained by ``sightline train``

Names are imported when they are first asked for: ``sightline --help`` does not wait for PyTorch, and the
mechanism does not need what the models do.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline import show as show
    from sightline import train as train
    from sightline.public import *  # noqa: F403
    from sightline.tasks.run import open_run as open_run

__version__ = "0.1.0"
__all__ = [
    "Look",
    "Mask",
    "Sight",
    "attention",
    "look",
    "masks",
    "models",
    "nn",
    "open_run",
    "positions",
    "reference",
    "scores",
    "show",
    "tasks",
    "train",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sightline' has no attribute {name!r}")
    if name == "open_run":
        from sightline.tasks.run import open_run  # noqa: PLC0415

        return open_run
    if name == "show":
        import sightline.show as drawing  # noqa: PLC0415

        return drawing
    if name == "train":
        import sightline.train as training  # noqa: PLC0415

        return training
    from sightline import public  # noqa: PLC0415

    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
