"""Measurements that follow a plan, with stand-ins for compiled kernels: who is given what, and when."""

import gc
import threading
import weakref
from dataclasses import replace

import pytest
import torch

from sightline.attention.masks import Mask, causal
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels import plans
from sightline.look.kernels.request import Cells, Stats, StatsRequest

prepared = pytest.importorskip("sightline.look.kernels.prepared")  # needs triton

B, H, T, D = 2, 3, 5, 7
REQUEST = StatsRequest(received=True, entropy=True)
STREAM = 17


class Compiled:
    """Notes what it is launched with, and writes a mark where its output lies."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, launches):
        self.launches = launches

    def run(self, x, y, z, *args):
        assert args[:6] == (STREAM, "function", "metadata", None, None, None)
        self.launches.append(((x, y, z), args[6:]))


class Descriptor:
    def __init__(self, base):
        self.base, self.block_shape, self.shape = base, [1, 16], list(base.shape)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(plans, "_kept", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: STREAM, raising=False)


def make_inputs(**changes):
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    return replace(ScoreInputs(q, k, Mask(), 0.5), **changes)


class Measurer:
    """The way that is written down: two allocations, a view of one of them, two launches."""

    def __init__(self):
        self.n, self.launches = 0, []

    def __call__(self, inputs, lse=None, request=REQUEST):
        key = plans.key_of(inputs, request, lse)
        stats = plans.measure_again(key, inputs, lse)
        return stats or plans.planned(key, inputs, lse, lambda: self.measure(inputs, lse))

    def measure(self, inputs, lse):
        self.n += 1
        q, compiled = inputs.q, Compiled(self.launches)
        sums = prepared.allocate(torch.zeros, (2, B * H * T), torch.int64, q)
        prepared.note_launch(compiled, (11, 13), (Descriptor(inputs.k), q, sums[1], 3, 0.5, True))
        received = prepared.allocate(torch.empty, (B, H, T), torch.float32, q)
        prepared.note_launch(compiled, (17, 19), (lse, sums, received))
        return Stats(lse, received, *(None,) * 6)


def test_the_second_call_launches_the_same_on_its_own_tensors():
    measure, lse = Measurer(), torch.randn(B, H, T)
    measure(make_inputs(), torch.randn(B, H, T))
    inputs = make_inputs()
    stats = measure(inputs, lse)
    assert measure.n == 1
    (grid, args), (other_grid, others) = measure.launches
    assert (grid, other_grid) == ((11, 13, 1), (17, 19, 1))
    assert args[0].base is inputs.k
    assert (args[0].block_shape, args[0].shape) == ([1, 16], [B, H, T, D])
    assert args[1] == inputs.q.data_ptr()
    assert args[3:] == (3, 0.5, True)
    assert args[2] == others[1] + 8 * B * H * T  # the second row of what was allocated
    assert others[0] == lse.data_ptr()
    assert others[2] == stats.received.data_ptr()
    assert stats.lse is lse
    assert (stats.received.shape, stats.received.dtype) == ((B, H, T), torch.float32)
    assert stats.entropy is None


def aligned(n, skip):
    return torch.randn(n + 8)[skip : skip + n]


OTHERS = {
    "shape": lambda x: replace(x, q=torch.randn(B, H, T + 1, D)),
    "strides": lambda x: replace(x, q=torch.randn(B, T, H, D).transpose(1, 2)),
    "strides of k": lambda x: replace(x, k=torch.randn(B, T, H, D).transpose(1, 2)),
    "dtype": lambda x: replace(x, q=x.q.half(), k=x.k.half()),
    "pointer": lambda x: replace(x, q=aligned(B * H * T * D, 1).view(B, H, T, D)),
    "pointer of k": lambda x: replace(x, k=aligned(B * H * T * D, 1).view(B, H, T, D)),
    "mask": lambda x: replace(x, mask=causal().fitted((B, H), T, T)),
    "scale": lambda x: replace(x, scale=0.25),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_changes_a_launch_goes_the_whole_way(other):
    inputs, lse = make_inputs(), torch.randn(B, H, T)
    assert plans.key_of(inputs, REQUEST, lse) == plans.key_of(make_inputs(), REQUEST, lse)
    assert plans.key_of(OTHERS[other](inputs), REQUEST, lse) != plans.key_of(inputs, REQUEST, lse)


def test_requests_lses_and_devices_are_told_apart(monkeypatch):
    inputs, lse = make_inputs(), torch.randn(B, H, T)
    requests = [StatsRequest(), REQUEST, StatsRequest(received=True), StatsRequest(top=2)]
    requests += [StatsRequest(cells=Cells(n, 2, (0, T), (0, T))) for n in (2, 3)]
    found = {plans.key_of(inputs, x, lse) for x in requests}
    found |= {plans.key_of(inputs, REQUEST, x) for x in (None, aligned(B * H * T, 1).view(B, H, T))}
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        found.add(plans.key_of(inputs, REQUEST, lse))
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(found) == len(requests) + 3
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0)
    assert plans.key_of(inputs, REQUEST, lse) is None


WITHOUT = {
    "lengths": {"mask": Mask(lengths=(torch.ones(B, 1, 1, 1),))},
    "allowed": {"mask": Mask(allowed=(torch.ones(1, 1, T, T, dtype=torch.bool),))},
    "added": {"mask": Mask(added=(torch.ones(1, 1, T, T),))},
    "padding": {"padding": torch.zeros(B, 1, T, dtype=torch.bool)},
    "sink": {"sink": torch.zeros(1, H, 1)},
    "score": {"score": torch.nn.Identity()},
}


@pytest.mark.parametrize("changes", WITHOUT.values(), ids=WITHOUT)
def test_where_torch_has_steps_of_its_own_there_is_no_plan(changes):
    assert plans.key_of(make_inputs(**changes), REQUEST, torch.randn(B, H, T)) is None


def test_an_lse_that_has_to_be_changed_first_has_no_plan():
    for lse in (torch.randn(B, H, T).half(), torch.randn(B, T, H).transpose(1, 2)):
        assert plans.key_of(make_inputs(), REQUEST, lse) is None


def test_keys_that_are_the_queries_make_no_plan_and_follow_one():
    measure, x = Measurer(), torch.randn(B, H, T, D)
    for _ in range(2):
        measure(make_inputs(q=x, k=x), torch.randn(B, H, T))
    assert measure.n == 2
    measure(make_inputs(), torch.randn(B, H, T))
    measure(make_inputs(q=x, k=x), torch.randn(B, H, T))
    assert measure.n == 3
    assert measure.launches[0][1][1] == x.data_ptr()


def test_what_can_not_be_written_down_is_not_kept():
    measure, lse = Measurer(), torch.randn(B, H, T)
    way = measure.measure
    measure.measure = lambda *args: (prepared.spoil(), way(*args))[1]
    measure(make_inputs(), lse)
    assert not plans._kept
    measure.measure = lambda *args: way(*args)._replace(entropy=torch.ones(3))  # a tensor from elsewhere
    measure(make_inputs(), lse)
    assert not plans._kept
    measure.measure = lambda *args: Stats(lse, *(None,) * 7)  # nothing was launched
    measure(make_inputs(), lse)
    assert not plans._kept


def test_a_plan_holds_no_tensor():
    inputs, lse = make_inputs(), torch.randn(B, H, T)
    stats = Measurer()(inputs, lse)
    held = [weakref.ref(x) for x in (inputs.q, inputs.k, lse, stats.received)]
    del inputs, lse, stats
    gc.collect()
    assert len(plans._kept) == 1
    assert [x() for x in held] == [None] * 4


def test_a_profiler_that_waits_for_launches_sees_the_whole_way(monkeypatch):
    measure = Measurer()
    measure(make_inputs(), torch.randn(B, H, T))
    monkeypatch.setattr(prepared.knobs.runtime, "launch_enter_hook", print)
    measure(make_inputs(), torch.randn(B, H, T))
    assert measure.n == 2


def test_the_table_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(plans, "_MAX_KEPT", 3)
    for n in range(1, 12):
        Measurer()(make_inputs(scale=1.0 / n), torch.randn(B, H, T))
        assert 0 < len(plans._kept) <= 3


def test_threads_write_and_follow_plans_of_their_own():
    measurers = [Measurer() for _ in range(4)]
    failures = []

    def work(measure, scale):
        for _ in range(20):
            inputs, lse = make_inputs(scale=scale), torch.randn(B, H, T)
            before = len(measure.launches)
            stats = measure(inputs, lse)
            made = measure.launches[before:]
            if stats.lse is not lse or any(args[0] != lse.data_ptr() for _, args in made[1:]):
                failures.append(scale)

    threads = [threading.Thread(target=work, args=(x, 1.0 + i)) for i, x in enumerate(measurers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [x.n for x in measurers] == [1] * 4
    assert [len(x.launches) for x in measurers] == [2 * 19] * 4


# Triton 3.6 in a stand-in: a function in C, and one in Python around it that takes descriptors apart


class Launcher:
    """The function in C."""

    def __init__(self, launches):
        self.launches, self.__module__ = launches, "__triton_launcher"

    def __call__(self, x, y, z, stream, function, *args):
        assert (stream, function) == (STREAM, "function")
        assert args[:8] == ("cooperative", "pdl", None, None, "metadata", None, None, None)
        self.launches.append(((x, y, z), args[8:]))


def refuse(*_args):
    raise AssertionError("the way around was taken")


class Run:
    launch_cooperative_grid, launch_pdl, profile_scratch_size = "cooperative", "pdl", 0

    def __init__(self, launches, metadata, scratch=0):
        self.global_scratch_size, self.run = scratch, refuse
        launcher, tensordesc_meta = Launcher(launches), metadata
        self.launch = (lambda *_args: refuse(launcher, tensordesc_meta)) if metadata else launcher

    def __call__(self, *args):
        self.run(*args)


@pytest.fixture
def maps(monkeypatch):
    """The maps that have been made for the copy engine: a number of the descriptor, and where it begins."""
    made = []

    def make(descriptor, metadata):
        made.append((metadata["swizzle"], descriptor.base.data_ptr()))
        return [made[-1], *descriptor.shape, *descriptor.strides]

    driver = pytest.importorskip("triton.backends.nvidia.driver")
    monkeypatch.setattr(driver, "make_tensordesc_arg", make, raising=False)
    return made


def compiled_by(run):
    compiled = Compiled([])
    compiled.run = run
    return compiled


def describe(x):
    descriptor = Descriptor(x)
    descriptor.strides = list(x.stride())
    return descriptor


def launch_on(launch, q, k):
    launch(STREAM, [q, k, None], [q.data_ptr(), k.data_ptr(), 0])


def place_in(*tensors):
    return lambda x: (next(i for i, y in enumerate(tensors) if y is x), 0)


def test_a_launch_of_a_known_triton_is_one_call(maps):
    launches, q, k = [], torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    run = Run(launches, [{"swizzle": 17}, {"swizzle": 19}])
    args = (describe(k), q, 0.5, describe(q), True)
    launch = plans._Launch(compiled_by(run), (11, 13), args, place_in(q, k))
    for first, second in ((q, k), (q.clone(), k), (q, k)):
        launch_on(launch, first, second)
        (grid, given) = launches[-1]
        assert grid == (11, 13, 1)
        of_k = (17, second.data_ptr()), *k.shape, *k.stride()
        of_q = (19, first.data_ptr()), *q.shape, *q.stride()
        assert given == (*of_k, first.data_ptr(), 0.5, *of_q, True)
    assert len(maps) == 3  # one for each place, which is used again


def test_maps_of_tensors_hold_no_tensor_and_do_not_grow_without_end(maps, monkeypatch):
    monkeypatch.setattr(prepared, "_MAX_MAPS", 2)
    q, k = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    run = Run([], [{"swizzle": 17}])
    launch = plans._Launch(compiled_by(run), (11, 13), (describe(q),), place_in(q, k))
    others = [torch.randn(2, 3, 5, 7) for _ in range(5)]
    for other in others:
        launch_on(launch, other, k)
    launch_on(launch, others[0], k)
    assert len(maps) == 6  # the first one has been dropped
    held = weakref.ref(others.pop())
    gc.collect()
    assert held() is not None
    del other
    gc.collect()
    assert held() is None


def test_a_launch_without_descriptors_is_one_call_too():
    launches, q, k = [], torch.randn(2, 3), torch.randn(2, 5)
    launch = plans._Launch(compiled_by(Run(launches, [])), (11, 13), (k, 3, q), place_in(q, k))
    launch_on(launch, q, k)
    assert launches == [((11, 13, 1), (k.data_ptr(), 3, q.data_ptr()))]


def _another():
    run = Run([], [])
    run.launch.__module__ = "cuda_utils"
    return run


OTHER_RUNS = {
    "memory to work in": lambda: Run([], [], scratch=23),
    "descriptors without maps": lambda: Run([], [None]),
    "another launcher": _another,
}


@pytest.mark.parametrize("make", OTHER_RUNS.values(), ids=OTHER_RUNS)
def test_other_launches_are_left_to_triton(make):
    run, given = make(), []
    run.run = lambda *args: given.append(args)
    q, k = torch.randn(2, 3), torch.randn(2, 5)
    launch = plans._Launch(compiled_by(run), (11, 13), (k, describe(q)), place_in(q, k))
    launch_on(launch, q, k)
    ((*head, pointer, descriptor),) = given
    assert head == [11, 13, 1, STREAM, "function", "metadata", None, None, None]
    assert pointer == k.data_ptr()
    assert descriptor.base is q


def test_what_a_plan_allocates_in_inference_mode_can_be_trained_on_later():
    measure, lse = Measurer(), torch.randn(B, H, T)
    with torch.inference_mode():
        measure(make_inputs(), lse)
    stats = measure(make_inputs(), lse)
    assert measure.n == 1
    assert not stats.received.is_inference()
    assert stats.received.is_contiguous()
