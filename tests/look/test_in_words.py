"""What a sight is in words, tables, JSON and pictures: each number is that of the whole matrix."""

import html
import importlib.util
import io
import json
import math
import re

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import sightline as sl
from sightline.look.heads import head_table, sharpest
from tests.oracle.check import agrees_at_all
from tests.oracle.dense import Dense
from tests.oracle.draw import qkv
from tests.oracle.masks import as_added
from tests.oracle.questions import QUESTIONS

LEAD, T, D = (2, 3), 7, 5
MASKS = {
    "nothing": None,
    "causal": sl.masks.causal(),
    "window": sl.masks.window(2, 1),
    "padding": sl.masks.padding([7, 4]),
    "causal and padding": sl.masks.causal() & sl.masks.padding([5, 7]),
}
COLUMNS = ("layer", "head", "entropy", "distance", "first", "peak", "evenness", "kind")


def looked(name, *, t=T, s=T, keep=True, measure=None):
    """A sight and its matrix, and the matrix of queries and keys that are all alike: even attention."""
    q, k, v = qkv(LEAD, t, s, D, dtype=torch.float64)
    mask = MASKS[name]
    added = None if mask is None else as_added(mask.dense(t, s))
    added = added[:, None] if added is not None and added.dim() == 3 else added  # of each item
    options = {} if measure is None else {"measure": measure}
    sight = sl.look(q, k, v, mask, keep=keep, **options)
    return sight, Dense.of(q, k, added), Dense.of(q * 0, k, added)


def mean(x, looking):
    """Of each head, over the queries of the batch that look at something."""
    return (x * looking).sum((0, -1)) / looking.sum((0, -1)).clamp(min=1)


# The table of heads


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
@pytest.mark.parametrize("name", MASKS)
def test_a_table_has_the_numbers_of_the_matrix(name, keep):
    sight, dense, even = looked(name, keep=keep)
    looking = dense.is_looking
    places = torch.arange(T, dtype=torch.float64)
    far = (dense.weights * (places[:, None] - places).abs()).sum(-1)
    table = head_table({"encoder.self_attn": sight})
    assert [(row.layer, row.head) for row in table] == [("encoder.self_attn", i) for i in range(3)]
    expected = {
        "entropy": mean(dense.entropy, looking),
        "first": dense.received[..., 0].sum(0) / looking.sum((0, -1)),
        "peak": mean(dense.peak, looking),
        "distance": mean(far, looking),
        "evenness": mean(dense.entropy, looking) / mean(even.entropy, looking),
    }
    for column, values in expected.items():
        found = [getattr(row, column) for row in table]
        if column == "distance" and not keep:
            assert found == [None] * 3
        elif found != [None] * 3 or keep:
            assert found == pytest.approx(values.tolist(), abs=1e-6), column


def test_a_table_is_the_same_as_text_as_json_and_as_a_page():
    sights = {name: looked(name)[0] for name in ("nothing", "causal")}
    table = head_table(sights)
    shown = [
        [
            "-" if x is None else f"{x:.3f}" if isinstance(x, float) else str(x)
            for x in (getattr(row, c) for c in COLUMNS)
        ]
        for row in table
    ]
    assert len(shown) == 6
    header, *lines = str(table).splitlines()
    assert header.split() == list(COLUMNS)
    assert [line.split()[: len(row)] for line, row in zip(lines, shown, strict=True)] == [
        [word for cell in row for word in cell.split()] for row in shown
    ]
    assert len({line.index(row[0]) for line, row in zip(lines, shown, strict=True)}) == 1
    page = table._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    assert page == f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    assert rows[0] == "".join(f"<th>{name}</th>" for name in COLUMNS)
    assert rows[1:] == ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in shown]
    told = json.loads(table.to_json())
    assert [list(row) for row in told] == [[*COLUMNS, "shares"]] * 6
    assert [[row[name] for name in COLUMNS] for row in told] == [
        [getattr(row, name) for name in COLUMNS] for row in table
    ]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_a_table_is_a_frame():
    table = head_table({"a": looked("causal")[0]})
    frame = table.to_pandas()
    assert len(frame) == 3
    assert frame["entropy"].tolist() == [row.entropy for row in table]
    for kind in table[0].shares:
        assert frame[f"share of {kind}"].tolist() == [row.shares[kind] for row in table]


def test_across_two_sequences_there_is_no_distance():
    sight, dense, _ = looked("nothing", t=5, s=11)
    table = head_table({"decoder.cross_attn": sight})
    assert [row.distance for row in table] == [None] * 3
    assert [row.entropy for row in table] == pytest.approx(dense.entropy.mean((0, -1)).tolist())


def test_the_sharpest_are_those_of_the_least_entropy_for_what_they_may_see():
    table = head_table({name: looked(name)[0] for name in ("nothing", "causal", "window")})
    by_evenness = sorted(table, key=lambda row: row.evenness)
    assert sharpest(table, 4) == by_evenness[:4]
    assert sharpest(table) == by_evenness[:3]
    assert sharpest(table, 0) == []


