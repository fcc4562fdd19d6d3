"""Parts that only models of others, notebooks or several processes reach otherwise, each asked by itself."""

import struct
import sys
import zlib
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.look import describe, notebook, recording_text
from sightline.look.heads import head_table
from sightline.look.output_gradient import OutputGradient
from sightline.look.picture import to_png
from sightline.look.recording import Recording
from sightline.look.sharded.axes import Axis, Shard
from sightline.look.sight import CallShape, SavedInputs
from sightline.look.uniform import even_attention
from sightline.watch.call_info import CallInfo, CallTracker
from sightline.watch.media_tokens import media_ids
from sightline.watch.readers import eager as by_hand
from sightline.watch.session import CallSession, WatchOptions, reason_of
from tests.look.look_oracle import near, randn

B, H, T, S, D = 2, 3, 5, 7, 4


def look(t=T, s=S, mask=None, **more):
    q, k = randn(B, H, t, D), randn(B, H, s, D, seed=1)
    return sl.look(q, k, k, mask, **more)


# Sights


@pytest.mark.bad_input
def test_slices_and_questions_that_are_refused():
    sight = look()
    with pytest.raises(TypeError, match="a slice of a sight is of whole numbers, got"):
        sight[0:1.5]
    for step in (0, -1):
        with pytest.raises(ValueError, match=f"goes forward, got a step of {step}"):
            sight[::step]
    assert sight[::1].lead == (B, H)
    assert sight[:, ::2].lead == (B, 2)
    with pytest.raises(ValueError, match=r"leading dimensions \(2, 3\), got 3 indices"):
        sight[0, 0, 0]
    for index in (2, -3):
        with pytest.raises(ValueError, match=f"index {index} is out of range"):
            sight[index]
    assert sight[-2].lead == (H,)
    with pytest.raises(TypeError, match="by whole numbers and slices, got str"):
        sight["a"]
    with pytest.raises(ValueError, match=r"unknown reduce 'men'.*did you mean 'mean'"):
        sight.received_from(reduce="men")
    for n in (2, 4):
        with pytest.raises(ValueError, match=f"got {n} for 3 heads"):
            sight.received_from(n_kv_heads=n)
    assert sight.received_from(n_kv_heads=1).shape == (B, 1, S)
    near(sight.received_from(n_kv_heads=3), sight.received)
    for options in ({"reduce": "max"}, {"n_kv_heads": 1}):
        with pytest.raises(ValueError, match="a maximum and groups of heads belong to single heads"):
            sight.mean_heads().received_from(**options)
    near(sight.mean_heads().received_from(reduce="mean"), sight.received.mean(1) / T)
    for index in (T, -T - 1):
        with pytest.raises(ValueError, match=rf"rows must be queries in 0\.\.4, got {index}; T is 5 here"):
            sight.rows([index])
    assert sight.rows([]).shape == (B, H, 0, S)
    near(sight.rows(-1), sight.map((T, S))[..., -1:, :])
    with pytest.raises(ValueError, match="the largest weights belong to single heads"):
        sight.mean_heads().top(2)
    with pytest.raises(ValueError, match=r"the top 2 can't be had any more.*measure=sl\.Look\(top=2\)"):
        sight.forget().top(2)
    with pytest.raises(ValueError, match=r"a map of 2 x 3 can't .*measure=sl\.Look\(map=\(2, 3\)\)"):
        sight.forget().map((2, 3))
    with pytest.raises(ValueError, match=r"keep them with keep=True$"):
        sight.forget().map((2, 3), queries=(0, 3))
    with pytest.raises(TypeError, match="keep must be True or False, got 1"):
        look(keep=1)
    with pytest.raises(TypeError, match="entropy"):
        sl.Look(entropy=1)
    record = OutputGradient(v=torch.zeros(B, H, S, D), output=torch.zeros(B, H, T, D))
    with pytest.raises(
        ValueError, match="importance belongs to single heads; ask the sight before mean_heads"
    ):
        _ = replace(sight.mean_heads(), backward=record).importance
    with pytest.raises(ValueError, match="this sight has no relevance yet: no backward pass"):
        _ = replace(sight, backward=record).relevance
    part = replace(sight, shard=Shard(queries=Axis(((0, 5),), 10)))
    with pytest.raises(ValueError, match=r"a file needs the whole sequence, and this rank has .*gather\(\)"):
        part.require_whole("a file")
    assert "  this rank has " in repr(part)


