"""The ledger: whatever happens to the process, what it says is never too little."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline.llm.budget.ledger import Ledger, Spent, read_ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spending.jsonl"


def reopened(path: Path) -> Spent:
    """What the next invocation would count as spent."""
    ledger = Ledger(path)
    ledger.close()
    return ledger.earlier


def test_an_empty_ledger_says_nothing(path: Path) -> None:
    assert reopened(path) == Spent()
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_ledger(path.with_name("none"))[0] == Spent()


@pytest.mark.parametrize("cut", range(1, 30, 7))
def test_a_torn_last_line_is_taken_away(path: Path, cut: int) -> None:
    ledger = Ledger(path)
    ledger.reserve(100)
    ledger.reserve(100)
    ledger.close()
    os.truncate(path, path.stat().st_size - cut)
    assert read_ledger(path)[0] == Spent(1, possibly_pico_usd=100)
    ledger = Ledger(path)
    ledger.reserve(7)
    ledger.close()
    assert reopened(path) == Spent(2, possibly_pico_usd=107)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"\0\0\0\0", id="zeros"),
        pytest.param(b'{"reserve":1,"prompt_to', id="cut"),
        pytest.param(b"17", id="no object"),
        pytest.param(b"{}", id="says nothing"),
        pytest.param(b'{"settle":[5]}', id="settles what was not reserved"),
        pytest.param(b'{"reserve":"x","pico_usd":1}', id="no number"),
        pytest.param(b'{"reserve":9}', id="half of its fields"),
        pytest.param(b'{"settle":[],"pico_usd":-1}', id="a sum that makes room under a cap"),
        pytest.param(b'{"settle":[],"unknown":1}', id="a count of another version"),
        pytest.param(b'{"settle":[],"requests":"many"}', id="no count"),
    ],
)
def test_a_damaged_line_is_an_error(path: Path, line: bytes) -> None:
    whole = b'{"settle":[],"requests":1}\n'
    path.write_bytes(whole + line + b"\n" + whole)
    with pytest.raises(ConfigError, match=r"spending\.jsonl, line 2: .*Move the file away"):
        Ledger(path)
    with pytest.raises(ConfigError, match="damaged"):
        read_ledger(path)
    assert path.read_bytes() == whole + line + b"\n" + whole, "nothing was changed"
    path.write_bytes(whole)
    assert reopened(path).requests == 1


def test_a_full_disk_stops_and_leaves_no_half_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(path)
    ledger.reserve(1)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, size: write(fd, data[:10], size))
    with pytest.raises(StoppedEarly, match="the disk is full"):
        ledger.reserve(2)
    monkeypatch.undo()
    assert ledger.reserve(3) == 2
    ledger.close()
    assert reopened(path) == Spent(2, possibly_pico_usd=4)


def test_lines_are_written_one_after_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path)
    write, both_write, met = os.pwrite, threading.Barrier(2, timeout=0.05), []

    def slow(descriptor: int, data: bytes, size: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_write.wait()
            met.append(data)
        return write(descriptor, data, size)

    monkeypatch.setattr(os, "pwrite", slow)
    threads = [threading.Thread(target=ledger.reserve, args=(1,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    assert not met
