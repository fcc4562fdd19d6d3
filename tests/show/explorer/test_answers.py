"""Every answer is what the sight itself says, and a bad request is one sentence."""

import itertools
import json

import pytest
import torch

import sightline as sl
from sightline.look.heads import head_table
from sightline.show.explorer import Answers, Step
from sightline.show.explorer.arrays import unpack
from sightline.show.explorer.steps import steps_of
from tests.show.predictions import COLUMNS, ROWS, H, L, caption, classified, translation
from tests.show.sights import seen

T, S, HEADS = 13, 11, 3
WORD = "▁a"
WORDS = [f"w{i}" for i in range(T)]
KEYS = [f"k{i}" for i in range(S)]


@pytest.fixture(scope="module")
def sight():
    torch.manual_seed(0)
    return seen(T, S, HEADS)


@pytest.fixture(scope="module")
def answers(sight):
    return Answers({"cross": sight}, tokens={"cross": (WORDS, KEYS)})


def asked(answers, ask, **fields):
    return json.loads(json.dumps(answers.answer({"ask": ask, **fields})))  # as it travels


def full(sight):
    return sight.rows(list(range(sight.t)))[0]  # (H, T, S)


def test_what_there_is(answers):
    meta = json.loads(json.dumps(answers.meta()))
    (about,) = meta["sights"]
    assert (about["heads"], about["t"], about["s"], about["cross"], about["causal"]) == (3, T, S, True, False)
    assert meta["tokens"][about["queries"]] == {"n": T, "words": WORDS}
    assert meta["tokens"][about["keys"]]["words"] == KEYS
    assert {"map", "row", "column", "top", "word", "strips", "overview"} <= set(meta["asks"])


@pytest.mark.parametrize("head", [0, 2, "mean"])
def test_maps_rows_and_columns_are_the_sights(answers, sight, head):
    whole = full(sight).mean(0) if head == "mean" else full(sight)[head]
    window = asked(answers, "map", head=head, queries=[2, 9], keys=[3, 10], size=[7, 7])
    torch.testing.assert_close(torch.tensor(unpack(window["map"])), whole[2:9, 3:10])
    assert window["largest"] == pytest.approx(float(whole[2:9, 3:10].max()))
    row = asked(answers, "row", head=head, query=5)
    torch.testing.assert_close(torch.tensor(unpack(row["row"])), whole[5])
    column = asked(answers, "column", head=head, key=4)
    torch.testing.assert_close(torch.tensor(unpack(column["column"])), whole[:, 4])
    top = asked(answers, "top", head=head, query=5, n=4)
    assert unpack(top["at"]).tolist() == whole[5].argsort(descending=True)[:4].tolist()
    by = asked(answers, "top", head=head, key=4, n=2)
    assert unpack(by["at"]).tolist() == whole[:, 4].argsort(descending=True)[:2].tolist()


def test_a_map_is_no_larger_than_its_window(answers, sight):
    small = asked(answers, "map", head=1, size=[64, 64])
    assert small["map"]["shape"] == [T, S]
    pooled = asked(answers, "map", head=1, size=[5, 4])
    torch.testing.assert_close(torch.tensor(unpack(pooled["map"])), sight.map((5, 4))[0, 1])


def test_a_word_in_every_head_of_layers_alike(sight):
    other = seen(T, S, 2)
    own = seen(T, T, 2)
    answers = Answers({"a": sight, "b": other, "self": own}, tokens={"?": (WORDS, KEYS)})
    word = asked(answers, "word", sight=0, query=6)
    assert word["heads"] == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    expected = torch.cat([full(sight)[:, 6], full(other)[:, 6]])
    torch.testing.assert_close(torch.tensor(unpack(word["rows"])), expected)
    read = asked(answers, "word", sight=0, key=3)
    torch.testing.assert_close(torch.tensor(unpack(read["rows"]))[:3], full(sight)[:, :, 3])


