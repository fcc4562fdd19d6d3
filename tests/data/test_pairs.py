import json
import zipfile

import pytest

from sightline.data.dataset import Dataset
from sightline.data.pairs import Pair, PairSet, read_pairs
from tests.data.caption_sets import as_folder, as_zip


def written(folder, **texts):
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(
        tmp_path,
        train__en="a dog\na cat\n\u2028odd line\n",
        train__de="ein Hund\neine Katze\nseltsame Zeile\n",
        dev__en="a bird\n",
        dev__de="ein Vogel",
        test_2016__en="a cow\n",
        test_2016__de="eine Kuh\n",
        README="not a split",
    )


def test_parallel_texts_are_paired_line_by_line(folder):
    found = read_pairs(folder, source="en")
    assert (found.source_language, found.target_language) == ("en", "de")
    assert found.parts["train"][:2] == [Pair("a dog", "ein Hund"), Pair("a cat", "eine Katze")]
    assert len(found.parts["train"]) == 3, "only a newline ends a line"
    assert found.split("val") == [Pair("a bird", "ein Vogel")]
    assert found.split("test") == [Pair("a cow", "eine Kuh")]


def test_marks_of_other_systems_are_no_part_of_a_text(folder):
    (folder / "train.en").write_bytes(b"\xef\xbb\xbfa dog\r\na cat\r\nodd line\r\n")
    assert [pair.source for pair in read_pairs(folder, source="en").parts["train"]] == [
        "a dog",
        "a cat",
        "odd line",
    ]


def test_languages_can_be_turned_around(folder):
    assert read_pairs(folder, source="de", target="en").split("test") == [Pair("eine Kuh", "a cow")]


def test_a_zip_reads_as_its_folder(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in folder.glob("*.??"):
            archive.write(path, f"inner/{path.name}")
    zipped = read_pairs(tmp_path / "all.zip", source="en")
    assert dict(zipped.parts) == dict(read_pairs(folder, source="en").parts)


def test_tables_read_as_parallel_texts(tmp_path):
    written(tmp_path, train__tsv="en\tde\na dog\tein Hund\n", val__tsv="en\tde\na cat\teine Katze\n")
    assert read_pairs(tmp_path).parts["train"] == [Pair("a dog", "ein Hund")]
    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat", "de": "eine Katze"}]
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "val.tsv").unlink()
    written(tmp_path, train__jsonl="\n".join(map(json.dumps, rows)))
    assert read_pairs(tmp_path, source="de").parts["train"][1] == Pair("eine Katze", "a cat")


def test_a_single_table_is_dealt_to_splits_without_overlap(tmp_path):
    lines = [f"word {i % 150}\tWort {i}" for i in range(300)]
    path = tmp_path / "all.tsv"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_pairs(path)
    assert sum(map(len, found.parts.values())) == 300
    assert found.splits() == {"train": 300 - 2 * 14, "val": 14, "test": 14}, "7 of 150 sources, twice each"
    sources = [{pair.source for pair in split} for split in found.parts.values()]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert dict(read_pairs(path).parts) == dict(found.parts)


def test_test_sets_alone_are_a_set(tmp_path):
    written(tmp_path, test_a__en="x\n", test_a__de="y\n", test_b__en="u\n", test_b__de="v\n")
    found = read_pairs(tmp_path, source="en", target="de")
    assert found.split("test_b") == [Pair("u", "v")]


@pytest.mark.bad_input
def test_what_can_not_be_paired_is_refused_with_both_counts(folder):
    (folder / "train.de").write_text("ein Hund\n")
    with pytest.raises(ValueError, match=r"train\.en has 3 and train\.de has 1"):
        read_pairs(folder, source="en")


