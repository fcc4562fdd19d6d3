"""Arguments are checked by their annotations, in sentences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.arguments import check_fields, checked, rule_of
from sightline.settings import Setting
from sightline.shapes import Bool, Float, Int

pytestmark = [pytest.mark.plain, pytest.mark.bad_input]


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [3, np.int64(3), -1], [True, 3.0, "3", None, torch.tensor(3)]),
        (float, [3, 0.5, np.float32(0.5)], [False, "x", 1j, None]),
        (bool, [True, np.True_], [1, 0, None, "yes"]),
        (int | None, [None, 3], [0.5]),
        (str | Path, ["x", Path("x")], [b"x", 3, ["x"]]),
        (Literal["a", "b"], ["a"], ["c", 3, ["a"]]),
        (tuple[int, int], [(1, 2), [1, 2]], [(1,), (1, 2, 3), (1, "2"), {1: 2, 3: 4}, "ab"]),
        (Sequence[str], [["a"], ("a",), []], ["a", [1], {"a": 1}, {"a"}, iter(["a"])]),
        (Iterable[int], [[1], iter([1]), {1}, {1: 2}.keys()], ["1", ["1"], 3]),
        (Mapping[str, int], [{"a": 1}, {}], [{"a": "1"}, {1: 1}, [("a", 1)]]),
        (Callable[[int], str], [str, len], [3, "len"]),
        (Float[Tensor, "T E"], [torch.zeros(2, 3)], [torch.zeros(3), torch.ones(2, 3).long(), [[1.0]]]),
        (Float[Tensor, "... T"], [torch.zeros(3), torch.zeros(2, 3)], [torch.zeros(())]),
        (Int[Tensor, " n"] | int, [3, torch.tensor([1])], [torch.tensor([1.5]), torch.tensor(1)]),
        (Bool[Tensor, "..."], [torch.ones(2, 2) > 0], [torch.ones(2, 2)]),
        (Annotated[Tensor, ("Float", "T E")], [torch.zeros(2, 3)], [torch.zeros(3)]),
        (torch.device | str, ["cpu", torch.device("cpu")], [3, None]),
        (
            Float[Tensor, "..."],
            [torch.zeros(2)],
            [torch.zeros(2).to(torch.float8_e4m3fn), torch.eye(2).to_sparse()],
        ),
    ],
)
def test_what_an_annotation_lets_through(hint, good, bad):
    rule = rule_of(hint)
    assert all(rule.fits(x) for x in good)
    assert not any(rule.fits(x) for x in bad)


def test_anything_goes_where_nothing_is_said():
    assert rule_of(Any) is None
    assert rule_of(int | Any) is None


@checked(share=Setting(at_least=0, at_most=1))
def call(
    n: int, share: float = 0.5, *, kind: Literal["sum", "mean"] = "sum", at: str | Path = ".", **rest: Any
) -> int:
    """A function of no use."""
    return n


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"n": "3"}, TypeError, r"^n must be a whole number, got '3'$"),
        ({"n": 10**30}, ValueError, r"^n must be a number of 64 bits, got 1000"),
        (
            {"n": torch.zeros(2, 3)},
            TypeError,
            r"^n must be a whole number, got a Tensor of shape \(2, 3\) and torch",
        ),
        ({"n": 1, "share": 2}, ValueError, r"^share must be at least 0 and at most 1, got 2$"),
        ({"n": 1, "share": float("nan")}, ValueError, r"^share must be a finite number, got nan$"),
        (
            {"n": 1, "kind": "som"},
            ValueError,
            r"^unknown kind 'som', expected one of 'mean', 'sum'; did you mean 'sum'",
        ),
        ({"n": 1, "kind": 3}, TypeError, r"^kind must be 'sum' or 'mean', got 3$"),
        ({"n": 1, "at": "a\0b"}, ValueError, r"^at must be a path, which holds no NUL"),
    ],
)
def test_a_wrong_argument_is_a_sentence(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        call(**arguments)


def test_what_is_right_passes_and_pythons_own_errors_stay():
    assert call(3, 0.5, kind="mean", anything=object()) == 3
    assert call.__name__ == "call"
    with pytest.raises(TypeError, match="positional argument"):
        call()


def test_fields_and_devices():
    @dataclass(frozen=True)
    class Record:
        names: tuple[str, ...] = ()
        device: str | torch.device = "cpu"

        def __post_init__(self) -> None:
            check_fields(self)

    assert Record(("a",)).names == ("a",)
    with pytest.raises(TypeError, match=r"names must be a list of texts, got 'ab'"):
        Record("ab")
    with pytest.raises(ValueError, match=r"there is no device 'gpu' here; did you mean 'cuda'\?"):
        Record(device="gpu")
