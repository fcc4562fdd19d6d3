"""The files that sentence pairs are read from, in a folder, a zip or alone, and their columns."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sightline.data.dataset import split_of_path
from sightline.data.image_tables import IMAGE_COLUMNS
from sightline.data.pair_tables import is_language, parquet_columns, tables
from sightline.data.parquet import ParquetFile
from sightline.data.sources import Files, Folder, Zip, files_of, text_of

__all__ = ["TABLES", "PairFile", "columns_of", "find_pair_files", "is_table", "lines", "parallel_names"]

TABLES = (".tsv", ".csv", ".txt", ".jsonl", ".json", ".parquet")
_SHARD = re.compile(r"-\d{5}-of-\d{5}|^\d{4,}\.")
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class PairFile:
    """A file that may hold pairs.

    Attributes:
        name: What it is called, without folders, except for the shards of a split, which may be called alike.
        path: Where it is among ``files``.
        split: The split that its name tells; None for a table alone.
        files: The folder or zip.
    """

    name: str
    path: str
    split: str | None
    files: Files

    @property
    def is_shard(self) -> bool:
        """Whether it is one of several files of a split."""
        return _SHARD.search(PurePosixPath(self.path).name) is not None

    @property
    def layout(self) -> str:
        """The format, by its ending."""
        ending = PurePosixPath(self.path).suffix.lower()
        return ending.removeprefix(".") if ending in TABLES else "parallel texts"

    def text(self) -> str:
        """What is in it."""
        return text_of(self.files.read(self.path), self.name)


def is_table(path: Path) -> bool:
    """Whether a place is a single table, a set by itself."""
    return path.suffix.lower() in TABLES and not path.is_dir()


def find_pair_files(path: Path) -> list[PairFile]:
    """The files of a place that may hold pairs: by the name of a split, or a table or two texts alone.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If a file is there twice, or the place is no folder, zip or table.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"there is nothing at {str(path)!r}; sentence pairs are a folder, a .zip, a table "
            f"({', '.join(TABLES)}), or 'dates', the embedded set"
        )
    if is_table(path):
        return [PairFile(path.name, path.name, None, Folder(path.parent))]
    if not path.is_dir() and path.suffix.lower() != ".zip":
        raise ValueError(
            f"pairs are read from a folder, a .zip or one of {', '.join(TABLES)}, got {str(path)!r}; of two "
            f"parallel texts give the folder, {str(path.parent)!r}"
        )
    files = files_of(path)
    names = files.names()
    named = _nearest(name for name in names if _names_split(name))
    if not named:
        alone = _nearest(name for name in names if _is_candidate(files, name))
        if len(alone) != 1:
            texts = parallel_names(path)
            alone = texts if len(texts) == 2 else []
        return [PairFile(PurePosixPath(x).name, x, None, files) for x in alone]
    found: dict[str, str] = {}
    for name in named:
        shown = name if _SHARD.search(PurePosixPath(name).name) else PurePosixPath(name).name
        if found.setdefault(shown, name) != name:
            raise ValueError(
                f"each text must be in {str(path)!r} once, got {found[shown]!r} and {name!r}; make a zip of "
                "one of the folders"
            )
    return [PairFile(shown, name, split_of_path(name), files) for shown, name in sorted(found.items())]


def columns_of(
    files: Sequence[PairFile], *, source: str | None = None, target: str | None = None
) -> dict[str, dict[str, list[str]]]:
    """The columns of each file, by its name; a parallel text is one, named by its ending."""
    parquet = {file.name: file for file in files if file.layout == "parquet"}
    texts = {file.name: file.text() for file in files if file.name not in parquet}
    parallel = {name for name, text in texts.items() if not _is_text_table(name, text)}
    found = tables(
        {name: texts[name] for name in texts if name not in parallel}, source=source, target=target
    )
    found |= {name: {name.rpartition(".")[2]: lines(texts[name])} for name in parallel}
    return found | {
        name: parquet_columns(ParquetFile(file.files, file.path)) for name, file in parquet.items()
    }


def parallel_names(path: Path) -> list[str]:
    """The files of a folder or a zip that differ in their ending alone, and that is a language's.

    They are parallel texts, whether or not they have the name of a split.
    """
    names = sorted(x.name for x in path.iterdir() if x.is_file()) if path.is_dir() else Zip(path).names()
    parts = [name.rpartition(".") for name in names]
    languages = {ending for ending in {ending for _, _, ending in parts} if is_language(ending)}
    texts = [(stem, ending) for stem, _, ending in parts if stem and ending in languages]
    stems = Counter(stem for stem, _ in texts)
    return [f"{stem}.{ending}" for stem, ending in texts if stems[stem] > 1]


def lines(text: str) -> list[str]:
    """The lines of a text; only a newline ends one, as ``wc -l`` counts them."""
    found = [line.strip() for line in text.split("\n")]
    return found if found[-1] else found[:-1]


def _nearest(names: Iterable[str]) -> list[str]:
    """Those nearest to the top; what lies deeper is a copy, or other data."""
    found = list(names)
    depth = min((name.count("/") for name in found), default=0)
    return [name for name in found if name.count("/") == depth]


def _names_split(name: str) -> bool:
    """Whether a file's name is that of a split with some ending, or it is a shard of one."""
    last = PurePosixPath(name).name
    ending = last.rpartition(".")[2]
    if last.startswith(_HIDDEN) or not 0 < len(ending) <= 10 or "." not in last:
        return False
    if ending.lower() == "parquet":
        return split_of_path(name) is not None
    return split_of_path(last) is not None


def _is_candidate(files: Files, name: str) -> bool:
    """Whether a file without the name of a split may be a table of pairs: two columns, and none of images."""
    last = PurePosixPath(name).name.lower()
    if last.startswith(_HIDDEN) or not last.endswith(TABLES):
        return False
    if last.endswith(".parquet"):
        shard = ParquetFile(files, name)
        return not any(map(shard.holds_bytes, shard.columns)) and not set(shard.columns) & set(IMAGE_COLUMNS)
    return last.endswith((".tsv", ".csv", ".jsonl", ".json")) or "\t" in files.read(name)[:4096].decode(
        "utf-8", errors="replace"
    )


def _is_text_table(name: str, text: str) -> bool:
    """Whether a text is a table: by its ending, or, of a ``.txt``, by a tab on its first line."""
    if name.lower().endswith(".txt"):
        return "\t" in next((line for line in text.split("\n") if line.strip()), "")
    return name.lower().endswith(TABLES)
