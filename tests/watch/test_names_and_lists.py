"""Names that others gave, and lists of them: operators, arguments, files, sentences with their remedy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.edit.edited_call import read_heads
from sightline.look import files
from sightline.look.calls import CallShape
from sightline.look.flow import rollout
from sightline.look.groups import read_groups
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.measures_more import _sum_diagonals
from sightline.look.picture import to_png
from sightline.look.recording import Recording
from sightline.look.recording_text import seen_table
from sightline.look.sharded.axes import Axis, Shard
from sightline.look.sight import _own_part
from sightline.watch import catch, compiled_flex, dispatch_keys, modules, recorder
from sightline.watch.attention_call import kernel_call
from sightline.watch.batching import CallQueue
from sightline.watch.call_info import CallInfo, CallTracker
from sightline.watch.kernel_calls import KernelCall, kernel_of
from sightline.watch.readers import flash
from sightline.watch.readers.calls import read_attention_call, read_sdpa_call
from sightline.watch.readers.flex import read_flex
from sightline.watch.session import CallSession, WatchOptions
from tests.look.look_oracle import matrix, near, randn

B, H, T, S, D = 2, 3, 5, 7, 4


def look(t=T, s=S, mask=None, **more):
    q, k = randn(B, H, t, D), randn(B, H, s, D, seed=1)
    return sl.look(q, k, k, mask, **more)


# Names


def test_other_names_of_arguments():
    assert flash.is_hub_kernel("flash_attn3::fwd")
    q, bias = randn(1, 2, T, D), torch.ones(T, T).bool()
    call = read_sdpa_call((q[0], q[0, :1], q[0, :1], bias, 0.25, True, 0.5, True), {}, "a")
    assert (call.k.shape, call.dropout_p, call.scale) == ((2, T, D), 0.25, 0.5)
    assert (call.mask.allowed[0].shape, len(call.mask.bands)) == ((1, T, T), 1)
    assert torch.equal(read_attention_call((q, q, q, bias), {}).mask.allowed[0], bias)


def test_files_of_compiled_code():
    for file in (
        "/x/torch/_functorch/_aot_autograd/y.py",
        "/x/torch/_inductor/y.py",
        "/x/torchinductor_me/y.py",
        "<eval_with_key>.3",
    ):
        assert modules._facts_of_file(file) == (True, False, False)
    assert modules._facts_of_file("/x/torch/nn/attention/flex_attention.py")[1] is True
    assert modules._facts_of_file(torch.__file__)[2] is True
    assert modules._facts_of_file(modules.__file__)[2] is True
    assert modules._facts_of_file(__file__) == (False, False, False)


def test_who_called_an_unregistered_module():
    module, stranger = nn.Linear(2, 2), nn.Linear(2, 2)
    for method in ("forward", "_call_impl", "_wrapped_call_impl"):
        assert modules._belongs(stranger, module, method) is True
    assert modules._belongs(stranger, module, "generate") is False
    module.__dict__["held"] = [stranger]
    assert modules._belongs(stranger, module, "generate") is True
    module.__dict__["held"] = stranger
    assert modules._belongs(stranger, module, "generate") is True


class Outer(nn.Module):
    """Attends in a function that is given its part, as Hugging Face's are."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        return attend(self.inner, x)


def attend(module, x):
    return F.scaled_dot_product_attention(x, x, x)


class OuterAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.project = nn.MultiheadAttention(4, 2), nn.Linear(4, 4)

    def forward(self, x):
        return self.project(x).relu()


@pytest.mark.plain
def test_whose_attention_it_is():
    model = Outer()
    with torch.no_grad(), sl.watch(model) as seen:
        model(randn(1, 2, T, D))
    assert seen.names() == ["inner"]
    silent = nn.Sequential(OuterAttention())
    told = pytest.warns(UserWarning, match="an attention of Sequential ran and could not be read: 0")
    with told, torch.no_grad(), sl.watch(silent) as seen:
        silent(torch.randn(3, 4))
    assert list(seen.unseen()) == ["0"]


# Sentences