def test_strips_are_means_over_the_cells_of_a_map(answers, sight):
    strips = asked(answers, "strips", head=1, queries=[1, 12], keys=[0, 7], size=[4, 3])
    received, entropy = sight.received[0, 1, :7], sight.entropy[0, 1, 1:12]
    edges = [i * 7 // 3 for i in range(4)]
    means = [received[a:b].mean() for a, b in itertools.pairwise(edges)]
    torch.testing.assert_close(torch.tensor(unpack(strips["received"])), torch.stack(means))
    edges = [i * 11 // 4 for i in range(5)]
    means = [entropy[a:b].mean() for a, b in itertools.pairwise(edges)]
    torch.testing.assert_close(torch.tensor(unpack(strips["entropy"])), torch.stack(means))


def test_the_overview_has_the_head_tables_numbers():
    sights = {"layers.0": seen(7, 7, mask=sl.masks.causal()), "layers.1": seen(7, 7, mask=sl.masks.causal())}
    answers = Answers(sights)
    found = asked(answers, "overview", size=5)["sights"]
    table = head_table(sights)
    numbers = [head for layer in found for head in layer["heads"]]
    for head, own in zip(table, numbers, strict=True):
        for name in ("entropy", "peak", "first", "distance", "evenness"):
            assert own[name] == pytest.approx(getattr(head, name), rel=1e-5)
        assert own["kind"] == head.kind
    thumbnails = unpack(found[1]["thumbnails"])
    assert thumbnails.shape == (3, 5, 5)
    cells = sights["layers.1"].map(5)[0]
    levels = (cells / cells.amax((1, 2))[:, None, None] * 255).round()
    assert abs(thumbnails.astype(int) - levels.int().numpy()).max() <= 1
    assert answers.meta()["sights"][0]["causal"]
    (one,) = asked(answers, "overview", sight=1)["sights"]
    assert one["sight"] == 1


def test_a_long_text_comes_in_windows_and_is_searched():
    words = [f"w{i}" for i in range(5000)]
    statistics = {"entropy": torch.zeros(1, 1, 5000), "received": torch.zeros(1, 1, 5000)}
    statistics |= {"map": torch.rand(1, 1, 4, 4), "lse": torch.zeros(1, 1, 5000)}
    answers = Answers(sl.Sight(5000, 5000, (1, 1), statistics), tokens=words)
    assert answers.meta()["tokens"] == [{"n": 5000, "words": None}]
    assert asked(answers, "tokens", text=0, span=[4000, 4003])["words"] == ["w4000", "w4001", "w4002"]
    assert asked(answers, "find", text=0, letters="W4999") == {"at": [4999], "n": 1}
    assert asked(answers, "overview")["sights"][0]["exact"]


def test_a_quick_map_is_of_single_queries(monkeypatch):
    one = seen(130, 130, 1)
    answers = Answers(one)
    quick = asked(answers, "map", size=[130, 10], quick=True)
    assert quick["quick"]
    assert quick["map"]["shape"] == [64, 10]
    middle = (2 * 7 + 1) * 130 // 128
    expected = one.map((1, 10), queries=(middle, middle + 1))[0, 0, 0]
    torch.testing.assert_close(torch.tensor(unpack(quick["map"]))[7], expected)


def test_two_are_compared_by_their_difference(sight):
    after = seen(T, S, HEADS)
    answers = Answers({"a": sight}, other={"a": after}, names=("x", "y"))
    compared = answers.meta()["compare"]
    assert (compared["names"], compared["image"]) == (["x", "y"], None)
    assert [(one["t"], one["s"]) for one in compared["sights"]] == [(T, S)]
    change = asked(answers, "map", of="difference", head=1, size=[T, S])
    expected = full(after)[1] - full(sight)[1]
    torch.testing.assert_close(torch.tensor(unpack(change["map"])), expected)
    assert change["largest"] == pytest.approx(float(expected.abs().max()))
    second = asked(answers, "row", of=1, head=1, query=3)
    torch.testing.assert_close(torch.tensor(unpack(second["row"])), full(after)[1, 3])


def test_two_of_different_size_are_each_asked_for_themselves(sight):
    after = {"a": seen(T + 2, S - 1, HEADS + 1), "b": seen(3, 3)}
    answers = Answers(
        {"a": sight}, tokens={"?": (WORDS, KEYS)}, other=after, other_tokens={"a": (None, KEYS[1:])}
    )
    meta = answers.meta()
    assert next((one["heads"], one["t"], one["s"]) for one in meta["compare"]["sights"]) == (
        HEADS + 1,
        T + 2,
        S - 1,
    )
    texts = [
        meta["tokens"][one["keys"]]["words"] for one in (meta["sights"][0], meta["compare"]["sights"][0])
    ]
    assert texts == [list(KEYS), list(KEYS[1:])]
    row = asked(answers, "row", of=1, head=HEADS, query=T + 1)
    torch.testing.assert_close(torch.tensor(unpack(row["row"])), full(after["a"])[HEADS, T + 1])


def test_the_other_has_its_own_tokens_and_its_own_image():
    p, q = caption(("a", "dog")), caption(("two", "cats", "sleep"))
    answers = Answers(p, other=q)
    meta = answers.meta()
    texts = [
        meta["tokens"][one["queries"]]["words"] for one in (meta["sights"][0], meta["compare"]["sights"][0])
    ]
    assert texts == [["a", "dog"], ["two", "cats", "sleep"]]
    picture = torch.full((3, 8, 12), 7, dtype=torch.uint8)
    meta = Answers(
        seen(6, 6), image=torch.zeros_like(picture), other=seen(6, 6), other_image=picture, grid=(2, 3)
    ).meta()
    assert meta["compare"]["image"]["url"] != meta["image"]["url"]


def test_a_prediction_over_an_image():
    p = caption(boxes={2: (0.0, 0.0, 8.5, 6.5)})
    answers = Answers(p)
    meta = answers.meta()
    assert (meta["image"]["rows"], meta["image"]["columns"]) == (ROWS, COLUMNS)
    assert meta["image"]["boxes"] == {"2": [0, 0, 50, 50]}
    assert [one["heads"] for one in meta["sights"]] == [1, *[H] * L]
    assert {one["key_patches"] for one in meta["sights"]} == {0}
    row = asked(answers, "row", sight=2, head=2, query=1)
    torch.testing.assert_close(torch.tensor(unpack(row["row"])), p.attention.weights[1, 2, 1])


def test_a_summary_that_is_no_mean_comes_first():
    p = classified()
    meta = Answers(p).meta()
    assert [one["summary"] for one in meta["sights"]] == [True, False, False]
    assert meta["sights"][0]["name"] == "rollout through 2 layers"
    row = asked(Answers(p), "row", sight=0, query=0)
    torch.testing.assert_close(torch.tensor(unpack(row["row"])), p.attention.summary[0])


def test_layers_follow_the_summary_of_a_prediction():
    p = translation()
    answers = Answers(p, layers={"decoder.1": p.attention.select(layer=1)})
    names = [one["name"] for one in answers.meta()["sights"]]
    assert names == ["the mean of 6 heads", "decoder.1"]
    assert answers.meta()["sights"][0]["summary"]
    assert answers.meta()["tokens"][0]["words"] == ["a", "dog", "bar", "ks"]


def test_patches_are_known_by_their_names():
    p = classified()
    names = ("class", *(f"{i},{j}" for i in range(ROWS) for j in range(COLUMNS)))
    n = len(names)
    weights = torch.rand(1, 2, n, n).softmax(-1)
    inner = type(p.attention)(weights, names, names, weights.mean((0, 1)), "")
    (_, about) = Answers(p, layers={"blocks.0": inner}).meta()["sights"]
    assert (about["query_patches"], about["key_patches"], about["cross"]) == (1, 1, False)


def test_steps_belong_to_the_last_queries():
    answers = Answers(seen(7, 7), steps=[Step(token=WORD, probability=0.5, alternatives=[("b", 0.25)])] * 3)
    steps = answers.meta()["steps"]
    assert [step["query"] for step in steps] == [4, 5, 6]
    assert steps[0]["token"] == WORD[1:]
    assert steps[0]["alternatives"] == [{"token": "b", "probability": 0.25}]


def test_steps_of_logits_have_the_probabilities_of_a_softmax():
    logits = torch.randn(3, 7)
    steps = steps_of(logits, [4, 0, 6], lambda token: f"t{token}", [0, 0, 1], n=2)
    shares = logits.softmax(-1)
    assert [step.token for step in steps] == ["t4", "t0", "t6"]
    assert [step.query for step in steps] == [0, 0, 1]
    assert [step.probability for step in steps] == pytest.approx(
        [float(shares[i, t]) for i, t in enumerate((4, 0, 6))]
    )
    best = shares[1].argsort(descending=True)[:2].tolist()
    assert [name for name, _ in steps[1].alternatives] == [f"t{token}" for token in best]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ask": "everything"}, "asks for one of 'map'.*got 'everything'"),
        ({"ask": "map", "sight": 1}, r"sight must be a whole number in 0\.\.0, got 1"),
        ({"ask": "map", "sight": True}, "sight must be a whole number"),
        ({"ask": "map", "head": 3}, r'head must be a whole number in 0\.\.2 or "mean", got 3'),
        ({"ask": "map", "head": "x"}, "got 'x'"),
        ({"ask": "map", "queries": [5, 2]}, r"queries must be a range .* within 0\.\.13, got \(5, 2\)"),
        ({"ask": "map", "keys": [0, 12]}, r"within 0\.\.11"),
        ({"ask": "map", "keys": "all"}, "keys must be a range"),
        ({"ask": "map", "size": [0, 4]}, "1 to 1048576 cells, got a size of"),
        ({"ask": "map", "size": "big"}, "size must be a whole number or"),
        ({"ask": "row"}, "query must be a whole number"),
        ({"ask": "row", "query": 13}, r"query must be a whole number in 0\.\.12, got 13"),
        ({"ask": "top", "query": 1, "n": 0}, "n must be a whole number >= 1, got 0"),
        ({"ask": "map", "of": 1}, "of must be one of 0, got 1"),
        ({"ask": "tokens", "text": 2}, r"text must be a whole number in 0\.\.1, got 2"),
        ({"ask": "tokens", "span": [0, 99]}, r"within 0\.\.13, got \[0, 99\]"),
        ({"ask": "find", "letters": ""}, "at least one letter"),
    ],
)
def test_bad_requests_are_one_sentence(answers, fields, message):
    with pytest.raises(ValueError, match=message):
        answers.answer(fields)


