"""A reduction that Triton 3.6 compiles into a wrong one is found; a launch that differs is named."""

import json

import pytest

from workshop.kernel_lock import lock
from workshop.kernel_lock.reductions import wrong_reductions

LAYOUTS = {  # the lanes of a warp, and whether Triton exchanges the right ones along axis 1 of 128 x 32
    "[[0, 1], [0, 2], [0, 4], [0, 0], [0, 8]]": False,  # of the largest weights under a bias, heads of 128
    "[[0, 8], [0, 0], [0, 16], [1, 0], [2, 0]]": False,
    "[[0, 0], [0, 8], [0, 16], [1, 0], [2, 0]]": True,  # likewise, heads of 64
    "[[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]": True,  # without a bias
    "[[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]]": True,
    "[[0, 1], [0, 2], [0, 32], [0, 4], [0, 0]]": False,  # beyond the 32 columns there is nothing
}


TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [4, 8], order = [1, 0]}>
#linear = LAYOUT
    %163:2 = "tt.reduce"(%162, %102) <{axis = AXIS : i32}> ({
    ^bb0(%arg33: f32, %arg34: i32, %arg35: f32, %arg36: i32):
      tt.reduce.return %172, %173 : f32, i32
    }) : (tensor<SHAPExf32, #linear>, tensor<SHAPExi32, #linear>) -> (tensor<128xf32, #of_rows>)
"""


def ttgir(layout, shape="128x32", axis=1):
    return TTGIR.replace("LAYOUT", layout).replace("SHAPE", shape).replace("AXIS", str(axis))


def linear(lanes):
    return f"#ttg.linear<{{register = [[4, 0]], lane = {lanes}, warp = [[0, 16], [1, 0]], block = []}}>"


@pytest.mark.parametrize(("lanes", "is_right"), LAYOUTS.items())
def test_lanes_that_follow_each_other_are_reduced(lanes, is_right):
    assert (wrong_reductions(ttgir(linear(lanes))) == []) == is_right


def test_what_is_wrong_is_said():
    (line,) = wrong_reductions(ttgir(linear(next(iter(LAYOUTS)))))
    assert line == "a reduction of 128x32xf32 over axis 1, which lies in the bits [0, 1, 2, 4] of a lane"


def test_a_slice_has_the_lanes_of_its_parent():
    lanes = "[[0, 1, 0], [0, 0, 1], [0, 2, 0], [1, 0, 0], [2, 0, 0]]"
    wide = f"#ttg.linear<{{register = [], lane = {lanes}, warp = [], block = []}}>"
    assert wrong_reductions(ttgir(f"#ttg.slice<{{dim = 2, parent = {wide}}}>", "4x4"))
    assert not wrong_reductions(ttgir(f"#ttg.slice<{{dim = 2, parent = {wide}}}>", "4x4", axis=0))


def test_a_layout_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="not known"):
        wrong_reductions(ttgir("#ttg.amd_wmma<{version = 1}>"))


def test_every_kept_launch_is_of_some_request():
    kept = json.loads(lock.PATH.read_text())
    assert sorted({i for x in kept["requests"].values() for i in x}) == list(range(len(kept["launches"])))
    assert lock.differences(lock.read(), lock.read()) == []


def test_a_change_is_named():
    before = {"one": [lock.Launch("triton:a_kernel", (1, 2), ("T=3", "S=5"), "0")]}
    (launch,) = before["one"]
    changes = {
        "one: triton:a_kernel has the grid (2, 2), not (1, 2)": [launch._replace(grid=(2, 2))],
        "one: triton:a_kernel is given ['T=7'], not ['T=3']": [launch._replace(args=("T=7", "S=5"))],
        "one: triton:a_kernel has another PTX": [launch._replace(ptx="1")],
        "one: launched triton:a_kernel, now nothing": [],
    }
    for line, launches in changes.items():
        assert lock.differences(before, {"one": launches}) == [line]
    assert lock.differences(before, {}) == ["one: not asked"]
    assert lock.differences({}, before) == ["one: not kept"]