@pytest.mark.bad_input
def test_what_is_missing_is_said_with_its_remedy():
    bare = replace(look(), statistics={})
    for name, remedy in {
        "output": "sl.look keeps it, sl.watch leaves it to the model",
        "lse": "it belongs to single heads",
        "entropy": r"ask for it with measure=sl\.Look\(entropy=True\)",
        "peak": r"ask for it with measure=sl\.Look\(peak=True\)",
        "peak_at": r"ask single heads for it, with measure=sl\.Look\(peak=True\)",
        "received": r"ask for it with measure=sl\.Look\(received=True\)",
    }.items():
        with pytest.raises(ValueError, match=f"^this sight has no {name}; {remedy}$"):
            getattr(bare, name)
    part = replace(look(t=S), shard=Shard(queries=Axis(((0, 5),), 10)))
    with pytest.raises(ValueError, match=r"^a flow needs the whole sequence"):
        rollout([part])
    with pytest.raises((TypeError, ValueError), match=r"^heads "):
        read_heads(object())
    with pytest.raises((TypeError, ValueError), match=r"^rows "):
        look().rows(torch.zeros(2, dtype=torch.long, device="meta"))
    with pytest.raises(TypeError, match=r"^rows must be a dense tensor, got torch\.sparse_coo"):
        look().rows(torch.tensor([1]).to_sparse())
    assert sl.Look(entropy=np.True_, map=[2, 3]).map == (2, 3)
    with pytest.raises(TypeError, match=r"^group 0 must be a slice of whole numbers"):
        read_groups([slice(0.5, 2)], 3)


@pytest.mark.bad_input
def test_files_need_a_name_and_a_package(tmp_path, monkeypatch):
    seen = Recording("Model", {})
    seen.add("a", look())
    with pytest.raises(ValueError, match=r"^what was seen is saved as a file, .* such as seen\.safetensors$"):
        seen.save(tmp_path)
    with pytest.raises(ValueError, match=r"^a sight is saved as a file, .* such as look\.safetensors$"):
        look().save(tmp_path)
    look().save(tmp_path / "x")
    asked = []
    real = files.need
    monkeypatch.setattr(files, "need", lambda *words: asked.append(words) or real(*words))
    sl.Sight.load(tmp_path / "x").save(tmp_path / "y")
    assert asked == [
        ("safetensors", "reading a sight", "look"),
        ("safetensors.torch", "saving a sight", "look"),
    ]


def test_tables_and_lines_are_nothing_but_what_they_say():
    seen = Recording("Model", {})
    seen.add("a<", look())
    seen.add("", look())
    row = "<td>1</td><td>5</td><td>7</td><td>kernel</td></tr>"
    head = "<tr><th>module</th><th>calls</th><th>T</th><th>S</th><th>read off</th></tr>"
    expected = f"<table>{head}<tr><td>a&lt;</td>{row}<tr><td>(the model itself)</td>{row}</table>"
    assert seen_table(seen) == expected
    masked = look(mask=sl.masks.causal()).forget()
    entropy = masked.entropy.double()
    lines = repr(masked).splitlines()
    assert (
        lines[1]
        == f"  entropy   {entropy.mean():.3f} nats on average, {entropy.min():.3f} to {entropy.max():.3f}"
    )
    assert lines[2].startswith("  peak      ")
    assert len(lines) == 4
    assert to_png(torch.zeros(2, 3)) == to_png(torch.full((2, 3), -1.0))
    assert to_png(torch.zeros(1, 1)) != to_png(torch.ones(1, 1))


# Small parts of passes


def test_sums_along_diagonals_by_loops():
    for t, s in ((1, 1), (1, 4), (4, 1), (3, 5), (5, 3)):
        w = randn(2, 3, t, s)
        expected = [
            sum((w[..., i, j] for i in range(t) for j in range(s) if j - i == d), torch.zeros(2, 3))
            for d in range(1 - t, s)
        ]
        near(_sum_diagonals(w), torch.stack(expected, -1))


def test_distances_of_pieces_with_more_keys_than_queries():
    def piece(t, s):
        return look(t=t, s=s).kept[0]

    sight = look(t=5, s=7).with_kept((piece(3, 5), replace(piece(2, 7), query=3)))
    weights = sight.map((5, 7))
    expected = torch.stack([weights.diagonal(2 - d, -2, -1).sum(-1) for d in range(4)], -1)
    near(sight.offsets(4, first=2), expected)


def test_which_answers_carry_gradients():
    q = randn(1, 2, T, D).requires_grad_()
    sight = sl.look(q, q, q)
    for answer in (sight.offsets(2), sight.mass([[0]]), sight.columns([1]), sight.received_from((0, 2))):
        assert answer.requires_grad
    assert sight.ask(sl.measures.Rows([0])).requires_grad
    for answer in (sight.rows([0]), sight.map(2), sight.top(2)[0]):
        assert not answer.requires_grad
    assert look(measure=sl.Look(peak=False)).is_looking.all()
    assert look(measure=sl.Look(peak=False, entropy=False, received=False)).is_looking.all()


