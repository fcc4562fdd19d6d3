"""Text to numbers and back: word-level and BPE vocabularies, by the ``tokenizers`` library.

Every vocabulary starts alike: 0 pads, 1 begins, 2 ends, 3 stands for what is unknown. A tokenizer is saved in
the library's own JSON, so other programs can read it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from sightline.data.merges import Merges
from sightline.messages import shortened
from sightline.shapes import did_you_mean
from sightline.untrusted import read_json

if TYPE_CHECKING:
    import tokenizers

__all__ = ["BOS", "EOS", "NEVER_GENERATED", "PAD", "SPECIALS", "UNK", "Tokenizer"]

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
NEVER_GENERATED = (PAD, BOS, UNK)  # a caption never admits that it does not know a word
KINDS = ("word", "bpe")
_LONGEST_WORD = 1000  # letters of a word that pieces are learned from
_ENDLESS = re.compile(rf"\S{{{_LONGEST_WORD}}}")

# A word with its apostrophes, "man's", or one sign of anything else that is no space.
_WORDS = r"[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}\p{N}]+)*|[^\s\p{L}\p{M}\p{N}]"


class Tokenizer:
    """A vocabulary and the way a text is cut into it.

    ``kind="word"`` cuts at spaces and around punctuation, and decodes to words with spaces between them: made
    for captions, where :func:`sightline.data.captions.clean` has taken the punctuation away. ``kind="bpe"``
    learns pieces of words and decodes to the text it was given, spaces and punctuation in their places.

    Example:
        >>> tokenizer = Tokenizer.train(["a red cube", "a blue ball"], kind="word")
        >>> ids = tokenizer.encode("a red ball")
        >>> tokenizer.decode(ids), len(tokenizer), tokenizer.encode("green") == [UNK]
        ('a red ball', 9, True)
    """

    def __init__(self, inner: "tokenizers.Tokenizer", *, dropout: float | None = None) -> None:
        """Wrap a tokenizer of the library whose first four ids are SPECIALS."""
        found = [inner.id_to_token(i) for i in range(len(SPECIALS))]
        if found != list(SPECIALS):
            raise ValueError(f"a vocabulary must start with {list(SPECIALS)}, got {found}; train one anew")
        inner.encode_special_tokens = True  # "<eos>" in a user's text is text, it does not end it
        self.inner = inner
        self.dropout = dropout
        model = json.loads(inner.to_str())["model"]
        if model["type"] not in ("BPE", "WordLevel"):
            raise ValueError(f"a vocabulary must be of words or of BPE, got {model['type']}; train one anew")
        self.kind: Literal["word", "bpe"] = "bpe" if model["type"] == "BPE" else "word"
        self._merges = Merges.of(inner, UNK) if self.kind == "bpe" else None

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        kind: Literal["word", "bpe"] = "word",
        vocab_size: int = 10_000,
        min_count: int = 1,
        lowercase: bool = False,
        dropout: float | None = None,
    ) -> "Tokenizer":
        """Learn a vocabulary from the lines of a train split.

        Args:
            lines: The texts.
            kind: Whole words, or pieces of them by byte-pair encoding.
            vocab_size: At most so many entries, the four special ones included.
            min_count: A word, or a pair of pieces, seen less often is not learned.
            lowercase: Whether "The" and "the" are one.
            dropout: For BPE, how likely a merge is left out when ``encode(..., dropout=True)`` asks for it.

        Raises:
            ValueError: If a setting is out of range, or the lines hold no word.
        """
        _check(kind, vocab_size, min_count, dropout)
        library = _library()
        inner = _untrained(kind, lowercase)
        settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "min_frequency": min_count,
            "special_tokens": list(SPECIALS),
            "show_progress": False,
        }
        trainer = (
            library.trainers.BpeTrainer(limit_alphabet=vocab_size - len(SPECIALS), **settings)
            if kind == "bpe"
            else library.trainers.WordLevelTrainer(**settings)
        )
        texts = _plain(lines)
        inner.train_from_iterator(_parted(texts) if kind == "bpe" else texts, trainer)
        if inner.get_vocab_size() == len(SPECIALS):
            raise ValueError(
                f"a vocabulary needs words, the lines held none seen at least min_count={min_count} times"
            )
        return cls(inner, dropout=dropout)

    def encode(self, text: str, *, dropout: bool = False, seed: int | None = None) -> list[int]:
        """The ids of a text, without BOS and EOS.

        Args:
            text: Any text; what the vocabulary lacks becomes UNK.
            dropout: Leave out BPE merges at random, as likely as the tokenizer was made for, so that a model
                sees a word in more than one cut (Provilkov et al. 2020). The library's own dropout can't be
                seeded; this one walks the library's merges by itself and can. A tokenizer that was made for
                none gives the plain ids.
            seed: Makes the cut with dropout the same every time; None draws a seed from torch's generator.
        """
        if not dropout or not self.dropout or self._merges is None:
            return list(self.inner.encode(text, add_special_tokens=False).ids)
        if seed is None:
            seed = int(torch.randint(1 << 62, ()).item())
        return self._merges.encode(self._cut(text), self.dropout, seed)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; PAD, BOS and EOS are left out, UNK stays visible as ``<unk>``."""
        kept = [i for i in ids if i not in (PAD, BOS, EOS)]
        return str(self.inner.decode(kept, skip_special_tokens=False))

    def words(self, ids: Sequence[int]) -> list[str]:
        """One string for each id, for the axes of a picture; in BPE a ``▁`` marks where a word begins."""
        return [self._word(i) for i in ids]

    def save(self, path: Path | str) -> None:
        """Write the library's JSON, whole or not at all."""
        from sightline.data.files import atomic_write  # noqa: PLC0415

        content = json.loads(self.inner.to_str(pretty=False))
        if self.kind == "bpe":
            content["model"]["dropout"] = self.dropout
        with atomic_write(Path(path)) as beside:
            beside.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is no tokenizer, or one whose first ids are not SPECIALS.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no tokenizer {str(path)!r}")
        try:
            content = read_json(path)
            dropout = content["model"].pop("dropout", None)
            _check_ids(content["model"]["vocab"])
            inner = _library().Tokenizer.from_str(json.dumps(content))
        except (ImportError, OSError):
            raise
        except Exception as problem:  # the library raises plain Exception
            raise ValueError(f"{str(path)!r} is no tokenizer.json or is damaged: {problem}") from problem
        tokenizer = cls(inner, dropout=dropout)
        _check_parts(content, tokenizer.kind, dropout, str(path))
        return tokenizer

    def __len__(self) -> int:
        """How many ids there are: a model's vocab_size."""
        return int(self.inner.get_vocab_size())

    def __repr__(self) -> str:
        """What a person wants to know first."""
        return f"Tokenizer(kind={self.kind!r}, {len(self)} entries)"

    def _word(self, i: int) -> str:
        word = self.inner.id_to_token(int(i))
        if word is None:
            raise ValueError(f"an id must be in 0..{len(self) - 1}, got {i}")
        return str(word)

    def _cut(self, text: str) -> list[str]:
        """The words that BPE works on, one by one."""
        pieces = self.inner.pre_tokenizer.pre_tokenize_str(self.inner.normalizer.normalize_str(text))
        return [piece for piece, _ in pieces]