@pytest.mark.bad_input
def test_what_can_not_be_shown_says_so():
    with pytest.raises(ValueError, match="a request is a JSON object, got list"):
        Answers(seen(3, 3)).answer([])
    with pytest.raises(TypeError, match="got int"):
        Answers(5)
    with pytest.raises(ValueError, match="at least one attention"):
        Answers({})
    two = Answers({"a": seen(3, 3), "b": seen(3, 3)}, other={"a": seen(4, 4)}, names=("x", "y"))
    with pytest.raises(ValueError, match=r"got \(\d, 3, 3\) for 'x' and \(\d, 4, 4\) for 'y'"):
        asked(two, "map", of="difference")
    with pytest.raises(ValueError, match="got 2 layers for 'x' and 1 for 'y'"):
        asked(two, "map", sight=1, of="difference")
    with pytest.raises(ValueError, match="8 steps for 7 queries"):
        Answers(seen(7, 7), steps=[Step(token=WORD)] * 8)
    with pytest.raises(ValueError, match=r"grid=\(rows, columns\)"):
        Answers(seen(7, 7), image=torch.zeros(3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match="as many as a layer's queries or keys, 5 or 7, got 3"):
        Answers(seen(5, 7), tokens=WORDS[:3])
    with pytest.raises(TypeError, match=r"got 4; tokenizer\.convert_ids_to_tokens"):
        Answers(seen(7, 7), tokens=[4, *WORDS[:6]])
    with pytest.raises(ValueError, match=r"5 or 7.* got 3 x 5 = 15"):
        Answers(seen(5, 7), image=torch.zeros(3, 8, 8, dtype=torch.uint8), grid=(3, 5))


@pytest.mark.bad_input
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value):
    x = torch.randn(2, 3, 7, 5)
    x[0, 1, 2] = value
    broken = sl.look(x, x, x)
    with pytest.raises(ValueError, match="some of 'b' are NaN"):
        Answers({"a": seen(7, 7), "b": broken})
    assert Answers({"b": broken}, item=1).meta()["sights"][0]["t"] == 7  # the other item is whole


@pytest.mark.parametrize(
    ("name", "given", "queries", "keys"),
    [
        ("self_attn", 11, WORDS[8:11], WORDS[:11]),  # with a cache: the last three look
        ("self_attn", 12, WORDS[8:11], WORDS[:11]),  # the last was written and never read
        ("self_attn", 3, WORDS[:3], None),
        ("cross_attn", 11, WORDS[:3], WORDS[:11]),
    ],
)
def test_names_of_fewer_queries_than_keys(name, given, queries, keys):
    (layer,) = Answers({name: seen(3, 11)}, tokens=WORDS[:given]).layers
    assert (layer.queries, layer.keys) == (tuple(queries), None if keys is None else tuple(keys))
