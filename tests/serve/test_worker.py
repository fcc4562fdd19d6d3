"""One thread, lanes with bounds before it."""

import threading
from concurrent.futures import CancelledError

import pytest

from sightline.serve.results import KeptResults, Result
from sightline.serve.worker import Busy, Worker


@pytest.fixture
def worker():
    worker = Worker({"first": 2, "second": 3})
    yield worker
    worker.stop()


def hold(worker, gate):
    """Keep the thread busy until the gate opens; returns when it is."""
    begun = threading.Event()

    def work():
        begun.set()
        gate.wait(60)

    manager = worker.place("second")
    place = manager.__enter__()
    future = place.submit(work)
    assert begun.wait(60)
    return manager, future


def test_a_full_lane_refuses_and_a_free_place_is_given_again(worker):
    with worker.place("first"), worker.place("first"):
        with pytest.raises(Busy) as full, worker.place("first"):
            pass
        assert full.value.seconds >= 1
        with worker.place("second"):
            pass
    with worker.place("first") as place:
        assert place.submit(lambda: 5).result(10) == 5
    assert worker.taken == {"first": 0, "second": 0}
    assert worker.peak == {"first": 2, "second": 1}


def test_an_earlier_lane_goes_first(worker):
    gate, order = threading.Event(), []
    manager, _ = hold(worker, gate)
    with worker.place("second") as slow, worker.place("first") as quick:
        last = slow.submit(lambda: order.append("second"))
        quick.submit(lambda: order.append("first"))
        gate.set()
        last.result(10)
    manager.__exit__(None, None, None)
    assert order == ["first", "second"]


def test_what_has_not_begun_is_dropped_with_its_place(worker):
    gate, done = threading.Event(), []
    manager, _ = hold(worker, gate)
    with worker.place("second") as place:
        dropped = place.submit(lambda: done.append(1))
    gate.set()
    manager.__exit__(None, None, None)
    with worker.place("second") as place:
        assert place.submit(lambda: list(done)).result(10) == []
    with pytest.raises(CancelledError):
        dropped.result(10)


def test_an_error_is_the_askers_and_the_thread_goes_on(worker):
    def broken():
        raise KeyboardInterrupt("from the work")

    with worker.place("first") as place, pytest.raises(KeyboardInterrupt, match="from the work"):
        place.submit(broken).result(10)
    with worker.place("first") as place:
        assert place.submit(lambda: 7).result(10) == 7


def test_results_go_by_number_and_by_bytes_the_last_asked_stays():
    kept = KeptResults(most=3, most_bytes=100)
    keys = [kept.add(Result(answers=None, nbytes=10, text=str(i))) for i in range(3)]
    assert kept.get(keys[0]).text == "0"
    keys.append(kept.add(Result(answers=None, nbytes=10)))
    assert [kept.get(key) is not None for key in keys] == [True, False, True, True]
    last = kept.add(Result(answers=None, nbytes=500))
    assert (len(kept), kept.nbytes) == (1, 500)
    assert kept.get(last) is not None
    assert len({*keys, last}) == 5
    assert kept.get("") is None
