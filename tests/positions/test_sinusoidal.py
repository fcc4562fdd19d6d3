import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.positions import SinusoidalPositions, shift_matrix, sinusoidal


def by_loop(length, d_model, base=10000.0):
    table = torch.zeros(length, d_model, dtype=torch.float64)
    for pos in range(length):
        for column in range(d_model):
            angle = pos / base ** (2 * (column // 2) / d_model)
            table[pos, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


@pytest.mark.parametrize("d_model", [1, 2, 7, 10, 13])
@pytest.mark.parametrize("base", [10000.0, 101.0])
def test_it_is_the_formula(d_model, base):
    table = sinusoidal(11, d_model, base=base, dtype=torch.float64)
    torch.testing.assert_close(table, by_loop(11, d_model, base), rtol=0, atol=1e-14)


def test_the_published_values():
    embeddings = 0.1 * torch.arange(1, 129).repeat(3, 10, 1).float()
    seen = (embeddings + sinusoidal(10, 128))[:, :, 3]
    expected = [1.4000, 1.0479, 0.2396, -0.4558, -0.5485, 0.0267, 0.8648, 1.3756, 1.1994, 0.4603]
    torch.testing.assert_close(seen, torch.tensor([expected] * 3), rtol=0, atol=5e-5)


def test_it_is_rounded_once():
    exact = sinusoidal(4099, 6, dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert torch.equal(sinusoidal(4099, 6, dtype=dtype), exact.to(dtype))


def test_dtype_and_size():
    assert sinusoidal(0, 5).shape == (0, 5)
    assert sinusoidal(3, 5).dtype == torch.get_default_dtype()
    assert sinusoidal(3, 5, device="meta").device.type == "meta"


@given(pos=st.integers(0, 900), offset=st.integers(-700, 700), half=st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_a_shift_is_linear(pos, offset, half):
    if pos + offset < 0:
        pos -= offset
    table = sinusoidal(max(pos, pos + offset) + 1, 2 * half, dtype=torch.float64)
    moved = shift_matrix(offset, 2 * half, dtype=torch.float64) @ table[pos]
    torch.testing.assert_close(moved, table[pos + offset], rtol=0, atol=1e-12)


def test_shifts_add_up_and_undo():
    two, three, five = (shift_matrix(n, 14, base=31.0, dtype=torch.float64) for n in (2, 3, 5))
    torch.testing.assert_close(two @ three, five)
    torch.testing.assert_close(
        shift_matrix(-3, 14, base=31.0, dtype=torch.float64) @ three, torch.eye(14).double()
    )


def test_the_whole_table_moves_at_once():
    table = sinusoidal(19, 6, dtype=torch.float64)
    torch.testing.assert_close(table[:-7] @ shift_matrix(7, 6, dtype=torch.float64).T, table[7:])


def test_the_module_adds_the_table():
    x = torch.randn(2, 3, 11, 7)
    assert torch.equal(SinusoidalPositions(7)(x), x + sinusoidal(11, 7))


def test_decoding_token_by_token_is_the_same():
    positions = SinusoidalPositions(6, max_length=3)
    x = torch.randn(2, 13, 6)
    steps = [positions(x[:, t : t + 1], offset=t) for t in range(13)]
    assert torch.equal(torch.cat(steps, dim=1), positions(x))


def test_it_has_no_end_and_saves_nothing():
    positions = SinusoidalPositions(5, max_length=2)
    x = torch.zeros(17, 5)
    assert torch.equal(positions(x), sinusoidal(17, 5))
    assert positions.table.size(0) == 2
    assert positions.state_dict() == {}


def test_a_cast_keeps_every_digit():
    exact = sinusoidal(11, 6, dtype=torch.float64)
    positions = SinusoidalPositions(6).half().double()
    assert torch.equal(positions(torch.zeros(11, 6, dtype=torch.float64)), exact)


def test_it_survives_the_meta_device():
    with torch.device("meta"):
        positions = SinusoidalPositions(6)
    positions.to_empty(device="cpu")
    assert torch.equal(positions(torch.zeros(11, 6)), sinusoidal(11, 6))


def test_a_default_device_is_heard():
    with torch.device("meta"):
        assert sinusoidal(3, 6).device.type == "meta"
        assert shift_matrix(3, 6).device.type == "meta"
        assert torch.equal(sinusoidal(3, 6, device="cpu").cpu(), sinusoidal(3, 6, device="cpu"))


def test_the_input_keeps_its_dtype():
    assert SinusoidalPositions(6)(torch.zeros(3, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sinusoidal(-3, 4), ValueError, "length must be at least 0, got -3"),
        (lambda: sinusoidal(3, 0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: sinusoidal(3, 4.5), TypeError, "d_model must be a whole number, got 4.5"),
        (lambda: sinusoidal(True, 4), TypeError, "length must be a whole number, got True"),
        (lambda: sinusoidal(3, 4, base=-2.0), ValueError, "base must be a positive number, got -2.0"),
        (lambda: sinusoidal(3, 4, base=math.nan), ValueError, "base must be a finite number, got nan"),
        (lambda: sinusoidal(3, 4, dtype=torch.int64), TypeError, "float dtype, got torch.int64"),
        (lambda: shift_matrix(2, 7), ValueError, "d_model must be even .* got 7.* take 8"),
        (lambda: shift_matrix(math.inf, 6), ValueError, "offset must be a finite number, got inf"),
        (lambda: shift_matrix("two", 6), TypeError, "offset must be a number, got 'two'"),
        (lambda: SinusoidalPositions(6, max_length=0), ValueError, "max_length must be at least 1, got 0"),
        (
            lambda: SinusoidalPositions(6)(torch.zeros(3, 5)),
            ValueError,
            r"d_model=6 wide.* width 5 .*\(3, 5\)",
        ),
        (lambda: SinusoidalPositions(6)(torch.zeros(6)), ValueError, r"\(..., T, E\), got shape \(6,\)"),
        (lambda: SinusoidalPositions(6)(torch.ones(3, 6).long()), TypeError, "float tensor, got torch.int64"),
        (lambda: SinusoidalPositions(6)([1.0]), TypeError, "x must be a torch.Tensor, got list"),
        (lambda: SinusoidalPositions(6)(torch.zeros(3, 6), offset=-1), ValueError, "offset .* got -1"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
