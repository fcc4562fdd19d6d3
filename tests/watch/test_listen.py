"""``watch`` hears its own model's calls, in its own context, and leaves everybody else alone."""

import asyncio
import copy
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.watch import intercept, recorder
from tests.look.look_oracle import agrees, matrix, randn
from tests.watch.watch_oracle import B, E, H, Sdpa, T

pytestmark = pytest.mark.plain


@pytest.fixture
def _by_keys(monkeypatch):
    """As in a process that has compiled nothing."""
    monkeypatch.setattr(intercept, "uses_compiled_code", lambda: False)


@pytest.fixture(params=["by keys", "by a mode"])
def _either_way(request, monkeypatch):
    monkeypatch.setattr(intercept, "uses_compiled_code", lambda: request.param == "by a mode")


def encoder():
    torch.manual_seed(0)
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, 5, batch_first=True), 1, enable_nested_tensor=False
    ).eval()


# Whose call it is


@pytest.mark.usefixtures("_either_way")
def test_two_watches_in_one_event_loop_hear_their_own():
    model = Sdpa()
    found = {}

    async def look(t):
        q = randn(1, H, t, 4)
        with sl.watch(model) as seen:
            for _ in range(3):
                model(q, q, q)
                await asyncio.sleep(0)
        found[t] = [x.t for x in seen.calls("")]

    async def both():
        await asyncio.gather(look(5), look(9))

    asyncio.run(both())
    assert found == {5: [5] * 3, 9: [9] * 3}


@pytest.mark.usefixtures("_either_way")
def test_blocks_that_end_in_another_order_hear_their_own():
    model, q = Sdpa(), randn(1, H, 5, 4)
    first, second = sl.watch(model), sl.watch(model)  # while both are open, both hear each call once
    a = first.__enter__()
    b = second.__enter__()
    model(q, q, q)
    first.__exit__(None, None, None)
    model(q, q, q)
    second.__exit__(None, None, None)
    model(q, q, q)
    assert (len(a.calls("")), len(b.calls(""))) == (1, 2)


def test_a_block_by_keys_around_one_by_a_mode(monkeypatch):
    """Something is compiled in between: each call is told once to both."""
    layer, x = encoder(), randn(B, T, E, dtype=torch.float32)
    model, q = Sdpa(), randn(1, H, 5, 4)
    for watched, inputs in ((model, (q, q, q)), (layer, (x,))):
        monkeypatch.setattr(intercept, "uses_compiled_code", lambda: False)
        with torch.no_grad(), sl.watch(watched) as outer:
            monkeypatch.setattr(intercept, "uses_compiled_code", lambda: True)
            with sl.watch(watched) as inner:
                watched(*inputs)
        assert [len(outer.calls(name)) for name in outer] == [1]
        assert [len(inner.calls(name)) for name in inner] == [1]