@pytest.mark.bad_input
def test_an_empty_side_is_refused_with_its_line(folder):
    (folder / "train.de").write_text("ein Hund\n\nx\n")
    with pytest.raises(ValueError, match=r"pair 2 of train has no de beside 'a cat'"):
        read_pairs(folder, source="en")
    for name in ("train.de", "train.en"):
        (folder / name).write_text("")
    with pytest.raises(ValueError, match=r"train has no pairs"):
        read_pairs(folder, source="en")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("languages", "sentence"),
    [
        ({"source": "fr"}, r"no source 'fr' .* 'de', 'en'"),
        ({"target": "ed"}, r"no target 'ed' .*expected one of 'de', 'en'"),
        ({"source": "en", "target": "en"}, r"two languages, got 'en' for both"),
    ],
)
def test_a_language_that_is_not_there_is_refused(folder, languages, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_pairs(folder, **languages)


@pytest.mark.bad_input
def test_three_languages_must_be_chosen_from(folder):
    written(folder, train__fr="a\nb\nc\n")
    with pytest.raises(ValueError, match="name two of them with --source and --target"):
        read_pairs(folder)


@pytest.mark.bad_input
def test_files_that_are_no_pairs_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no sentence pairs in .* got none of them"):
        read_pairs(tmp_path)
    for name in ("all.de", "all.en", "all.fr", "notes.md"):
        (tmp_path / name).write_text("x\n")
    with pytest.raises(ValueError, match=r"expected train\.en and .* got all\.de, all\.en, all\.fr$"):
        read_pairs(tmp_path)
    with pytest.raises(ValueError, match=r"got '.*all\.de'; of two parallel texts give the folder, '.*'$"):
        read_pairs(tmp_path / "all.de")
    (tmp_path / "train.en").write_text("x\n")
    with pytest.raises(ValueError, match=r"two languages, .* has en alone; add the other"):
        read_pairs(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing at 'nowhere'"):
        read_pairs("nowhere")
    (tmp_path / "train.en").write_bytes("Märchen".encode("latin-1"))
    with pytest.raises(ValueError, match=r"0xe4 on line 1; .*utf-8 train\.en > new && mv new train\.en$"):
        read_pairs(tmp_path)
    (tmp_path / "broken.zip").write_bytes(b"PK no")
    with pytest.raises(ValueError, match=r"broken\.zip' is not a zip"):
        read_pairs(tmp_path / "broken.zip")


@pytest.mark.bad_input
def test_a_split_that_is_there_twice_is_refused(folder):
    written(folder, val__en="a cow\n", val__de="eine Kuh\n")
    with pytest.raises(ValueError, match=r"val in de once, got dev\.de and val\.de"):
        read_pairs(folder, source="en")


@pytest.mark.bad_input
def test_two_files_of_one_name_in_a_zip_are_refused(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for place in ("new", "old"):
            archive.write(folder / "train.en", f"{place}/train.en")
    with pytest.raises(ValueError, match=r"'new/train\.en' and 'old/train\.en'"):
        read_pairs(tmp_path / "all.zip")


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["nowhere.tsv", "nowhere.jsonl", "nowhere.zip"])
def test_a_file_that_is_not_there_is_told_in_our_words(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"there is nothing at .*nowhere"):
        read_pairs(tmp_path / name)


@pytest.mark.bad_input
def test_an_unknown_split_is_refused():
    def of(**parts):
        return PairSet(source="x", source_language="a", target_language="b", parts=parts)

    with pytest.raises(
        ValueError, match=r"no split 'vall' in 'x', which has .* 'val' \(0\); take --split val$"
    ):
        of(train=[], val=[]).split("vall")
    with pytest.raises(
        ValueError, match=r"no split 'test' in 'x', .*; take --split val, or put some into test\.a"
    ):
        of(train=[], val=[]).split("test")
    with pytest.raises(ValueError, match="take --split test_a"):
        of(val=[], test_a=[], test_b=[]).split("test")


def test_what_a_training_lacks_is_told_with_a_remedy():
    def lacking(*names):
        return PairSet(
            source="x", source_language="a", target_language="b", parts=dict.fromkeys(names, ())
        ).lacking()

    assert lacking("train", "val_1") is None
    assert "no split 'val' in x, but 'train'; put some into val.a and val.b" in lacking("train")
    assert "no split 'train' in x" in lacking("train_1", "train_2", "val")


def test_runs_of_version_0_1_find_their_splits_again(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("\n".join(f"word {i}\tWort {i}" for i in range(97)))
    found = read_pairs(path, deal="0.1")
    assert [int(pair.source.split()[1]) for pair in found.split("val")] == [8, 44, 52, 59, 71, 78]
    assert [int(pair.source.split()[1]) for pair in found.split("test")] == [21, 54, 77, 80, 82]
    assert found.digest() == "1c57f959db0f"
    assert read_pairs(path).splits() == {"train": 89, "val": 4, "test": 4}
    assert read_pairs(path, seed=1).split("val") != read_pairs(path).split("val")
    assert isinstance(found, Dataset)
    assert len(found.split("all")) == 97


@pytest.mark.bad_input
def test_too_few_sentences_to_be_dealt_are_refused(tmp_path):
    (tmp_path / "all.tsv").write_text("a\tb\na\tc\nd\te\n")
    with pytest.raises(ValueError, match=r"by its sentences, got none for val out of 3; give a folder"):
        read_pairs(tmp_path / "all.tsv")
    with pytest.raises(ValueError, match="unknown deal 'crc'"):
        read_pairs(tmp_path / "all.tsv", deal="crc")


@pytest.mark.parametrize("packed", [False, True])
def test_two_parallel_texts_alone_are_dealt_as_one_table_is(tmp_path, packed):
    english, german = [f"word {i}" for i in range(97)], [f"Wort {i}" for i in range(97)]
    files = {"corpus.en": "\n".join(english).encode(), "corpus.de": "\n".join(german).encode()}
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path / "set")
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{b}\t{a}\n" for a, b in zip(english, german, strict=True)))
    found = read_pairs(path)
    assert (found.source_language, found.target_language) == ("de", "en")
    assert found.parts == read_pairs(table).parts
    assert set(found.parts) == {"train", "val", "test"}


@pytest.mark.bad_input
def test_a_folder_of_several_tables_names_them(tmp_path):
    as_folder({"deu.txt": b"a\tb\n", "fra.txt": b"a\tc\n"}, tmp_path)
    with pytest.raises(
        ValueError, match=r"got deu\.txt, fra\.txt; one table can be given by itself, as '.*deu\.txt'$"
    ):
        read_pairs(tmp_path)
