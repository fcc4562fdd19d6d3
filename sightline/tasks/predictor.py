"""A trained model with what belongs to it: what a run predicts and evaluates with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sightline.evaluate.scores import Scores
from sightline.look.recording import Recording
from sightline.show.explorer.steps import Step
from sightline.tasks.attention import Attention
from sightline.tasks.prediction import Example, Prediction
from sightline.watch.watch import watch

__all__ = ["Predictor"]


class Predictor:
    """What a run calls. Derive from it: what it needn't say has a default here.

    Attributes:
        model: In eval, on its device.

    Example:
        >>> class Echo(Predictor):
        ...     def read(self, inputs, **_):
        ...         return [sl.tasks.Example(input=text, value=text) for text in inputs]
        >>> Echo(nn.Identity()).read(["a"])[0].input
        'a'
    """

    model: nn.Module

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def read(self, inputs: Sequence[Any]) -> list[Example]:
        """Inputs as a user gives them, ready for the model.

        Raises:
            ValueError: In a sentence, for the first one that can't be read.
        """
        raise NotImplementedError

    def predict(self, examples: Sequence[Example], options: Any, *, attention: bool) -> Iterable[Prediction]:
        """Predict a batch, in order."""
        raise NotImplementedError

    def examples(self, dataset: Any, split: str, limit: int | None) -> Iterator[Example]:
        """The examples of a split, read when they are needed; those that can't be read are left out."""
        raise NotImplementedError

    def score(
        self,
        dataset: Any,  # noqa: ARG002
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        options: Any,  # noqa: ARG002
    ) -> Scores:
        """Scores of all predictions together, and of each; by default: is it one of the references."""
        right = [float(p.text in e.references) for p, e in zip(predictions, examples, strict=True)]
        return Scores(total={"exact_match": sum(right) / len(right)}, each={"exact_match": right})

    def batch(self, examples: Sequence[Example]) -> Any:
        """What the model takes for some examples: their values, stacked, on its device."""
        return torch.stack([example.value for example in examples]).to(next(self.model.parameters()).device)

    def watch(self, examples: Sequence[Example]) -> Recording:
        """Every attention of the model on these inputs."""
        with torch.no_grad(), watch(self.model, keep=True) as seen:
            self.model(self.batch(examples))
        return seen

    def layers(self, example: Example, prediction: Prediction) -> Mapping[str, Attention]:
        """Every attention of the model while it made a prediction, by module name, with its tokens.

        By default all attention is among the tokens that the prediction's own attention names.
        """
        assert prediction.attention is not None  # noqa: S101 - a look asks for it
        queries, keys = prediction.attention.queries, prediction.attention.keys
        seen = self.watch([example])
        return {
            name: Attention.of(seen, 0, queries=queries, keys=keys, layers=[name]) for name in seen.names()
        }

    def steps(self, example: Example, prediction: Prediction) -> Sequence[Step]:  # noqa: ARG002
        """The steps in which a prediction was written; none where it was not written step by step."""
        return ()

    def row_names(self) -> Mapping[str, Sequence[str]]:
        """What the rows of some parameters stand for, by the parameter's name: words, classes.

        A run that starts from this one takes the rows that it has too.
        """
        return {}

    def needs_attention(self, dataset: Any) -> bool:  # noqa: ARG002
        """Whether the scores of a data set ask what the model looked at."""
        return False
