"""Sentence pairs as people have them: CSV, Tatoeba's lines, Hugging Face's JSON and parquet."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sightline.data.pairs import Pair, read_pairs
from tests.data.caption_sets import as_folder, as_zip
from tests.data.pair_formats import FORMATS, PAIRS, csv_table, parquet, tatoeba


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_in_splits_and_alone(tmp_path, form, packed):
    ending, write, languages = FORMATS[form]
    files = {f"{split}.{ending}": write(PAIRS) for split in ("train", "dev", "test_2016")}
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path / "set")
    found = read_pairs(path)
    assert (found.source_language, found.target_language) == languages
    assert found.parts == {"train": PAIRS, "val": PAIRS, "test_2016": PAIRS}
    assert (found.rule, found.layout) == ("stated", ending)
    (tmp_path / f"deu.{ending}").write_bytes(write(PAIRS))
    alone = read_pairs(tmp_path / f"deu.{ending}")
    assert sorted(alone.split("all")) == sorted(PAIRS)
    assert alone.splits() == {"train": 1, "val": 1, "test": 1}
    assert alone.rule.startswith("dealt by a hash")


def test_a_zip_with_one_table_is_that_table(tmp_path):
    path = as_zip({"deu.txt": tatoeba(PAIRS), "_about.txt": b"License:\tCC-BY 2.0"}, tmp_path / "deu-eng.zip")
    assert read_pairs(path).parts == read_pairs(as_folder({"deu.txt": tatoeba(PAIRS)}, tmp_path / "x")).parts


def test_shards_of_a_split_are_one_after_the_other(tmp_path):
    files = {f"data/train-0000{i}-of-00002.parquet": parquet(PAIRS[i : i + 2]) for i in range(2)}
    files |= {"data/validation-00000-of-00001.parquet": parquet(PAIRS)}
    assert read_pairs(as_folder(files, tmp_path)).parts == {"train": [*PAIRS[:2], *PAIRS[1:]], "val": PAIRS}


def test_what_lies_deeper_is_a_copy(tmp_path):
    files = {"train.csv": csv_table(PAIRS), "old/train.csv": csv_table(PAIRS[:1])}
    assert read_pairs(as_folder(files, tmp_path)).parts == {"train": PAIRS}


def test_a_text_without_tabs_is_a_parallel_text(tmp_path):
    files = {"train.txt": b"a\nb\n", "train.de": b"c\nd\n"}
    assert read_pairs(as_folder(files, tmp_path), source="txt").parts["train"] == [
        Pair("a", "c"),
        Pair("b", "d"),
    ]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"en,de\na,b,c\n", "got 3 columns on line 2 and 2 on line 1"),
        ("x.csv", b'en,de\n"a,b\n', "'x.csv' can't be read as a table: unexpected end of data"),
        ("x.csv", b"", "x.csv is empty"),
        ("x.txt", b"a\tb\nc\n", "got 1 columns on line 2"),
        ("x.json", b'[{"en": "a", "de": 3}]', "object of texts"),
        ("x.json", b"[1]", "'x.json' must hold objects such as {...}, got 1 in place 1"),
        ("x.json", b'{"en": "a"', "line 1 of 'x.json' is not JSON"),
        ("x.jsonl", b'{"translation": {"en": "a"}}', "has en alone"),
        ("x.jsonl", b'{"translation": 3}', "object of texts"),
        ("x.jsonl", b'{"translation": {"en": "a", "de": null}}', "pair 1 of x.jsonl has no de beside 'a'"),
        ("x.parquet", b"PAR1", "'x.parquet' in '{folder}' can't be read as parquet"),
        ("x.parquet", parquet([]), "x.parquet is empty"),
        (
            "x.parquet",
            parquet([("a", "b"), (None, "c"), ("d", "e")]),
            "pair 2 of x.parquet has no en beside 'c'",
        ),
    ],
)
def test_tables_that_are_none(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"\S") as refused:
        read_pairs(tmp_path / name)
    assert words.replace("{folder}", str(tmp_path)) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_two_tables_without_a_split_are_not_guessed_at(tmp_path):
    with pytest.raises(ValueError, match="there are no sentence pairs"):
        read_pairs(as_folder({"a.csv": csv_table(PAIRS), "b.csv": csv_table(PAIRS)}, tmp_path))


def test_a_side_that_is_missing_costs_its_own_pair_when_data_are_looked_at(tmp_path):
    file = io.BytesIO()
    rows = [{"en": "a", "de": "b"}, None, {"en": "c", "de": None}, {"en": "d", "de": "e"}]
    pq.write_table(pa.table({"translation": rows, "id": [1, 2, 3, 4]}), file)
    (tmp_path / "x.parquet").write_bytes(file.getvalue())
    found = read_pairs(tmp_path / "x.parquet", strict=False)
    assert [problem.sentence for problem in found.problems] == [
        "x.parquet, pair 2: each side is empty",
        "x.parquet, pair 3: the target is empty",
    ]