def test_gradients_that_arrive_in_parts():
    v, output = randn(B, 1, S, D), randn(B, H, T, D)
    record = OutputGradient(v=v, output=output)
    part = record.select([1], [2, 0])
    assert record.gradient is None
    assert part.gradient is None
    record.add(output)
    record.add(2 * output)
    near(record.gradient, 3 * output)
    near(part.gradient, 3 * output[[1]][:, [2, 0]])
    near(part.output, output[[1]][:, [2, 0]])
    near(part.v, v[[1]][:, [0, 0]])
    assert record.to("cpu") is record
    away = record.to("meta")
    assert (away.v.device.type, away.output.device.type, away.gradient.device.type) == ("meta",) * 3
    assert OutputGradient(v=v, output=output).to("meta").gradient is None


def test_a_difference_answers_as_sights_do():
    one, two = look(t=S), look(t=S, mask=sl.masks.causal())
    change = one - two
    near(change.peak, one.peak - two.peak)
    near(change.received, one.received - two.received)
    assert repr(change) == f"{one!r}\nless\n{two!r}"


# Notebooks and tables


class Shown(notebook.NotebookRepr):
    def __repr__(self):
        return "a < b"


def test_what_a_notebook_shows(monkeypatch):
    monkeypatch.setattr(notebook, "_renderers", [])
    sight = look()
    assert sight._repr_mimebundle_() == {}
    assert Shown()._display_()._repr_html_() == "<pre>a &lt; b</pre>"
    assert sight._display_()._repr_html_() == sight._repr_html_()
    widget = SimpleNamespace(_repr_mimebundle_=lambda: {"text/plain": "live"})
    notebook.set_renderer(lambda _: widget)
    assert sight._repr_mimebundle_() == {"text/plain": "live"}
    assert sight._display_() is widget
    notebook.set_renderer(lambda _: None)
    assert sight._repr_mimebundle_() == {}


def test_a_picture_pixel_by_pixel():
    data = to_png(torch.tensor([[0.0, 1.0, 2.0], [-1.0, 4.0, 4.0]]))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (n,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n : at + 12 + n])[0] == zlib.crc32(kind + body)
        parts[kind], at = body, at + 12 + n
    assert struct.unpack(">IIBBBBB", parts[b"IHDR"]) == (192, 128, 8, 2, 0, 0, 0)
    lines = zlib.decompress(parts[b"IDAT"])
    assert len(lines) == 128 * (1 + 3 * 192)
    rows = torch.frombuffer(bytearray(lines), dtype=torch.uint8).view(128, -1)
    assert not rows[:, 0].any()
    pixels = rows[:, 1:].view(128, 192, 3)
    cells = pixels[::64, ::64].int()
    assert torch.equal(pixels, pixels[::64, ::64].repeat_interleave(64, 0).repeat_interleave(64, 1))
    assert cells[1, 1].tolist() == cells[1, 2].tolist()
    assert cells[1, 0].tolist() == cells[0, 0].tolist()  # what is below zero is nothing
    brightness = cells.sum(-1)
    assert brightness[0, 0] > brightness[0, 1] > brightness[0, 2] > brightness[1, 1]


def test_a_frame_with_a_row_for_each_query(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: columns))
    sight = replace(look(), name="a")
    frame = sight.to_pandas()
    assert list(frame) == ["layer", "item", "head", "query", "lse", "entropy", "peak", "peak_at"]
    assert frame["layer"] == "a"
    at = 1 * H * T + 2 * T + 3
    assert (frame["item"][at], frame["head"][at], frame["query"][at]) == (1, 2, 3)
    assert frame["entropy"][at] == sight.entropy[1, 2, 3].item()
    assert list(sight[0].to_pandas())[:3] == ["layer", "head", "query"]
    assert list(sight[:, 1].to_pandas())[:3] == ["layer", "item", "query"]
    assert list(sight[0, 1].to_pandas())[:2] == ["layer", "query"]
    deep = sl.look(randn(2, 3, 2, T, D), randn(2, 3, 2, S, D), randn(2, 3, 2, S, D)).to_pandas()
    assert list(deep)[:5] == ["layer", "item", "item 1", "head", "query"]
    seen = Recording("Model", {})
    seen.add("a", sight)
    assert [row["head"] for row in seen.to_pandas()] == [0, 1, 2]


