"""Threads on one device: their batches take turns, everything else goes on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from claimscore.pipeline.encoders.batching import BudgetedRunner
from claimscore.pipeline.encoders.turns import Turns, device_turns, one_device, waited_s


class NoMemory(RuntimeError):
    """What the fake device raises."""


def runner(budget: int = 4) -> BudgetedRunner:
    return BudgetedRunner(
        budget, padded=False, is_out_of_memory=lambda exc: isinstance(exc, NoMemory)
    )


class Device:
    """Notices when two threads compute at once."""

    def __init__(self, most_tokens: int = 1000) -> None:
        self.most_tokens = most_tokens
        self.at_work = 0
        self.most_at_work = 0
        self._mutex = threading.Lock()

    def __call__(self, places: NDArray[np.int64], *_built: object) -> None:
        with self._mutex:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        time.sleep(0.001)
        with self._mutex:
            self.at_work -= 1
        if len(places) > self.most_tokens:
            raise NoMemory


def test_the_models_of_one_device_compute_one_at_a_time() -> None:
    """Two models, three threads, one device: never two batches at once."""
    with one_device():
        runners = [runner(), runner()]
    device = Device()

    def work(number: int) -> list[int]:
        batches = runners[number % 2].run([1] * 40, device)
        return [int(place) for places in batches for place in places]

    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(work, range(3)))
    assert device.most_at_work == 1
    assert done == [list(range(40))] * 3


def test_two_devices_compute_at_the_same_time() -> None:
    """Each has turns of its own, and so have models that nobody put on one device."""
    both = threading.Barrier(2, timeout=20)
    with one_device():
        first = runner()
    with one_device():
        second = runner()

    def work(own: BudgetedRunner) -> int:
        return sum(1 for _ in own.run([1] * 4, lambda places: (both.wait(), None)[1]))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, (first, second))) == [1, 1]
        assert list(threads.map(work, (runner(), runner()))) == [1, 1]


def test_a_batch_is_built_while_another_thread_computes() -> None:
    """Building holds nobody back: it happens without the device."""
    with one_device():
        own = runner()
        turns = device_turns()
    built: list[int] = []

    def build(places: NDArray[np.int64]) -> int:
        built.append(len(places))
        return len(places)

    computed: list[tuple[int, int]] = []

    def work() -> None:
        for _ in own.run([1] * 4, lambda places, n: computed.append((len(places), n)), build=build):
            pass

    thread = threading.Thread(target=work)
    with turns.turn():
        thread.start()
        deadline = time.monotonic() + 20
        while not built and time.monotonic() < deadline:
            time.sleep(0.001)
        assert (built, computed) == ([4], [])
    thread.join()
    assert computed == [(4, 4)]


def test_an_error_gives_the_device_back() -> None:
    """Whoever fails must not keep the others waiting for ever."""
    with one_device():
        own = runner()

    def broken(places: NDArray[np.int64]) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        list(own.run([1], broken))
    assert [places.tolist() for places in own.run([1, 1], lambda places: None)] == [[0, 1]]


def test_a_budget_that_another_thread_lowered_stays_lowered() -> None:
    """A batch that was planned before cannot raise it again."""
    own = runner(64)
    device = Device(most_tokens=10)
    first = own.run([1] * 64, device)

    def lower_meanwhile(places: NDArray[np.int64], *_built: object) -> None:
        if len(places) == 64:
            own.budget = 5  # as another thread has found out
        device(places)

    assert [len(places) for places in own.run([1] * 64, lower_meanwhile)] == [5] * 12 + [4]
    assert own.budget == 5
    assert sum(len(places) for places in first) == 64


def test_waiting_is_counted_for_the_thread_that_waits() -> None:
    """So that the time of a pass is work."""
    turns, waited = Turns(), []

    def wait() -> None:
        before = waited_s()
        with turns.turn():
            pass
        waited.append(waited_s() - before)

    before = waited_s()
    with turns.turn():
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
    thread.join()
    assert waited[0] >= 0.03
    assert waited_s() - before < 0.03
