import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.tables import delimiter_of, read_cells, read_objects, read_table

CELLS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r\n", exclude_categories=["Z", "C"]), min_size=1
)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=7), st.sampled_from(",;"))
def test_cells_come_back_as_the_csv_module_wrote_them(rows, delimiter):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    assert read_cells(file.getvalue(), delimiter, "x.csv") == rows


def test_names_of_columns_are_small_in_every_format():
    for name, text in (
        ("x.csv", "File_Name, Label \n1.png,Cat\n"),
        ("x.tsv", "FILE_NAME\tlabel\n1.png\tCat\n"),
        ("x.jsonl", '{"File_Name": "1.png", " Label": "Cat"}\n'),
        ("x.json", '{"data": [{"File_Name": "1.png", "LABEL": "Cat"}]}'),
    ):
        assert read_table(text, name) == [{"file_name": "1.png", "label": "Cat"}]


def test_a_short_row_lacks_its_last_cells():
    assert read_table("a,b\n1\n\n2,3\n", "x.csv") == [{"a": "1"}, {"a": "2", "b": "3"}]
    assert read_table("", "x.csv") == read_table("a,b\n", "x.csv") == []


def test_what_a_line_has_most_of_parts_it():
    assert [delimiter_of(x) for x in ("a,b", "a;b, c;d", "a\tb", "a|b", "alone")] == [
        ",",
        ";",
        "\t",
        "|",
        ",",
    ]


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["3", '["a"]', '{"data": [null]}', "{}\n[]"])
def test_objects_that_are_none(text):
    with pytest.raises(
        ValueError, match=r"'x\.json' must hold objects such as \{\.\.\.\}, got .* in place [12]"
    ):
        read_objects(text, "x.json")
