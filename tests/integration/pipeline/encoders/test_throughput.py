"""Budgets and throughput: found by work, kept for later runs, never made up."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from claimscore.config import user_state_dir
from claimscore.pipeline.encoders import throughput
from claimscore.pipeline.encoders.throughput import (
    Meter,
    Metered,
    Throughput,
    ThroughputKey,
    known_throughput,
    metered,
    padded_tokens,
    save_throughput,
    throughput_file,
    tokens_of_each,
)

KEY = ThroughputKey("nli", "embedded", "float32", "cpu, 1 thread")


@pytest.mark.parametrize(
    "row",
    ["", "[]", "{", "\x00", '{"KEY": 1}', '{"KEY": {"tokens": "many", "seconds": 1}}',
     '{"KEY": {"tokens": 0, "seconds": 0}}', '{"KEY": {"tokens": true, "seconds": 1}}',
     '{"KEY": {"tokens": 0, "seconds": NaN}}'],
)  # fmt: skip
def test_damaged_files_are_forgotten_and_written_anew(row: str) -> None:
    throughput_file().parent.mkdir(parents=True, exist_ok=True)
    throughput_file().write_text(row.replace("KEY", " | ".join(KEY)))
    assert known_throughput(KEY) is None
    save_throughput(KEY, Throughput(1, 2))
    assert known_throughput(KEY) == Throughput(1, 2)


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    (user_state_dir() / "file").write_text("")
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(user_state_dir() / "file" / "below"))
    save_throughput(KEY, Throughput(1, 2))
    assert known_throughput(KEY) is None


class Model(Metered):
    """Takes a second of a clock for each item; the device is waited for as long as it says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = self.waited = 0.0
        patch.setattr(throughput, "time", SimpleNamespace(monotonic=lambda: self.now))
        patch.setattr(throughput, "device_wait_s", lambda: self.waited)

    @metered()
    def classify(self, pairs: list[tuple[str, str]], *, waits_s: float = 0.0) -> int:
        self.now += len(pairs) + waits_s
        self.waited += waits_s
        return len(pairs)

    @metered()
    def token_layers(self, texts: list[str], n_layers: int) -> None:
        self.now += 1

    @metered(padded_tokens)
    def padded(self, texts: list[str]) -> None:
        self.now += 1


def test_a_call_counts_its_distinct_items_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By characters, as an estimate counts them; waiting for a device that another thread has is
    no work; without a meter nothing is counted."""
    model = Model(monkeypatch)
    assert model.classify([("a", "b")]) == 1
    model.meter = Meter(KEY)
    model.classify([("a" * 40, "b" * 4), ("a" * 40, "b" * 4)], waits_s=1.5)
    assert model.meter.total == (10 + 2 + 1 + 2, 2.0, None)
    model.token_layers(["a" * 40], 3)
    assert model.meter.total == (15 + 12, 3.0, None)
    model.padded(["a", "a", "b"])
    assert model.meter.total == (27 + 1024, 4.0, None)


def test_what_a_model_does_not_read_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long document would make every later estimate too short."""
    model = Model(monkeypatch)
    model.meter = Meter(KEY, limit=512)
    model.classify([("a" * 100_000, "b"), ("a" * 40, "b" * 4)])
    assert model.meter.total == (512 + 15, 2.0, 512)
    model.padded(["a", "b"])
    assert model.meter.total == (527 + 1024, 3.0, 512)
    assert known_throughput(KEY) == (527, 2.0, 512)
    pairs = [("a" * 100_000, "b" * 4), ("a" * 100_000, "b" * 8)]
    assert tokens_of_each(pairs, 512) == 512 + 3 + 4
    throughput_file().write_text(json.dumps({" | ".join(KEY): {"tokens": 9, "seconds": 1}}))
    assert known_throughput(KEY) is None, "of a version that counted all of a text"