# What was seen, and noted


def test_sights_are_renamed_and_taken_back():
    seen = Recording("Model", {"a": "Own"})
    one, two = (replace(look(), name="a") for _ in range(2))
    by_hand = replace(look(), name="a", source="weights")
    for sight in (one, by_hand, two):
        seen.add("a", sight)
    seen.rename(one, "b")
    assert [x is y for x, y in zip(seen.calls("a"), (by_hand, two), strict=True)] == [True, True]
    assert seen.calls("b")[0].name == "b"
    seen.take_back("a", "in blocks")
    assert seen.calls("a") == [two]
    assert seen.unseen() == {"a": "in blocks"}
    seen.rename(two, "b")
    assert seen.names() == ["b"]
    again = Recording.of(seen.about())
    assert again.unseen() == {"a": "in blocks"}
    assert again.ran
    seen.take_back("b", "in blocks")
    assert seen.calls("b") != []
    with pytest.raises(ValueError, match="'a' attended and was not seen: in blocks"):
        seen.calls("a")


def test_why_nothing_was_seen():
    seen = Recording("Model", {"a": "Own", "a.b": "Own", "c": "Own"})
    assert "the model has not run yet" in seen.explanation()
    seen.ran = True
    assert (
        seen.explanation() == "nothing was seen: no attention kernel and no softmax over queries and keys ran"
    )
    seen.mark_called("a")
    seen.mark_called("a.b")
    seen.explain_silence("a.b", "it was compiled")
    seen.explain_silence("a.b", "later")
    assert seen.unseen()["a.b"] == "it was compiled"
    seen.add("a.b.core", look())
    assert seen.unseen() == {}
    seen.mark_dark("c", "dark")
    seen.mark_dark("c", "later")
    assert seen.unseen() == {"c": "dark"}
    assert seen.unseen_warning() == "an attention of Model ran and could not be read: c (Own) (dark)"
    seen.mark_unseen("d", "odd")
    assert seen.unseen_warning().startswith("2 attentions of Model ran and could not be read: d (odd); c")
    skipped = Recording("Model", {})
    for name in "abc":
        skipped.mark_skipped(name)
    assert skipped.explanation().endswith("that attended: 'a', 'b', 'c'")
    skipped.mark_skipped("d")
    assert skipped.explanation().endswith("that attended: 'a', 'b', 'c' and 1 more")
    assert recording_text.by_reason({}, {}) == ""


def test_notes_are_put_onto_sights():
    sight = look()
    plain = CallInfo((), (), None)
    plain.waits = True
    assert plain.onto(sight) is sight
    assert plain.waits is False
    plain.shard = Shard(heads=Axis(((0, 3),), 6))
    assert plain.onto(sight).shard is plain.shard
    for note in (CallInfo((("a",),), (), None), CallInfo((), (CallShape((1,), 1, 2),), None)):
        found = note.onto(sight)
        assert (found.tokens, found.skipped) == (note.tokens, note.skipped)
    moved = CallInfo((), (), torch.tensor([1, 0]))
    moved.after = CallShape((B, H), 1, 6)
    assert moved.onto(sight).parents is moved.parents
    assert moved.onto(sight).after is moved.after


def test_tokens_belong_to_calls_of_their_length():
    words = (("a", "b", "c"), ("d", "e"))

    def tokens(t, s, given=words):
        taker = CallTracker(nn.Linear(2, 2), Recording("Model", {}), given)
        return taker.take("a", 2, t, s, is_trained=True).tokens

    assert tokens(3, 3) == tokens(1, 3) == tokens(1, 7) == words
    assert tokens(7, 7) == tokens(2, 2) == tokens(1, 2) == tokens(3, 3, ()) == ()


def options(**more):
    default = {"is_selected": lambda _: True, "every": 1, "measure": sl.Look(), "keep": False}
    default |= {"in_main_memory": False, "limit": 1 << 30, "padding": None, "tokens": (), "grad": False}
    return WatchOptions(**default | more)


