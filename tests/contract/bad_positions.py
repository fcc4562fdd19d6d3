"""Bad input to ``sl.positions``."""

import torch

import sightline as sl

X, Q = torch.zeros(2, 5, 8), torch.zeros(2, 3, 5, 6)
p = sl.positions

BAD = {
    "sl.positions.sinusoidal(length): negative": (lambda: p.sinusoidal(-1, 8), ValueError, "length", "-1"),
    "sl.positions.sinusoidal(d_model): zero": (lambda: p.sinusoidal(5, 0), ValueError, "d_model", "0"),
    "sl.positions.sinusoidal(base): zero": (lambda: p.sinusoidal(5, 8, base=0), ValueError, "base", "0"),
    "sl.positions.sinusoidal(dtype): integers": (
        lambda: p.sinusoidal(5, 8, dtype=torch.long), (TypeError, ValueError), "dtype", "int64",
    ),
    "sl.positions.sinusoidal(device): unknown": (lambda: p.sinusoidal(5, 8, device="gpu"), ValueError, "gpu"),
    "sl.positions.sinusoidal_2d(height): zero": (lambda: p.sinusoidal_2d(-1, 3, 8), ValueError, "height", "-1"),
    "sl.positions.sinusoidal_2d(width): a text": (lambda: p.sinusoidal_2d(3, "3", 8), TypeError, "width", "'3'"),
    "sl.positions.sinusoidal_2d(d_model): one": (lambda: p.sinusoidal_2d(3, 3, 1), ValueError, "d_model", "1"),
    "sl.positions.sinusoidal_2d(base): a text": (lambda: p.sinusoidal_2d(3, 3, 8, base="1"), TypeError, "base"),
    "sl.positions.shift_matrix(offset): a text": (lambda: p.shift_matrix("1", 8), TypeError, "offset", "'1'"),
    "sl.positions.shift_matrix(d_model): odd": (lambda: p.shift_matrix(1, 7), ValueError, "even", "7"),
    "sl.positions.shift_matrix(base): negative": (lambda: p.shift_matrix(1, 8, base=-1), ValueError, "base"),
    "sl.positions.SinusoidalPositions(d_model): zero": (lambda: p.SinusoidalPositions(0), ValueError, "d_model", "0"),
    "sl.positions.SinusoidalPositions(max_length): zero": (
        lambda: p.SinusoidalPositions(8, max_length=-1), ValueError, "max_length", "-1",
    ),
    "sl.positions.SinusoidalPositions(base): zero": (
        lambda: p.SinusoidalPositions(8, base=0), ValueError, "base", "0",
    ),
    "sl.positions.SinusoidalPositions.forward(x): another width": (
        lambda: p.SinusoidalPositions(6)(X), ValueError, "8", "6",
    ),
    "sl.positions.SinusoidalPositions.forward(offset): negative": (
        lambda: p.SinusoidalPositions(8)(X, offset=-1), ValueError, "offset", "-1",
    ),
    "sl.positions.SinusoidalPositions2d(d_model): one": (lambda: p.SinusoidalPositions2d(1), ValueError, "d_model", "1"),
    "sl.positions.SinusoidalPositions2d(base): zero": (
        lambda: p.SinusoidalPositions2d(8, base=0), ValueError, "base", "0",
    ),
    "sl.positions.SinusoidalPositions2d.forward(x): another width": (
        lambda: p.SinusoidalPositions2d(4)(X), ValueError, "8", "4",
    ),
    "sl.positions.SinusoidalPositions2d.forward(grid): other sizes": (
        lambda: p.SinusoidalPositions2d(8)(X, grid=(2, 3)), ValueError, "P=5", "2 x 3",
    ),
    "sl.positions.LearnedPositions(max_length): zero": (
        lambda: p.LearnedPositions(0, 8), ValueError, "max_length", "0",
    ),
    "sl.positions.LearnedPositions(d_model): zero": (lambda: p.LearnedPositions(5, 0), ValueError, "d_model", "0"),
    "sl.positions.LearnedPositions.forward(x): too long": (
        lambda: p.LearnedPositions(4, 8)(X), ValueError, "5", "4",
    ),
    "sl.positions.LearnedPositions.forward(offset): too far": (
        lambda: p.LearnedPositions(5, 8)(X, offset=1), ValueError, "5", "1",
    ),
    "sl.positions.Rotary(d_head): odd": (lambda: p.Rotary(7), ValueError, "even", "7"),
    "sl.positions.Rotary(base): zero": (lambda: p.Rotary(8, base=0), ValueError, "base", "0"),
    "sl.positions.Rotary.forward(q): another width": (lambda: p.Rotary(8)(Q, Q), ValueError, "8", "6"),
    "sl.positions.Rotary.forward(k): another width": (lambda: p.Rotary(6)(Q, Q[..., :4]), ValueError, "6", "4"),
    "sl.positions.Rotary.forward(offset): a text": (lambda: p.Rotary(6)(Q, Q, offset="1"), TypeError, "'1'"),
    "sl.positions.Rotary.forward(positions): too few": (
        lambda: p.Rotary(6)(Q, Q, positions=torch.arange(4)), ValueError, "4", "5",
    ),
    "sl.positions.RelativeBias2d(n_heads): zero": (lambda: p.RelativeBias2d(0, (2, 3)), ValueError, "n_heads", "0"),
    "sl.positions.SinusoidalPositions2d.forward(grid): one number": (
        lambda: p.SinusoidalPositions2d(8)(X, grid=5), (TypeError, ValueError), "grid", "5",
    ),
    "sl.positions.RelativeBias2d(grid): one number": (
        lambda: p.RelativeBias2d(2, 3), (TypeError, ValueError), "grid", "3",
    ),
}  # fmt: skip