def _untrained(kind: str, lowercase: bool) -> "tokenizers.Tokenizer":
    library = _library()
    normalizers, cuts = library.normalizers, library.pre_tokenizers
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    if kind == "word":
        inner = library.Tokenizer(library.models.WordLevel(unk_token=SPECIALS[UNK]))
        inner.pre_tokenizer = cuts.Split(library.Regex(_WORDS), "removed", invert=True)
    else:
        inner = library.Tokenizer(library.models.BPE(unk_token=SPECIALS[UNK]))
        steps += [normalizers.Replace(library.Regex(r"\s+"), " "), normalizers.Strip()]
        # A mark before each word keeps the spaces; a sign of punctuation is never glued to a word.
        inner.pre_tokenizer = cuts.Sequence([cuts.Metaspace(), cuts.Punctuation()])
        inner.decoder = library.decoders.Metaspace()
    inner.normalizer = normalizers.Sequence(steps)
    return inner


def _plain(lines: Iterable[str]) -> Iterator[str]:
    if isinstance(lines, str):
        raise TypeError(f"lines must be several texts, got one of {len(lines)} letters; [text] makes a list")
    yield from lines


def _parted(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with spaces in endless words: learning pieces of one takes the square of its length."""
    for line in lines:
        yield _ENDLESS.sub(r"\g<0> ", line) if len(line) > _LONGEST_WORD else line


def _check_ids(vocab: Mapping[str, int]) -> None:
    """Refuse ids with gaps: the library takes time for each that is left out."""
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise ValueError(f"its {len(vocab)} ids are not 0, 1, 2 and so on, each once")


def _check_parts(content: Mapping[str, Any], kind: str, dropout: Any, where: str) -> None:
    """Refuse what the library reads and :meth:`Tokenizer.save` has not written."""
    model = content["model"]
    parts = ("normalizer", "pre_tokenizer", *(["decoder"] if kind == "bpe" else []))
    missing = [part for part in parts if content.get(part) is None]
    if missing:
        problem = f"it has no {missing[0]}"
    elif model.get("unk_token") != SPECIALS[UNK] or model["vocab"].get(SPECIALS[UNK]) != UNK:
        problem = f"its unk_token must be {SPECIALS[UNK]!r}, with the id {UNK}"
    elif dropout is not None and not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        problem = f"its dropout must be at least 0 and below 1, got {shortened(dropout)}"
    else:
        return
    raise ValueError(f"{where!r} is no tokenizer.json of ours or was edited: {problem}; copy it anew")


def _check(kind: str, vocab_size: int, min_count: int, dropout: float | None) -> None:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of tokenizer {kind!r}, {did_you_mean(kind, KINDS)}")
    if vocab_size <= len(SPECIALS):
        raise ValueError(f"vocab_size must be above {len(SPECIALS)}, the special entries, got {vocab_size}")
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}")
    if dropout is not None and not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    if dropout and kind != "bpe":
        raise ValueError(f"only BPE drops merges, got dropout={dropout} for kind {kind!r}; leave it None")


def _library() -> Any:
    try:
        import tokenizers  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "vocabularies need tokenizers, which is not installed; pip install 'sightline[train]'",
            name="tokenizers",
        ) from missing
    return tokenizers