def test_which_calls_are_measured():
    def plans(n, name="a", nbytes=0, **more):
        seen = Recording("Model", {})
        seen.nbytes = nbytes
        measurer = CallSession(seen, options(**more), CallTracker(nn.Linear(2, 2), seen, ()))
        return [measurer.plan(name) for _ in range(n)], seen

    assert plans(2)[0] == ["measure"] * 2
    assert plans(5, every=2)[0] == ["measure", "leave out"] * 2 + ["measure"]
    left, seen = plans(2, is_selected=lambda name: name == "b")
    assert left == ["ignore"] * 2
    assert seen.was_called("a")
    assert "'a'" in seen.explanation()
    assert plans(1, nbytes=7, limit=7)[0] == ["measure"]
    full, seen = plans(1, nbytes=8, limit=7)
    assert (full, seen.full) == (["ignore"], True)


def test_why_something_was_not_seen():
    assert reason_of(ValueError("first\nsecond")) == "ValueError: first"
    assert reason_of(ValueError()) == "ValueError: "
    assert len(reason_of(ValueError("x" * 300))) == 200


def test_what_even_attention_is_compared_with():
    padding = torch.zeros(B, 1, S, dtype=torch.bool)
    padding[1, 0, 5:] = True
    sight = look(t=S, mask=sl.masks.causal())
    ((inputs, lse, *_),) = sight.kept
    padded = sight.with_kept((SavedInputs(replace(inputs, padding=padding), lse),))
    found = even_attention(padded)
    expected = torch.arange(1, S + 1).expand(B, H, S).masked_fill(padding, 0)
    assert torch.equal(found.reach, expected)
    near(found.entropy, expected.clamp(min=1).double().log())
    assert even_attention(sight.forget()) is None
    assert head_table({"a": sight.forget()})[0].evenness is None
    unmasked = look().forget()
    assert even_attention(unmasked).reach.unique().tolist() == [S]
    near(even_attention(unmasked).received, torch.full((B, H, S), T / S))
    assert even_attention(look(s=1).forget()).received.unique().tolist() == [T]
    averaged = even_attention(sight.mean_heads())
    assert averaged.reach.shape == averaged.received.shape == (B, S)
    table = head_table({"a": sight})
    even = even_attention(sight).entropy.sum((0, 2))
    near(torch.tensor([row.evenness for row in table]), sight.entropy.sum((0, 2)) / even)
    one = look(t=1, s=1)
    assert head_table({"a": one})[0].evenness == 0.0


def test_lists_of_operators_are_of_all_their_forms():
    assert {torch.ops.aten.bmm.default, torch.ops.aten.bmm.out} <= by_hand._overloads("bmm")
    assert by_hand._overloads("no_such_operator") == frozenset()
    track = by_hand.EagerTracker(lambda _: False)
    with mock.patch.object(by_hand, "_MANY", 2):
        for i in range(5):
            scores = randn(1, 2, 3, seed=i)
            track.multiply((scores, scores), scores)
            track.soften((scores, -1), scores.softmax(-1))
    assert len(track._weights) <= 3
    assert len(track._scores) <= 3


class Asks:
    def __getattr__(self, name):
        if name == "video_token_id":
            return 5
        raise AttributeError(name)


def test_a_configuration_that_answers_what_it_does_not_hold():
    model = nn.Linear(2, 2)
    model.config = Asks()
    assert media_ids(model) == {5: "video"}
    aliased = type("Aliased", (), {"attribute_map": {"image_token_id": "picture"}, "image_token_id": 3})()
    model.config = aliased
    assert media_ids(model) == {3: "image"}


@pytest.mark.plain
def test_even_attention_is_told_where_that_is_quick():
    def is_quick(t, s, *, masked):
        kept = [SimpleNamespace(inputs=SimpleNamespace(may_forbid=masked))]
        return describe._is_quick(SimpleNamespace(t=t, s=s, kept=kept))

    assert is_quick(1 << 12, 1 << 12, masked=True) is True
    assert is_quick((1 << 12) + 1, 1 << 12, masked=True) is False
    assert is_quick(1 << 13, 1 << 13, masked=False) is True
