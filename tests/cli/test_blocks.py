"""Attention as blocks in a terminal."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import sightline as sl
from sightline.cli import blocks
from sightline.cli.blocks import Tile, print_attention, print_matrix, print_sights, print_tiles
from sightline.tasks.attention import Attention, Grid
from tests.command import run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
SHADE = {"  ": 0, "░░": 1, "▒▒": 2, "▓▓": 3, "██": 4}


def console(width=80, **options):
    return Console(file=io.StringIO(), width=width, highlight=False, **options)


def text_of(made):
    return made.file.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def pixels_of(text):
    """The colours of all half blocks, upper rows and lower rows."""
    rows = []
    for line in text.splitlines():
        pairs = re.findall(r"38;2;(\d+);(\d+);(\d+)(?:;48;2;(\d+);(\d+);(\d+))?m▀", line)
        if pairs:
            numbers = [[int(x or -1) for x in pair] for pair in pairs]
            rows += [[x[:3] for x in numbers], [x[3:] for x in numbers]]
    return np.array(rows)


def test_without_colour_a_cell_is_two_characters_of_shade():
    weights = np.array([[0.0, 0.25, 0.5], [0.75, 1.0, 0.0]], dtype=np.float32)
    made = console(12)
    print_tiles(made, [Tile(title="head 0", weights=weights)], 1)
    lines = text_of(made).splitlines()
    assert lines[0].rstrip() == "head 0"
    cells = [[SHADE[row.ljust(12)[i : i + 2]] for i in range(0, 12, 2)] for row in lines[1:5]]
    expected = (weights * 4).repeat(2, 0).repeat(2, 1)
    assert cells == expected.tolist()


def test_with_colour_each_half_block_has_the_colour_of_its_weight():
    weights = np.random.default_rng(0).random((7, 13)).astype(np.float32)
    made = console(13, force_terminal=True, color_system="truecolor")
    print_tiles(made, [Tile(title="h", weights=weights)], 1)
    pixels = pixels_of(text_of(made))
    levels = np.rint(weights / weights.max() * 63).astype(int)
    assert (pixels[:7] == np.array(blocks._ramp())[levels]).all()
    assert (pixels[7] == -1).all()  # an odd row has nothing behind it


def test_the_ramp_is_even_and_its_ends_are_dark_and_light():
    light = np.array(blocks._ramp()) @ np.array([0.2126, 0.7152, 0.0722])
    assert light[0] < 30
    assert light[-1] > 220
    assert (np.diff(light) > 0).all()


def test_a_large_matrix_is_drawn_by_its_means():
    weights = np.zeros((64, 64), dtype=np.float32)
    weights[:32] = 1
    weights[5, 5] = 0
    made = console(16)
    print_tiles(made, [Tile(title="h", weights=weights)], 1)
    lines = text_of(made).splitlines()[1:9]
    assert [line.rstrip() for line in lines] == ["██" * 8] * 4 + [""] * 4


@pytest.mark.parametrize("width", [7, 20, 33, 80, 211])
@pytest.mark.parametrize("colour", [None, "truecolor", "256"])
def test_no_line_is_wider_than_the_terminal(width, colour):
    made = console(width, force_terminal=colour is not None, color_system=colour)
    x = torch.randn(1, 6, 41, 8)
    print_sights(made, {"layer": sl.look(x, x, x)})
    names = tuple(f"{'w' * (i % 30)}\n\x1b[31m\u202e語{i}" for i in range(41))
    weights = torch.rand(1, 1, 41, 41)
    print_attention(made, Attention(weights=weights, queries=names, keys=names))
    drawn = plain(text_of(made))
    assert max(map(blocks.cell_len, drawn.splitlines())) <= width
    assert "\x1b" not in drawn


def test_sights_are_drawn_from_maps_of_the_tiles_size():
    x = torch.randn(2, 3, 40, 8)
    sight = sl.look(x, x, x)
    made = console(44, force_terminal=True, color_system="truecolor")
    print_sights(made, {"self_attn": sight})
    pixels = pixels_of(text_of(made))
    maps = sight.map(14)[0].numpy()
    shares = np.concatenate([m / m.max() for m in maps], axis=1)
    assert (pixels == np.array(blocks._ramp())[np.rint(shares * 63).astype(int)]).all()


def test_a_matrix_has_its_words_at_the_sides():
    made = console(40)
    print_matrix(made, np.eye(3, dtype=np.float32), ["the", "cat", "sat"], ["le", "chat", "a"])
    assert text_of(made).splitlines() == [
        "the ██",
        "cat   ██",
        "sat     ██",
        "    l c a",
        "    e h",
        "      a",
        "      t",
        "the largest weight is 1.000",
        "",
    ]


def test_a_matrix_in_colour_has_a_cell_for_every_weight():
    made = console(40, force_terminal=True, color_system="truecolor")
    print_matrix(made, np.eye(3, dtype=np.float32), ["a", "b", "c"], ["x", "y", "z"])
    for line in text_of(made).splitlines()[:3]:
        assert sum(len(cell) for cell in re.findall(r"48;2;[0-9;]*m( +)", line)) == 6


def test_an_image_is_drawn_beside_what_each_word_looked_at():
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    image[0] = 200
    weights = torch.zeros(1, 1, 2, 4)
    weights[0, 0, 0, 3] = weights[0, 0, 1, 0] = 1
    made = console(60, force_terminal=True, color_system="truecolor")
    grid = Grid(rows=2, columns=2, image=image)
    print_attention(made, Attention(weights=weights, queries=("red", "ring"), keys=grid))
    first = text_of(made).splitlines()[0]
    assert re.findall(r"\w+", plain(first)) == ["the", "picture", "red", "ring"]
    pixels = pixels_of(text_of(made).splitlines()[1])
    assert (pixels[:, :16] == [200, 0, 0]).all()
    assert (pixels[0, 16:] == blocks._ramp()[0]).any(-1).sum() > 0


def test_a_terminal_without_unicode_gets_ascii():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    made = Console(file=file, width=20)
    print_tiles(made, [Tile(title="h", weights=np.eye(3, dtype=np.float32))], 1)
    file.flush()
    assert b"##" in file.buffer.getvalue()


@pytest.mark.parametrize("name", ["caption", "classify", "translate"])
def test_look_draws_runs(name):
    data = FIXTURES / "data"
    given = "1" if name == "translate" else next(iter(sorted(data.rglob("*.png"))))
    result = run("look", FIXTURES / name / "finished", given, "--text")
    assert result.code == 0, result.err
    assert any(shade in result.out for shade in "░▒▓█")
    assert "entropy" not in result.out


@pytest.mark.bad_input
def test_text_and_json_exclude_each_other():
    result = run("look", FIXTURES / "translate" / "finished", "1", "--text", "--json")
    assert (result.code, "got both; leave one out" in result.err) == (2, True)
