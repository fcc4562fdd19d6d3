"""Alignment error rate on a few sentences aligned by hand."""

import pytest
import torch

from workshop.figures.alignment import (
    alignment_error_rate,
    read_links,
    read_links_file,
    read_naacl_file,
    word_links,
    word_of_tokens,
)

# das kleine Haus / the small house; ich habe es gesehen / I saw it;
# er geht nicht nach Hause / he is not going home
GOLD = ["0-0 1-1 2-2", "0-0 1?1 2-2 3-1", "0-0 1?1 1-3 2-2 3?4 4-4"]


def test_by_counting():
    gold = [read_links(line) for line in GOLD]
    found = [{(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 1), (2, 1)}, {(0, 0), (1, 3), (2, 2), (4, 4), (4, 3)}]
    # sure hits 3 + 1 + 4, possible hits 3 + 2 + 4, links 3 + 3 + 5, sure 3 + 3 + 4
    assert alignment_error_rate(found, gold) == pytest.approx(1 - (8 + 9) / (11 + 10))


def test_bounds():
    gold = [read_links(line) for line in GOLD]
    assert alignment_error_rate([x.sure for x in gold], gold) == 0
    assert alignment_error_rate([x.possible for x in gold], gold) == 0
    assert alignment_error_rate([[(9, 9)]] * 3, gold) == 1
    assert alignment_error_rate([], []) == 0


def test_files(tmp_path):
    path = tmp_path / "gold"
    path.write_text("das haus ||| the house ||| 0-0 1?1\n1-1\n", encoding="utf-8")
    assert read_links_file(path) == [read_links("0-0 1?1"), read_links("1-1")]
    assert read_links("1-1 2p3", first=1) == read_links("0-0 1?2")


@pytest.mark.bad_input
def test_what_is_no_link():
    with pytest.raises(ValueError, match=r"a link is source-target.*got '3'"):
        read_links("0-0 3")
    with pytest.raises(ValueError, match="positions count from 1, got '0-0'; say first=0"):
        read_links("0-0", first=1)
    with pytest.raises(ValueError, match="got 1 predicted and 0 gold"):
        alignment_error_rate([[(0, 0)]], [])


def test_the_older_format(tmp_path):
    path = tmp_path / "gold.naacl"
    path.write_text("0001 1 1 S\n0001 2 2 P\n\n3 1 2\n", encoding="utf-8")
    assert read_naacl_file(path) == [read_links("0-0 1?1"), read_links(""), read_links("0-1")]
    assert read_naacl_file(path, 4) == [*read_naacl_file(path), read_links("")]


@pytest.mark.bad_input
@pytest.mark.parametrize("line", ["1 1", "1 0 1 S", "a 1 1 S"])
def test_what_is_no_link_of_the_older_format(tmp_path, line):
    path = tmp_path / "gold.naacl"
    path.write_text(f"1 1 1 S\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a link is a line of sentence.*got '{line}' in line 2"):
        read_naacl_file(path)


def test_words_of_tokens():
    text = "das  kleine Haus"
    offsets = [(0, 0), (0, 3), (3, 9), (9, 11), (12, 16), (16, 16)]
    assert word_of_tokens(text, offsets) == [None, 0, 1, 1, 2, None]
    assert word_of_tokens("", []) == []


def test_links_of_words_add_up_their_tokens():
    targets, sources = [0, 1, 1, None], [0, 0, 1, 2, None]
    weights = torch.tensor(
        [
            [0.2, 0.2, 0.3, 0.1, 0.2],  # word 0 looks at word 0 with 0.4
            [0.0, 0.1, 0.4, 0.5, 0.0],
            [0.0, 0.0, 0.4, 0.1, 0.5],  # word 1 at word 1 with 0.8; the end is no word
            [1.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
    assert word_links(weights, targets, sources) == {(0, 0), (1, 1)}
    assert word_links(weights, [None, 1, None, None], sources) == {(2, 1)}
    assert word_links(weights, targets, [None] * 5) == set()