@pytest.mark.usefixtures("_either_way")
def test_a_teacher_is_no_part_of_its_student():
    """A model that was never watched runs in the student's block, and inside the student itself."""
    teacher, student, x = encoder(), encoder(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad(), sl.watch(student) as seen:
        teacher(x)
        student(x)
        teacher(x)
    assert seen.names() == ["layers.0.self_attn"]
    assert len(seen.calls("layers.0.self_attn")) == 1


@pytest.mark.usefixtures("_either_way")
def test_a_teacher_of_the_same_kind_by_hand():
    class ByHand(nn.Module):
        def forward(self, q):
            return (q @ q.mT).softmax(-1) @ q

    teacher, student, q = ByHand(), ByHand(), randn(B, H, T, 4)
    with sl.watch(student) as seen:
        teacher(q)
        student(q)
    assert len(seen.calls("")) == 1


# What others notice of it


def test_overlapping_watches_leave_the_fast_path_on():
    model, x = encoder(), randn(B, T, E, dtype=torch.float32)
    entered, left = threading.Barrier(2), threading.Barrier(2)

    def elsewhere():
        with torch.no_grad(), sl.watch(model):
            model(x)
            entered.wait(10)
            left.wait(10)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with torch.no_grad(), sl.watch(model):
        entered.wait(10)
        model(x)
        assert torch.backends.mha.get_fastpath_enabled()
    left.wait(10)
    thread.join()
    assert torch.backends.mha.get_fastpath_enabled()


def test_overlapping_edits_leave_the_fast_path_as_it_was():
    model = encoder()
    first, second = (sl.edit(model, scale=0.5) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.mha.get_fastpath_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_deep_copy_made_in_the_block_is_free():
    model, x = encoder(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad(), sl.watch(model) as seen:
        other = copy.deepcopy(model)
        other(x)
    assert len(seen) == 0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in other.modules())
    results = []

    def elsewhere(which):
        with torch.no_grad():
            results.append(which(x))

    for which in (other, model):  # each in a thread: on some processors another thread rounds in another way
        thread = threading.Thread(target=elsewhere, args=(which,))
        thread.start()
        thread.join()
    assert torch.equal(*results)


# Products of matrices


class Either(nn.Module):
    """Attends by a kernel, or by hand with one head and no batch; with a linear layer around."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = Sdpa()

    def forward(self, x, by_hand):
        x = self.linear(x)
        if by_hand:
            return (x @ x.T).softmax(-1) @ x
        return self.inner(x[None, None], x[None, None], x[None, None])


@pytest.mark.usefixtures("_by_keys")
def test_linear_layers_are_not_heard_where_a_model_attends_by_kernels(monkeypatch):
    heard = []
    hear = recorder.AttentionRecorder.on_product
    monkeypatch.setattr(
        recorder.AttentionRecorder, "on_product", lambda *args: heard.append(1) or hear(*args)
    )
    model, x = Either(), randn(T, 4, dtype=torch.float32)
    for expected in (1, 0, 0):
        heard.clear()
        with sl.watch(model) as seen:
            model(x, by_hand=False)
        assert len(heard) == expected
        assert seen.names() == ["inner"]


@pytest.mark.filterwarnings("ignore:.*ran and could not be read:UserWarning")
@pytest.mark.usefixtures("_by_keys")
def test_weights_by_hand_in_a_model_that_was_known_for_kernels():
    """The first time is told, what follows is seen."""
    model, x = Either(), randn(T, 4, dtype=torch.float32)
    with sl.watch(model):
        model(x, by_hand=False)
    with sl.watch(model) as seen:
        model(x, by_hand=True)
    assert "watch it again" in seen.unseen()[""]
    with sl.watch(model) as seen:
        model(x, by_hand=True)
        model(x, by_hand=False)
    assert seen.names() == ["", "inner"]
    assert not seen.unseen()
    q = model.linear(x).detach().double()
    agrees(seen[""], *matrix(q, q, scale=1.0))


@pytest.mark.usefixtures("_either_way")
def test_one_block_with_both_ways_sees_both():
    model, x = Either(), randn(T, 4, dtype=torch.float32)
    with sl.watch(model) as seen:
        model(x, by_hand=False)
        model(x, by_hand=True)
    assert seen.names() == ["inner", ""]
    assert not seen.unseen()


# FlexAttention, which few programs import

_LATE = """
import sys, warnings
import torch
from torch import nn
import sightline as sl

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        assert "torch.nn.attention.flex_attention" not in sys.modules
        from torch.nn.attention.flex_attention import flex_attention
        q = self.linear(x) if {product} else x
        return flex_attention(q, q, q)

warnings.simplefilter("ignore")
model = Late()
with torch.no_grad(), sl.watch(model) as seen:
    model(torch.randn(1, 2, 5, 16))
print([(name, sight.source) for name, sights in seen.items() for sight in sights])
"""


@pytest.mark.parametrize("product", [True, pytest.param(False, marks=pytest.mark.long)])
def test_flex_attention_imported_in_the_block_is_heard(product):
    code = _LATE.format(product=product)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert out.stdout.strip() == "[('', 'flex')]", out.stderr  # the products inside would be seen as weights


class Angles(nn.Module):
    """Makes angles as rotary positions do, a column times a row, and attends by a kernel."""

    def forward(self, x):
        angles = torch.ones(1, x.size(3), 1) @ torch.arange(x.size(2))[None, None].float()
        return F.scaled_dot_product_attention(x * angles.mT.cos(), x, x)


def test_a_column_times_a_row_is_not_followed_in_a_model_known_for_kernels(monkeypatch):
    followed = []
    monkeypatch.setattr(
        recorder.AttentionRecorder, "_multiply", lambda self, args, result: followed.append(result.shape)
    )
    model, x = Angles(), torch.randn(2, 3, 5, 7)
    with sl.watch(model):
        model(x)
    assert followed == [(1, 7, 5)]  # nothing is known of it yet
    with sl.watch(model) as seen:
        model(x)
    assert len(followed) == 1
    assert seen.names() == [""]


def test_heads_of_width_one_that_attend_by_hand_are_seen_again_and_again():
    class ByHand(nn.Module):
        def forward(self, q, k):
            return (q @ k.mT).softmax(-1) @ k

    model, q, k = ByHand(), torch.randn(2, 3, 5, 1), torch.randn(2, 3, 7, 1)
    for _ in range(3):
        with sl.watch(model) as seen:
            model(q, k)
        torch.testing.assert_close(seen[""].received, (q @ k.mT).softmax(-1).sum(-2))
