"""Clients as processes: ready, ordered, and what is said when they fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workers
from common import budgeted
from play import values_of
from workers import Worker, WorkerError

COMMON = f"import sys; sys.path.insert(0, {str(workers.HERE / 'clients')!r})\n"
DOUBLE = """
from common import Done, serve

def load(job):
    print("a library that talks")
    if job.model == "broken":
        raise ValueError("no such model")

    def work(options):
        if options.get("fail"):
            raise MemoryError("too much")
        return Done([2.0 * x for x in job.items], {"threads": job.threads})

    return work

serve(load, ())
"""

Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a client of a few lines, which doubles numbers."""
    script = tmp_path / "double.py"
    script.write_text(COMMON + DOUBLE)
    monkeypatch.setitem(workers.CLIENTS, "double", (str(script), ""))
    items = tmp_path / "items.json"
    items.write_text(json.dumps([1.0, 2.0]))

    def started(**job: Any) -> Worker:
        whole = {"task": "", "model": "m", "items": str(items), "device": "cpu", "threads": 1}
        return Worker("double", Path(sys.executable), whole | job, tmp_path)

    return started


def test_orders_are_done_one_by_one(start: Start) -> None:
    """What libraries print is no answer; arrays come back by file, figures by word."""
    with start() as worker:
        assert "python" in worker.ready()
        for _ in range(2):
            measured = worker.order({})
            assert np.array_equal(values_of(measured), [2.0, 4.0])
            assert measured.figures == {"threads": 1}
            assert measured.seconds >= 0


def test_a_model_that_does_not_load_is_named(start: Start) -> None:
    """In one line, by the client's own words."""
    with start(model="broken") as worker, pytest.raises(WorkerError, match="no such model"):
        worker.ready()


def test_a_failed_order_leaves_the_client_alive(start: Start) -> None:
    """Out of memory at one batch size says nothing of the next."""
    with start() as worker:
        worker.ready()
        with pytest.raises(WorkerError, match="too much"):
            worker.order({"fail": True})
        assert worker.order({}).values is not None


def test_a_client_that_dies_says_its_last_words(start: Start, tmp_path: Path) -> None:
    """The last line of its errors."""
    (tmp_path / "double.py").write_text("raise SystemExit('no such library')")
    with start() as worker, pytest.raises(WorkerError, match="no such library"):
        worker.ready()


def test_a_client_that_hangs_is_ended(start: Start, tmp_path: Path) -> None:
    """After its time."""
    (tmp_path / "double.py").write_text("import time; time.sleep(60)")
    with start() as worker, pytest.raises(WorkerError, match="no answer"):
        worker.ready(timeout_s=0.1)


def test_batches_keep_their_budget_and_lose_nothing() -> None:
    """Longest first; a row longer than the budget is alone."""
    lengths = [3, 9, 1, 4, 4]
    batches = list(budgeted(lengths, 8))
    assert batches == [[1], [3, 4], [0, 2]]
    assert list(budgeted([], 8)) == []
