"""The last results, so that they can be asked further; bounded in number and in bytes."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Answering", "KeptResults", "Result"]


class Answering(Protocol):
    """What answers the questions of a page about one look: ``sightline.show.explorer.Answers``."""

    def meta(self) -> dict[str, Any]:
        """What there is to be asked."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one question.

        Raises:
            ValueError: In a sentence, if it can't be answered.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a model made of one input.

    Attributes:
        answers: Answers what the page asks.
        nbytes: About what it holds.
        given: The text that it was given; empty for an image, which the answers hold.
        text: The caption, the translation or the class; empty where a model only reads.
        score: The score of the text.
        alternatives: Outputs with their scores, best first.
    """

    answers: Answering
    nbytes: int
    given: str = ""
    text: str = ""
    score: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(kw_only=True)
class KeptResults:
    """Results by ids that can't be guessed; the one that was asked longest ago goes first.

    Attributes:
        most: How many are kept.
        most_bytes: What they may hold together; the last one stays, however large.

    Example:
        >>> kept = KeptResults(most=1, most_bytes=100)
        >>> first = kept.add(Result(answers=None, nbytes=1))
        >>> second = kept.add(Result(answers=None, nbytes=1))
        >>> kept.get(first) is None, kept.get(second) is None, len(second)
        (True, False, 22)
    """

    most: int
    most_bytes: int
    nbytes: int = 0
    _results: OrderedDict[str, Result] = field(default_factory=OrderedDict)

    def add(self, result: Result) -> str:
        """Keep a result, and give the id it can be asked by."""
        key = secrets.token_urlsafe(16)
        self._results[key] = result
        self.nbytes += result.nbytes
        while len(self._results) > 1 and (len(self._results) > self.most or self.nbytes > self.most_bytes):
            _, oldest = self._results.popitem(last=False)
            self.nbytes -= oldest.nbytes
        return key

    def get(self, key: str) -> Result | None:
        """A result, which is then the last one to go; None if it is not kept."""
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._results)