# A sight in a few lines


@pytest.mark.parametrize("name", MASKS)
def test_a_sight_says_what_the_matrix_says(name):
    sight, dense, even = looked(name, measure=sl.Look(map=(2, 3), top=4))
    looking = dense.is_looking
    entropy, peak = dense.entropy[looking], dense.peak[looking]
    share = dense.received.reshape(-1, T).mean(0) / looking.reshape(-1, T).sum(-1).double().mean()
    evenly = even.received.reshape(-1, T).mean(0)
    most = int(share.argmax())
    lines = str(sight).splitlines()
    assert lines[0] == "Sight: 2 items, 3 heads, T=7 queries, S=7 keys"
    assert lines[1] == (
        f"  entropy   {entropy.mean():.3f} nats on average, {entropy.min().abs():.3f} to "
        f"{entropy.max():.3f}; "
        f"even is {even.entropy[looking].mean():.3f}"
    )
    assert lines[2] == f"  peak      {peak.mean():.3f} on average, {peak.min():.3f} to {peak.max():.3f}"
    assert lines[3] == (
        f"  received  most by key {most}, {share[most]:.1%} of all weight; "
        f"even is {evenly[most] / evenly.sum():.1%}"
    )
    assert lines[4] == "  measured  also a map of 2 x 3 and the top 4"
    assert re.fullmatch(
        r"  keeps     q and k, 0\.0 MB, for maps, rows and tops; forget\(\) lets them go", lines[-1]
    )


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (sl.Look(), None),
        (sl.Look(map=5), "a map of 5 x 5"),
        (sl.Look(top=2), "the top 2"),
        (sl.Look(received=False, entropy=False, peak=False, top=1), "the top 1"),
    ],
    ids=["nothing", "map", "top", "top alone"],
)
def test_a_sight_says_what_else_was_measured(measure, words):
    text = str(looked("nothing", measure=measure, keep=False)[0])
    assert ("measured  also" in text) == (words is not None)
    assert words is None or f"  measured  also {words}\n" in f"{text}\n"
    assert "keeps" not in text
    assert ("entropy" in text) == measure.entropy
    assert ("peak" in text) == measure.peak
    assert ("received" in text) == measure.received


# For other programs


@pytest.mark.parametrize("name", ["nothing", "padding"])
def test_what_was_seen_as_json_has_its_numbers(name):
    layer = torch.nn.MultiheadAttention(6, 3, batch_first=True)
    x = qkv((2,), T, T, 6)[0]
    hidden = None if name == "nothing" else torch.arange(T) >= torch.tensor([[7], [4]])
    with sl.watch(layer) as seen:
        layer(x, x, x, key_padding_mask=hidden)
    (sight,) = (
        seen.calls("MultiheadAttention") if "MultiheadAttention" in seen else seen.calls(next(iter(seen)))
    )
    told = json.loads(seen.to_json())
    assert "NaN" not in seen.to_json()
    (found,) = [x for x in _objects(told) if "statistics" in x]
    assert (found["queries"], found["keys"], found["lead"]) == (T, T, [2, 3])
    for statistic in ("entropy", "peak", "received", "lse", "peak_at"):
        values, expected = _tensor(found["statistics"][statistic]), getattr(sight, statistic).double()
        torch.testing.assert_close(values, expected.masked_fill(expected.isinf(), math.nan), equal_nan=True)


