"""What a model predicts for one input, and what an evaluation says of many."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from sightline.look.notebook import NotebookRepr
from sightline.tasks.attention import Attention
from sightline.untrusted import to_json

__all__ = ["Alternative", "Evaluation", "Example", "Prediction"]


class Alternative(NamedTuple):
    """One possible output and its score.

    Example:
        >>> Alternative("a red star", -0.5).text
        'a red star'
    """

    text: str
    score: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """One input, ready for the model.

    Attributes:
        input: As it was given or as the data calls it: a path, a sentence.
        value: What the model takes: pixels, token ids.
        references: What people wrote for it; empty where nobody did.
        truth: Whatever else a task knows of it: a label, a drawn scene.

    Example:
        >>> Example(input="a.png", value=torch.zeros(3, 8, 8), references=("a star",)).references
        ('a star',)
    """

    input: Any
    value: Any
    references: tuple[str, ...] = ()
    truth: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction(NotebookRepr):
    """The output for one input.

    Attributes:
        input: As it was given: a path, a sentence.
        text: The best output: a caption, a translation, a class.
        score: Its score: a log-probability per length, or a probability.
        alternatives: The best outputs, best first; the first one is ``text``. Default: that one alone.
        attention: What the model looked at; None where it was not asked for.
        references: What people wrote for this input, in an evaluation.
        metrics: Scores of this prediction alone, in an evaluation.

    Example:
        >>> Prediction(input="a.png", text="a star", score=-0.5).alternatives
        (Alternative(text='a star', score=-0.5),)
    """

    input: Any
    text: str
    score: float
    alternatives: tuple[Alternative, ...] = ()
    attention: Attention | None = None
    references: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.alternatives:
            object.__setattr__(self, "alternatives", (Alternative(self.text, self.score),))

    def __repr__(self) -> str:
        """What came out of what; an input that is no text, a picture's pixels, would fill the screen."""
        of = f"input={self.input!r}, " if isinstance(self.input, str | Path) else ""
        looked = "" if self.attention is None else f", attention={self.attention!r}"
        return f"{type(self).__name__}({of}text={self.text!r}, score={self.score:.3g}{looked})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Scores of a run on a split, with the predictions they come from.

    Attributes:
        scores: By name; fractions of one, except ``bleu`` and ``chrf`` of translation (0 to 100).
        signatures: How each was computed, where a line can say it.
        predictions: One per example, with its references and its own metrics.
        about: What was evaluated: "500 images of split 'test' of scenes, beam 5".
        tables: Further files by name, as text.
        figures: Further figures by title, each drawn when called, with a caption.

    Example:
        >>> Evaluation(scores={"accuracy": 0.75}).scores["accuracy"]
        0.75
    """

    scores: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    predictions: Sequence[Prediction] = ()
    about: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, tuple[Callable[[], Figure], str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, float | None]:
        """The scores for a JSON reader, which has no word for what is not a number."""
        return {name: value if math.isfinite(value) else None for name, value in self.scores.items()}

    def predictions_json(self) -> str:
        """All predictions as one JSON list."""
        rows = [
            {
                "input": str(p.input),
                "prediction": p.text,
                "score": p.score,
                "references": list(p.references),
                **p.metrics,
            }
            for p in self.predictions
        ]
        return to_json(rows, indent=1) + "\n"
