"""Whole tiles by thread: the same bits with any number of threads, and nothing changed for anyone else."""

import os
import re
import threading

import pytest
import torch

import sightline as sl
from sightline.look import engine, threads
from sightline.look.threads import by_tile, in_order, one_thread
from tests.look.look_oracle import MASKS, randn, tile_of
from tests.look.stream_oracle import inputs

has_runtime = pytest.mark.skipif(threads._runtime() is None, reason="torch's OpenMP is not to be found here")


@pytest.fixture(params=[2, 3])
def several(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def thread_numbers():
    """Torch's number of threads in this thread, and MKL's."""
    found = re.search(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
    return torch.get_num_threads(), torch.get_num_threads() if found is None else int(found[1])


def in_new_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


@has_runtime
def test_each_item_has_one_thread_and_nobody_else_notices(several):
    own = thread_numbers()
    assert own == (several, several)
    seen = []

    def work(item):
        seen.append((threading.get_ident(), thread_numbers()))
        return 7 * item

    for item, result in in_order(work, range(23)):
        assert result == 7 * item
        assert thread_numbers() == own
        assert in_new_thread(thread_numbers) == own  # torch.set_num_threads would show here
    assert [numbers for _, numbers in seen] == [(1, 1)] * 23
    assert len(dict(seen)) <= several
    assert thread_numbers() == in_new_thread(thread_numbers) == own


@has_runtime
def test_one_thread_is_for_this_thread_and_this_block_alone(several):
    with one_thread():
        assert thread_numbers() == (1, 1)
        assert in_new_thread(thread_numbers) == (several, several)
    assert thread_numbers() == (several, several)


def test_results_come_in_order_and_the_items_are_read_a_little_ahead(several):
    read = []

    def items():
        for i in range(53):
            read.append(i)
            yield i

    for i, (item, result) in enumerate(in_order(lambda x: x * x, items())):
        assert (item, result) == (i, i * i)
        assert len(read) <= i + 2 * several + 1


def test_this_thread_works_while_the_others_do(several):
    gate = threading.Event()

    def work(item):
        if threading.current_thread() is threading.main_thread():
            gate.set()
        else:
            assert gate.wait(60)  # nobody else ends before this thread has begun
        return item

    assert [result for _, result in in_order(work, range(7))] == list(range(7))


def test_what_is_raised_inside_comes_out_and_nothing_is_left_at_work(several):
    at_work = []

    def work(item):
        at_work.append(item)
        try:
            if item == 11:
                raise ValueError("eleven")
            return item
        finally:
            at_work.remove(item)

    with pytest.raises(ValueError, match="eleven"):
        list(in_order(work, range(37)))
    assert not at_work
    for item, _ in in_order(work, range(10)):
        if item == 3:
            break
    assert not at_work
    assert [result for _, result in in_order(work, range(10))] == list(range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own(several):
    assert [result for _, result in in_order(lambda x: x, range(5))] == list(range(5))
    child = os.fork()
    if not child:
        done = [result for _, result in in_order(lambda x: x, range(5))]
        os._exit(0 if done == list(range(5)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_workers_have_the_modes_of_the_caller(several):
    x = randn(5).requires_grad_()

    def work(_):
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        return *modes, (2 * x).requires_grad

    with torch.no_grad(), torch.autocast("cpu"):
        assert [result for _, result in in_order(work, range(3))] == [(False, False, False, False)] * 3
    with torch.inference_mode():
        assert [result for _, result in in_order(work, range(3))] == [(False, True, False, False)] * 3


def everything(q, k, v, mask, n_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        sight = sl.look(q, k, v, mask, measure=sl.Look(map=5, top=3))
        later = sight.received_from((2, 19)), sight.map(4, queries=(3, 17)), sight.offsets(11, first=2)
        return [*sight.statistics.values(), *later]
    finally:
        torch.set_num_threads(before)


@pytest.mark.plain  # bits, of looks whose shapes are checked above
@pytest.mark.parametrize(
    ("mask", "mode"),
    [
        *(
            (mask, torch.no_grad)
            for mask in ("nothing", "causal", "padding", "bias_of_heads", "all_together")
        ),
        ("all_together", torch.inference_mode),
    ],
)
def test_the_same_bits_with_any_number_of_threads(mask, mode):
    q, k, v = inputs((2, 6), 29, 31, 7, kv_heads=2, dtype=torch.float32)
    shown, _ = MASKS[mask]((2, 6), 29, 31)
    with mode(), tile_of(83):
        first, *others = (everything(q, k, v, shown, n) for n in (1, 2, 5))
        for other in others:
            for x, y in zip(first, other, strict=True):
                assert torch.equal(x, y)


def test_the_same_bits_at_the_sizes_that_are_used():
    q, k, v = (randn(1, 3, 853, 16, seed=i, dtype=torch.float32) for i in range(3))
    with torch.no_grad():
        first, *others = (everything(q, k, v, None, n) for n in (1, 2, 3))
    for other in others:
        assert all(torch.equal(x, y) for x, y in zip(first, other, strict=True))


@has_runtime
def test_what_tiles_found_is_put_together_by_one_thread(several, monkeypatch):
    numbers = []
    real = engine._Known.put

    def noted(*args, **options):
        numbers.append(thread_numbers())
        return real(*args, **options)

    monkeypatch.setattr(engine._Known, "put", noted)
    x = randn(1, 2, 1031, 5)
    sl.look(x, x, x, measure=sl.Look(map=3))
    assert len(numbers) > 3
    assert set(numbers) == {(1, 1)}
    assert thread_numbers() == (several, several)


def test_a_score_of_the_users_own_is_called_from_the_users_thread(several):
    called = []

    class Own(sl.scores.Additive):
        def forward(self, q, k):
            called.append(threading.get_ident())
            return super().forward(q, k)

    q, k, v = inputs((2, 3), 13, 11, 7, dtype=torch.float32)
    with torch.no_grad(), tile_of(17):
        sl.look(q, k, v, score=Own(7, 7, 5))
    assert set(called) == {threading.get_ident()}


@has_runtime
@pytest.mark.parametrize("is_ours", [True, False])
def test_few_pairs_are_one_threads_unless_the_users_own_code_is_called(several, is_ours):
    q, k, _ = inputs((2, 3), 13, 11, 7, dtype=torch.float32)
    made = sl.look(q, k, k, score=None if is_ours else sl.scores.Additive(7, 7, 5)).kept[0].inputs
    seen = [x for _, x in by_tile(made, lambda _: (threading.get_ident(), thread_numbers()), made.tiles(17))]
    n_threads = 1 if is_ours else several
    assert len(seen) > 1
    assert set(seen) == {(threading.get_ident(), (n_threads, n_threads))}
