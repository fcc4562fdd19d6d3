"""The two tokenizers of a translator: joint, or one for each side; saved with the run."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.data.pair_set import Pair
from sightline.data.tokens import EOS, SPECIALS, UNK, Tokenizer
from sightline.shapes import did_you_mean

__all__ = ["PairTokens"]

JOINT, SOURCE, TARGET = "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json"
KINDS = ("bpe", "char")


@dataclass(frozen=True, eq=False)
class PairTokens:
    """How source and target are cut.

    Example:
        >>> tokens = PairTokens.train([Pair("ab", "ba")], kind="char")
        >>> tokens.source_words("ab")
        ['▁', 'a', 'b', '<eos>']
    """

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls,
        pairs: Sequence[Pair],
        *,
        kind: str = "bpe",
        vocab_size: int = 8000,
        joint: bool = False,
        lowercase: bool = False,
    ) -> "PairTokens":
        """Learn the tokenizers from the train split.

        Args:
            pairs: The train split.
            kind: ``bpe``, or ``char`` for single letters: BPE without a merge.
            vocab_size: Entries of each BPE vocabulary; for ``char`` there are as many as letters.
            joint: One vocabulary for both sides.
            lowercase: Whether "The" and "the" are one.
        """
        if kind not in KINDS:
            raise ValueError(f"unknown kind of tokens {kind!r}, {did_you_mean(kind, KINDS)}")

        def learned(texts: Callable[[], Iterable[str]]) -> Tokenizer:  # the pairs may be too many to keep
            size = vocab_size if kind == "bpe" else len(SPECIALS) + len(_letters(texts(), lowercase))
            return Tokenizer.train(texts(), kind="bpe", vocab_size=size, lowercase=lowercase)

        if joint:
            both = learned(lambda: (text for pair in pairs for text in pair))
            return cls(both, both)
        sides = (lambda: (pair.source for pair in pairs)), (lambda: (pair.target for pair in pairs))
        return cls(learned(sides[0]), learned(sides[1]))

    @property
    def joint(self) -> bool:
        """Whether one vocabulary serves both sides."""
        return self.source is self.target

    def read(self, text: str) -> list[int]:
        """The ids of a source text, its end included."""
        return [*self.source.encode(text), EOS]

    def source_words(self, text: str) -> list[str]:
        """A string for each id of a source text."""
        return self.source.words(self.read(text))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """For each id of a source text the letters ``[start, end)`` it stands for; none for its end.

        Nor does the mark before the first word stand for any, where it is a token by itself: the library
        says that it stands for the first letter.
        """
        found = self.source.inner.encode(text, add_special_tokens=False)
        places = [(int(a), int(b)) for a, b in found.offsets]
        if found.tokens[:1] == ["▁"]:
            places[0] = (places[0][0], places[0][0])
        return [*places, (len(text), len(text))]

    def unknown(self, text: str) -> str | None:
        """The first letter of a source text that no token stands for, or None."""
        for i, (start, end) in zip(self.source.encode(text), self.offsets(text), strict=False):
            if i == UNK:
                return text[start:end]
        return None

    def problem(self, text: str, *, max_length: int, unknown: bool = False) -> str | None:
        """Why a source text can't be translated, in a sentence; None if it can. Each text is judged alone.

        Args:
            text: What a user wants translated.
            max_length: Tokens that the model reads at most, the end included.
            unknown: Whether letters that no token stands for may be read as unknown.

        Example:
            >>> tokens = PairTokens.train([Pair("ab", "ba")], kind="char")
            >>> tokens.problem("ab", max_length=5), tokens.problem("a?", max_length=5)
            (None, "the vocabulary has no token for the character '?', got it in 'a?'")
        """
        if not text.strip():
            return f"there must be something to translate, got {text!r}"
        for letter in text:
            if "\udc80" <= letter <= "\udcff":  # how Python keeps a byte that it could not read
                return (
                    f"a text must be UTF-8, got the byte 0x{ord(letter) - 0xDC00:02x}; if it is Latin-1, "
                    "convert it: iconv -f latin1 -t utf-8"
                )
            if "\ud800" <= letter <= "\udfff":
                return f"a text must be of whole characters, got \\u{ord(letter):04x}, half of one"
        strange = None if unknown else self.unknown(text)
        if strange is not None:
            return f"the vocabulary has no token for the character {strange!r}, got it in {text[:60]!r}"
        length = len(self.read(text))
        if length > max_length:
            return (
                f"a text may have at most {max_length} tokens, got {length} in {text[:40]!r}...; "
                "split it into sentences"
            )
        return None

    def save(self, folder: Path) -> None:
        """Write one file or two."""
        if self.joint:
            self.source.save(folder / JOINT)
        else:
            self.source.save(folder / SOURCE)
            self.target.save(folder / TARGET)

    @classmethod
    def load(cls, folder: Path | str) -> "PairTokens":
        """Read what :meth:`save` wrote."""
        folder = Path(folder)
        if (folder / JOINT).exists():
            both = Tokenizer.load(folder / JOINT)
            return cls(both, both)
        return cls(Tokenizer.load(folder / SOURCE), Tokenizer.load(folder / TARGET))


def _letters(lines: Iterable[str], lowercase: bool) -> set[str]:
    """All that a tokenizer sees of some texts; a space is the mark before the next word."""
    seen = {letter for line in lines for letter in unicodedata.normalize("NFC", line)}
    if lowercase:  # one by one, as the library does: a small İ is two letters
        seen = {small for letter in seen for small in letter.lower()}
    return {letter for letter in seen if not letter.isspace()} | {"▁"}
