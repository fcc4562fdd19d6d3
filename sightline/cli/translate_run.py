"""A translation run, opened: its model, its tokenizers, the data it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sightline.cli.runs import kind_in, settings_in
from sightline.data.dates import DATES, is_dates
from sightline.data.pair_tokens import PairTokens
from sightline.data.pairs import PairSet
from sightline.decode.translations import Translation, translate
from sightline.models.rnn import RecurrentTranslator
from sightline.models.translator import Translator, open_translator
from sightline.settings import from_json
from sightline.train.translate_data import TranslateData, open_pairs

__all__ = ["TranslateRun", "open_run"]


@dataclass(frozen=True)
class TranslateRun:
    """A trained translator with what belongs to it."""

    folder: Path
    model: Translator | RecurrentTranslator
    tokens: PairTokens
    data: TranslateData

    @property
    def is_recurrent(self) -> bool:
        """Whether the model is the recurrent one."""
        return isinstance(self.model, RecurrentTranslator)

    def pairs(
        self, place: str | None = None, *, source: str | None = None, target: str | None = None
    ) -> PairSet:
        """The data of the run, or another set read the same way.

        Args:
            place: Another set.
            source, target: What the run's languages are called there, if not as in the run.
        """
        place_of = place or self.data.place
        own = (None, None) if is_dates(place_of) else (self.data.source, self.data.target)
        data = replace(self.data, place=place_of, source=source or own[0], target=target or own[1])
        if not is_dates(data.place) and not Path(data.place).exists():
            raise ValueError(
                f"the data of {str(self.folder)!r} was {data.place!r}, which is not there any more; "
                "say where it is with --data"
                if place is None
                else f"--data must be a folder, a zip or {DATES!r}, {place!r} does not exist"
            )
        return open_pairs(data)

    def translate(
        self, texts: Sequence[str], *, width: int, look: bool = False, batch_size: int = 64
    ) -> list[Translation]:
        """Translate some texts, with the run's own length normalisation."""
        return translate(
            self.model,
            self.tokens,
            texts,
            width=width,
            alpha=self.data.length_penalty,
            look=look,
            batch_size=batch_size,
        )

    def check(self, texts: Sequence[str], *, unknown: bool, remedy: str = "leave it out") -> None:
        """Refuse texts that are empty, too long, or hold letters that no token stands for.

        Args:
            texts: What a user wants translated.
            unknown: Whether such letters may stand; the model then reads them as unknown.
            remedy: What to do about one, if not.
        """
        most = self.model.config.max_length
        for number, text in enumerate(texts, 1):
            where = f" on line {number}" if len(texts) > 1 else ""
            if not text.strip():
                raise ValueError(f"there must be something to translate, got {text!r}{where}")
            for letter in text:
                if "\udc80" <= letter <= "\udcff":  # how Python keeps a byte that it could not read
                    raise ValueError(
                        f"a text must be UTF-8, got the byte 0x{ord(letter) - 0xDC00:02x}{where}; if it is "
                        "Latin-1, convert it: iconv -f latin1 -t utf-8 TEXT | sightline translate RUN -"
                    )
            strange = None if unknown else self.tokens.unknown(text)
            if strange is not None:
                raise ValueError(
                    f"the vocabulary of {str(self.folder)!r} has no token for the character {strange!r}, got "
                    f"it in {text[:60]!r}; {remedy}"
                )
            length = len(self.tokens.read(text))
            if length > most:
                raise ValueError(
                    f"the model in {str(self.folder)!r} reads at most {most} tokens, got {length} in "
                    f"{text[:40]!r}...; split it into sentences"
                )


def open_run(folder: Path, device: torch.device) -> TranslateRun:
    """Load a run.

    Raises:
        ValueError: If the folder is no translation run, or a file in it is missing or damaged; in a sentence.
    """
    kind_in(folder, "translate")
    data = from_json(TranslateData, settings_in(folder, "data"))
    return TranslateRun(folder, open_translator(folder, device), PairTokens.load(folder), data)
