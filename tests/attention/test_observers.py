"""Who wants to know of calls of attention, and in which order they are told."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

import sightline as sl
from sightline.attention.attend import attention
from sightline.attention.observers import is_watched, observe

pytestmark = pytest.mark.plain

Q, K, V = torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(2, 7, 11)


@pytest.fixture
def noted():
    """What observers were given, and a way to add one."""
    calls, stops = [], []

    def add(name):
        def observer(function, args, options):
            calls.append((name, function, args, options))
            return function(*args, **options)

        stops.append(observe(observer))
        return stops[-1]

    yield calls, add
    for stop in stops:
        stop()


def test_an_observer_makes_the_call_until_it_is_taken_off(noted):
    calls, add = noted
    expected = attention(Q, K, V, scale=0.3)
    stop = add("one")
    assert is_watched()
    assert torch.equal(attention(Q, K, V, scale=0.3), expected)
    ((name, function, args, options),) = calls
    assert (name, function, args) == ("one", attention, (Q, K, V, None))
    assert options == {"score": None, "scale": 0.3, "dropout_p": 0.0}
    stop()
    assert not is_watched()
    attention(Q, K, V, scale=0.3)
    assert len(calls) == 1


def test_the_last_to_come_is_first_and_any_of_them_may_go(noted):
    calls, add = noted
    stop, _ = add("one"), add("two")
    attention(Q, K, V, scale=0.3)
    assert [call[0] for call in calls] == ["two", "one"]
    stop()
    attention(Q, K, V, scale=0.3)
    assert [call[0] for call in calls[2:]] == ["two"]


def test_an_observer_that_raises_stays(noted):
    calls, add = noted
    add("one")
    with pytest.raises(ValueError, match="the same length"):
        attention(Q, K[:, 1:], V, scale=0.3)
    attention(Q, K, V, scale=0.3)
    assert len(calls) == 2


def test_a_mode_of_torch_comes_before_an_observer(noted):
    calls, add = noted
    add("one")

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is attention:
                calls.append(("mode", *args))
            return function(*args, **(kwargs or {}))

    with Mode():
        out = sl.attention(Q, K, V, scale=0.3)
    assert [call[0] for call in calls] == ["mode", "one"]
    assert torch.equal(out, attention(Q, K, V, scale=0.3))