def test_tiles_as_they_are_cut():
    inputs = kernel_call(randn(2, 6, 7, 2), randn(2, 3, 11, 2), sl.masks.Mask(), 1.0, None).inputs

    def cut(size, **more):
        tiles = list(inputs.tiles(size, **more))
        first = tiles[0]
        return len(tiles), first.batch.stop, first.heads.stop, first.rows[1] - first.rows[0]

    assert cut(1) == (2 * 3 * 7, 1, 2, 1)
    assert cut(23) == (2 * 3 * 7, 1, 2, 1)
    assert cut(44) == (2 * 3 * 4, 1, 2, 2)
    assert cut(7 * 11 * 2) == (6, 1, 2, 7)
    assert cut(7 * 11 * 4) == (4, 1, 4, 7)
    assert cut(7 * 11 * 6) == (2, 1, 6, 7)
    assert cut(7 * 11 * 12) == (1, 2, 6, 7)
    assert cut(44, keys=(1, 3)) == (6, 1, 2, 7)
    assert cut(44, queries=(1, 3)) == (6, 1, 2, 2)


def test_parts_of_larger_memory_are_copied():
    x = torch.zeros(4, 5)
    assert _own_part(x) is x
    assert _own_part(x[1:]) is not x
    assert _own_part(x[1:]).untyped_storage().nbytes() == 60
    y = torch.zeros(4, 5, requires_grad=True) * 2
    part = y[1:]
    assert _own_part(part) is part


# Listening


def test_a_look_leaves_no_key_on():
    def is_on():
        return torch._C._dispatch_tls_is_dispatch_key_included(dispatch_keys.KEYS[dispatch_keys.ATTENTION])

    inside = []
    catch.run_with_lse(lambda: inside.append((is_on(), torch._C._len_torch_dispatch_stack())))
    assert is_on() is False
    assert inside in ([(True, 0)], [(False, 1)])  # where something was compiled before, a mode listens
    with pytest.raises(RuntimeError, match="no"):
        catch.run_with_lse(lambda: (_ for _ in ()).throw(RuntimeError("no")))
    assert is_on() is False


def test_an_attribute_is_replaced_while_any_block_is_open():
    class Owner:
        value = 1

    patch = compiled_flex._Patch(Owner, "value", lambda x: x + 10)
    patch.install()
    patch.install()
    assert Owner.value == 11
    patch.uninstall()
    assert Owner.value == 11
    patch.uninstall()
    assert Owner.value == 1
    patch.install()
    assert Owner.value == 11
    patch.uninstall()
    listener = object()
    block = compiled_flex.intercept_compiled_flex.__new__(compiled_flex.intercept_compiled_flex)
    block._listener = listener
    block.__enter__()
    assert compiled_flex._LISTENERS.get()[-1] is listener
    block.__exit__()
    assert listener not in compiled_flex._LISTENERS.get()


@pytest.mark.plain
def test_parameters_are_read_as_tensors_are():
    x = nn.Parameter(randn(1, 2, T, D))
    kernel = kernel_of(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)
    call = recorder.read_kernel(KernelCall(kernel, (x, x, x), {}, (x, matrix(x, x)[1])))
    assert call.lead == (1, 2)
    flex = {"query": x, "key": x, "score_mod": None, "block_mask": (None,), "scale": 0.5}
    assert read_flex(flex, (x,)).lse is None
    assert read_flex(flex, x).lse is None
    assert read_flex(flex, (x, torch.zeros(0))).lse is None
    near(read_flex(flex, (x, torch.ones(1, 2, T))).lse, torch.full((1, 2, T), np.log(2)))


def test_notes_that_wait_and_calls_that_were_left_out():
    seen, shape = Recording("Model", {}), CallShape((B, H), 1, 6)
    seen.note_skipped("a", shape)
    assert seen.names() == []
    seen.add("a", look())
    seen.note_skipped("a", shape)
    seen.note_skipped("a", CallShape((B, H), 1, 9))
    assert seen.calls("a")[0].after is shape
    options = WatchOptions(
        is_selected=bool, every=1, measure=sl.Look(), keep=True, in_main_memory=False, limit=1, padding=None,
        tokens=(), grad=False,
    )  # fmt: skip
    measurer = CallSession(seen, options, CallTracker(nn.Linear(2, 2), seen, ()))
    note = CallInfo((), (), None)
    measurer._wait(note)
    assert note.waits is True
    assert CallQueue().is_full is False
    for t, kind in ((8, PrecomputedWeights), (9, ScoreInputs)):  # of few queries the weights are kept
        call = kernel_call(randn(1, 2, t, D), randn(1, 2, 11, D), sl.masks.Mask(), 1.0, None)
        assert type(measurer._measure("a", call).kept[0].inputs) is kind
