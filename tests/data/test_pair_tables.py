import pytest

from sightline.data.pair_tables import is_language
from sightline.data.pairs import Pair, read_pairs

DOG, CAT = Pair("a dog", "ein Hund"), Pair("a cat", "eine Katze")


def written(folder, **tables):
    for name, text in tables.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("header", "asked", "languages"),
    [
        ("en\tde", {}, ("en", "de")),
        ("pt-BR\tzh_TW", {}, ("pt-BR", "zh_TW")),
        ("eng\tdeu", {}, ("eng", "deu")),
        ("English\tgerman", {}, ("English", "german")),
        ("source\ttarget", {}, ("source", "target")),
        ("src\tTGT", {}, ("src", "TGT")),
        ("mine\tyours", {"source": "mine", "target": "yours"}, ("mine", "yours")),
        ("mine\tde", {"source": "mine"}, ("mine", "de")),
    ],
)
def test_a_first_line_of_names_is_no_pair(tmp_path, header, asked, languages):
    written(tmp_path, train=f"{header}\na dog\tein Hund\n", val=f"{header}\na cat\teine Katze\n")
    found = read_pairs(tmp_path, **asked)
    assert (found.source_language, found.target_language) == languages
    assert dict(found.parts) == {"train": [DOG], "val": [CAT]}


@pytest.mark.parametrize("first", ["dog\tHund", "en\tHund", "mine\tyours", "cat\tKatze"])
def test_a_first_pair_of_single_words_is_a_pair(tmp_path, first):
    found = read_pairs(written(tmp_path, train=f"{first}\na dog\tein Hund\n"))
    assert found.parts["train"] == [Pair(*first.split("\t")), DOG]
    assert (found.source_language, found.target_language) == ("source", "target")


def test_columns_without_names_are_called_as_asked(tmp_path):
    found = read_pairs(written(tmp_path, train="a dog\tein Hund\n"), source="en", target="de")
    assert (found.source_language, found.target_language, found.parts["train"]) == ("en", "de", [DOG])
    turned = read_pairs(tmp_path, source="de", target="en")
    assert turned.parts["train"] == [DOG], "the first column is the source, whatever it is called"


def test_further_columns_have_names_above_them(tmp_path):
    written(tmp_path, train="notes\tde\ten\nx\tein Hund\ta dog\n")
    assert read_pairs(tmp_path, source="en", target="de").parts["train"] == [DOG]


def test_languages_are_known_by_code_and_by_name():
    assert all(map(is_language, ["de", "de_AT", "zh-Hant", "Greek"]))
    assert not any(map(is_language, ["dog", "Hund", "the", "notes", "", "a b", "csv"]))


@pytest.mark.bad_input
def test_names_are_above_all_tables_or_above_none(tmp_path):
    written(tmp_path, train="en\tde\na dog\tein Hund\n", val="a cat\teine Katze\n")
    with pytest.raises(ValueError, match=r"got en, de in train\.tsv and 'a cat, eine Katze' in val\.tsv"):
        read_pairs(tmp_path)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("train.tsv", "a\tb\nc\n", "got 1 columns on line 2 and 2 on line 1"),
        ("train.tsv", "en\tde\n\na\tb\n\nc\n", "got 1 columns on line 5 and 2 on line 1"),
        ("train.tsv", "a b\tc\td e\n", r"two columns, got 3 in train\.tsv"),
        ("train.tsv", "en\ten\na\tb\n", r"columns of train\.tsv must differ, got en, en"),
        ("train.tsv", "\n", r"train\.tsv is empty"),
        ("train.jsonl", "\n", r"train\.jsonl is empty"),
        ("train.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', r"got \['a'\] on line 2 and \['a', 'b'\]"),
        ("train.jsonl", "[1]\n", r"got '\[1\]' on line 1"),
        ("train.jsonl", "{}\n", r"object of texts .* got '\{\}' on line 1"),
        ("train.jsonl", "{\n", "line 1 of train.jsonl is not JSON"),
        ("train.jsonl", "[" * 200_000, r"line 1 of train\.jsonl is deeper"),
        (
            "train.jsonl",
            '{"a": "x", "b": "y"}\n{"a": "x", "b": "\\ud83d"}\n',
            r"line 2 of train\.jsonl has \\ud83d, half of one; write both halves",
        ),
    ],
)
def test_a_table_that_is_none_or_could_be_misread_is_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_pairs(tmp_path)


def test_both_halves_of_a_character_are_one(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"a": "\\ud83d\\ude00", "b": "y"}\n')
    assert read_pairs(tmp_path).parts["train"] == [Pair("\N{GRINNING FACE}", "y")]