def _objects(value):
    """Every object inside of a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _tensor(values):
    if isinstance(values, list):
        return torch.stack([_tensor(x) for x in values])
    return torch.tensor(math.nan if values is None else values, dtype=torch.float64)


# The small picture

# Of weights of 0, 1/16, 2/16 ... 1 of the largest: the colours that pages and notebooks have had.
KEPT = """fafafa def1f4 c4e6ee acdbe9 96cee3 81c2de 6eb5d9 5da7d3 4e99cd 428bc6 397dbe 336eb5 2f60ab 2d51a0
2b4295 2a3488 28257b"""


def test_a_picture_has_a_square_for_each_weight_and_the_colours_it_had():
    n = 17
    weights = torch.arange(n, dtype=torch.float64) / sum(range(n))
    rows = torch.stack([weights.clamp(min=1e-300).log().roll(i) for i in range(n)])
    zeros = torch.zeros(1, 1, n, 2, dtype=torch.float64)
    sight = sl.look(zeros, zeros, zeros, rows, keep=True)
    picture = Image.open(io.BytesIO(sight._repr_png_()))
    picture.load()
    assert picture.mode == "RGB"
    zoom = 12  # the longer side has at least 192 pixels
    assert picture.size == (n * zoom, n * zoom)
    for i in range(n):
        colours = [picture.getpixel((j * zoom, i * zoom)) for j in range(n)]
        assert [picture.getpixel((j * zoom + zoom - 1, i * zoom + zoom - 1)) for j in range(n)] == colours
        expected = KEPT.split()
        assert ["{:02x}{:02x}{:02x}".format(*colour) for colour in colours] == expected[-i:] + expected[:-i]


# Every fourth of the 33 colours of each scale of a page.
SCALES = {
    "light weights": "fafafa c4e6ee 96cee3 6eb5d9 4e99cd 397dbe 2f60ab 2b4295 28257b",
    "light differences": "0080a3 00a0bb 6cbfd3 b1deea fafafa f1ccb9 dea180 c87747 ae4c00",
    "dark weights": "15182b 1e2d55 1c477f 0065a4 0085c1 00a6d7 34c6e5 78e4f0 b9fefd",
    "dark differences": "00daff 00a5c1 137486 1a454f 191919 533724 8d5934 cb7e47 ffa65b",
    "glow": "c94e0c d36111 db741c e48729 eb9939 f2ab4a f8be5c fed06f ffe183",
}


def test_a_page_has_the_colours_it_had(tmp_path):
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    with sl.watch(layer, keep=True) as seen:
        layer(*[torch.zeros(1, 5, 4)] * 3)
    sl.show.page(seen).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = json.loads(re.search(r"SCALES = (\{.*?\});", page)[1])
    assert {name: " ".join(x[1:] for x in colours[::4]) for name, colours in found.items()} == SCALES


# What was not measured


def test_without_a_statistic_of_queries_none_is_padding():
    sight, dense, _ = looked("nothing", measure=sl.Look(received=True, entropy=False, peak=False), keep=False)
    mean = sight.mean_heads()
    assert mean.is_padding.shape == (2, T)
    assert not mean.is_padding.any()
    torch.testing.assert_close(mean.received, dense.received.mean(1))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda x: x.entropy, "ask for it with measure=sl.Look(entropy=True)"),
        (lambda x: x.peak, "ask for it with measure=sl.Look(peak=True)"),
        (lambda x: x.peak_at, "ask single heads for it, with measure=sl.Look(peak=True)"),
        (lambda x: x.received, "ask for it with measure=sl.Look(received=True)"),
    ],
    ids=["entropy", "peak", "peak_at", "received"],
)
def test_what_was_not_measured_says_how_to_ask_for_it(ask, remedy):
    sight, _, _ = looked("nothing", measure=sl.Look(False, False, False, top=1), keep=False)
    with pytest.raises(ValueError, match=rf"{re.escape(remedy)}$"):
        ask(sight)


# Few queries or keys


@pytest.mark.parametrize("size", [(1, 1), (7, 1), (1, 7), (2, 3)], ids=str)
@pytest.mark.parametrize("name", ["nothing", "causal", "window"])
def test_of_one_query_or_key_everything_is_that_of_the_matrix(name, size):
    sight, dense, _ = looked(name, t=size[0], s=size[1])
    out = {"mass of ids"} if size[1] == 1 else set()  # of one key, which has no id
    questions = {name: question for name, question in QUESTIONS.items() if name not in out}
    agrees_at_all(sight, dense, rtol=1e-9, atol=1e-11, questions=questions)


# Files of earlier versions


def test_a_file_of_the_format_before_has_its_padding(tmp_path):
    """Padding counted as queries without a key then."""
    sight, dense, _ = looked("nothing", keep=False)
    path = tmp_path / "sight.safetensors"
    sight.save(path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["about"])
    tensors.pop("is_padding", None)
    hidden = torch.zeros(2, 3, T, dtype=torch.bool)
    hidden[1, :, 4:] = True
    tensors["lse"] = tensors["lse"].masked_fill(hidden, -math.inf)
    tensors["entropy"] = tensors["entropy"].masked_fill(hidden, 0.0)
    told = {"format": "sightline.Sight/1", "about": json.dumps(about | {"padding": "left out"})}
    save_file(tensors, path, metadata=told)
    again = sl.Sight.load(path)
    assert torch.equal(again.is_padding, hidden)
    assert again.padding == "mask"
    assert again.entropy[hidden].isnan().all()
    torch.testing.assert_close(again.entropy[~hidden], dense.entropy[~hidden])


# So many pairs that a line of text does not read their mask


def test_of_many_pairs_even_attention_is_said_where_nothing_need_be_read():
    q, k = (torch.linspace(-2, 2, 4099).mul(n).sin().view(1, 1, 4099, 1) for n in (41, 47))
    assert f"even is {math.log(4099):.3f}" in str(sl.look(q, k, k))


def test_of_an_empty_batch_weights_that_are_kept_are_empty():
    class ByHand(torch.nn.Module):
        def forward(self, q, k, v):
            return (q @ k.mT * D**-0.5).softmax(-1) @ v

    model, empty = ByHand(), torch.zeros(0, 2, 5, D)
    with sl.watch(model, keep=True) as seen:
        model(empty, empty, empty)
    for calls in (calls for _, calls in seen.items()):
        for sight in calls:
            assert sight.entropy.shape == (0, 2, 5)
            assert sight.received.shape == (0, 2, 5)
            assert sight.map(2).shape == (0, 2, 2, 2)
    assert len(seen) == 1
