"""The parts of a result, in a folder beside it: each is written whole or not at all; at last they are merged.

    results.parquet.parts/plan.json            what the result is of; it stays
    results.parquet.parts/part-000000.parquet  some hundred rows; it goes when the result is there

Processes need not speak to each other: which part belongs to whom is a rule, and the one that finds all parts
there merges them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sightline.border import need, read_json, to_json
from sightline.data.files import atomic_write, lock_path, reason
from sightline.messages import listing, shortened

__all__ = ["FORMATS", "Parts"]

FORMATS = (".jsonl", ".parquet")
_PLAN = "plan.json"
_REMEDY = "choose another --out"
_DONE = "done"
_AT_ONCE = 1 << 20  # bytes that are copied at a time


class Parts:
    """The folder of a result's parts.

    Args:
        out: The result: ``.jsonl`` or ``.parquet``.
        plan: What the result is of, plain values: a folder of another plan is refused.
        counts: How many rows each part has.
        attention: Whether rows have what was looked at.
    """

    def __init__(self, out: Path, plan: Mapping[str, Any], counts: Sequence[int], *, attention: bool) -> None:
        self.out, self.folder, self._plan = out, out.with_name(f"{out.name}.parts"), dict(plan)
        self._counts, self._attention = counts, attention
        if out.suffix.lower() == ".parquet":
            need("pyarrow.parquet", "a result in parquet", "parquet")

    def begin(self) -> bool:
        """Make the folder, or find it as this very prediction left it; whether the result is there already.

        Raises:
            ValueError: If the folder is another prediction's, or the result is there without one.
        """
        if self.out.exists() and not (self.folder / _PLAN).exists():
            raise ValueError(f"{str(self.out)!r} is there already; remove it, or {_REMEDY}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise OSError(f"can't write {str(self.folder)!r}: {reason(problem)}; {_REMEDY}") from problem
        with lock_path(self.folder):
            if not (self.folder / _PLAN).exists():
                self._write_plan(done=False)
            kept = read_json(self.folder / _PLAN)
            self._check_plan(kept if isinstance(kept, dict) else {})
            if kept.get(_DONE) and not self.out.exists():  # the result was taken away, and is made anew
                self._write_plan(done=False)
            elif kept.get(_DONE):
                self._remove_parts()  # where a kill came between the result and this
            return self.is_done()

    def _check_plan(self, kept: Mapping[str, Any]) -> None:
        other = [key for key in self._plan if kept.get(key) != self._plan[key]]
        if other:
            shown = [f"{key} {shortened(kept.get(key))}, not {shortened(self._plan[key])}" for key in other]
            raise ValueError(
                f"{str(self.folder)!r} was begun with other settings or inputs: {listing(shown)}; go on with "
                f"those, remove it, or {_REMEDY}"
            )

    def is_done(self) -> bool:
        """Whether the result is there."""
        return bool(read_json(self.folder / _PLAN).get(_DONE))

    def is_there(self, number: int) -> bool:
        """Whether a part is written."""
        return self._part(number).exists()

    def n_done(self) -> int:
        """How many rows are written, by any process."""
        names = {path.name for path in self.folder.iterdir()}
        return sum(n for number, n in enumerate(self._counts) if self._part(number).name in names)

    def write(self, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a part."""
        with atomic_write(self._part(number), remedy=_REMEDY) as beside:
            if self.out.suffix.lower() == ".jsonl":
                beside.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")
            else:
                pa = need("pyarrow", "a result in parquet", "parquet")
                table = pa.Table.from_pylist(list(rows), schema=_schema(pa, attention=self._attention))
                need("pyarrow.parquet", "a result in parquet", "parquet").write_table(table, beside)

    def merge(self) -> bool:
        """Put the parts together, if all are there and nobody has done so; whether it was done here.

        Raises:
            ValueError: If a part is damaged.
        """
        with lock_path(self.folder):
            if self.is_done() or not all(map(self.is_there, range(len(self._counts)))):
                return False
            with atomic_write(self.out, remedy=_REMEDY) as beside:
                (_merge_lines if self.out.suffix.lower() == ".jsonl" else _merge_tables)(
                    beside, [(self._part(i), n) for i, n in enumerate(self._counts)]
                )
            self._write_plan(done=True)
            self._remove_parts()
            return True

    def _remove_parts(self) -> None:
        for path in self.folder.iterdir():
            if path.name != _PLAN:
                path.unlink(missing_ok=True)

    @contextmanager
    def kept_for(self, rank: int, world: int) -> Iterator[None]:
        """Keep a share for this process: two that do the same would do everything twice.

        Raises:
            ValueError: If another process has it.
        """
        refusal = (
            f"one process at a time may write a share of {str(self.out)!r}, and another does; wait for it, "
            f"or {_REMEDY}"
        )
        with lock_path(self.folder / f".share-{rank}-of-{world}", refusal=refusal):
            yield

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}{self.out.suffix.lower()}"

    def _write_plan(self, *, done: bool) -> None:
        with atomic_write(self.folder / _PLAN, remedy=_REMEDY) as beside:
            beside.write_text(to_json(self._plan | {_DONE: done}, indent=1) + "\n", encoding="utf-8")


def _schema(pa: Any, *, attention: bool) -> Any:
    guess = pa.struct([("text", pa.string()), ("score", pa.float64())])
    columns = [
        ("input", pa.string()),
        ("prediction", pa.string()),
        ("score", pa.float64()),
        ("alternatives", pa.list_(guess)),
        ("error", pa.string()),
    ]
    if attention:
        numbers = pa.list_(pa.float32())
        columns += [("tokens", pa.list_(pa.string())), ("peak", numbers), ("entropy", numbers)]
        columns += [("peak_at", pa.list_(pa.int32()))]
    return pa.schema(columns)


def _merge_lines(out: Path, parts: Sequence[tuple[Path, int]]) -> None:
    with out.open("wb") as to:
        for path, n in parts:
            lines = 0
            with path.open("rb") as part:
                while content := part.read(_AT_ONCE):
                    lines += content.count(b"\n")
                    to.write(content)
            _check_rows(path, lines, n)


def _merge_tables(out: Path, parts: Sequence[tuple[Path, int]]) -> None:
    pq = need("pyarrow.parquet", "a result in parquet", "parquet")
    writer: Any = None
    try:
        for path, n in parts:
            table = pq.read_table(path)
            _check_rows(path, table.num_rows, n)
            writer = writer or pq.ParquetWriter(out, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _check_rows(path: Path, got: int, expected: int) -> None:
    if got != expected:
        raise ValueError(
            f"{str(path)!r} must have {expected} rows, got {got}; it was changed: remove it, and go on"
        )
