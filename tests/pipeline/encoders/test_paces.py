"""How fast models are: measured while they work, remembered, never made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import claimscore.pipeline.encoders.calibrating as calibrating
from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import load_model, paces
from claimscore.pipeline.encoders.paces import (
    Meter,
    Pace,
    Paced,
    PaceKey,
    device_label,
    is_known,
    paced,
    paced_padded,
    paces_file,
    recall,
    remember,
    weigh,
)
from claimscore.pipeline.encoders.turns import Turns
from tests.tiny_models import save_tiny_nli

KEY = PaceKey("nli", "embedded", "float32", "cpu, 1 thread")


class Clock:
    """Time that passes when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(paces, "time", clock)
    return clock


class Model(Paced):
    """Takes a second for each item."""

    def __init__(self, clock: Clock, waits_s: float = 0.0) -> None:
        self._clock, self._waits_s = clock, waits_s

    @paced
    def classify(self, pairs: list[tuple[str, str]], *, on_batch: Any = None) -> int:
        self._clock.now += len(pairs)
        return len(pairs)

    @paced
    def token_layers(self, texts: list[str], n_layers: int) -> None:
        self._clock.now += 1

    @paced_padded
    def padded(self, texts: list[str]) -> None:
        self._clock.now += 1


def test_a_call_counts_its_distinct_items_and_its_time(clock: Clock) -> None:
    """By characters, as an estimate counts them; without a meter nothing is counted."""
    model = Model(clock)
    assert model.classify([("a", "b")]) == 1
    model.meter = Meter(KEY)
    model.classify([("a" * 40, "b" * 4), ("a" * 40, "b" * 4)], on_batch=None)
    assert model.meter.total == (10 + 2 + 1 + 2, 2.0)
    model.token_layers(["a" * 40], 3)
    assert model.meter.total == (15 + 12, 3.0)
    model.padded(["a", "a", "b"])
    assert model.meter.total == (27 + 1024, 4.0)


def test_waiting_for_a_device_is_no_work(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread had it."""
    waited = iter([5.0, 5.0 + 1.5])
    monkeypatch.setattr(paces, "waited_s", lambda: next(waited))
    model = Model(clock)
    model.meter = Meter(KEY)
    model.classify([("a", "b"), ("c", "d")])
    assert model.meter.total.seconds == 0.5
    assert Turns()


def test_a_pace_is_written_down_after_a_second_and_when_it_has_doubled() -> None:
    """Not after each call: a run has thousands."""
    meter = Meter(KEY)
    meter.add(100, 0.9)
    assert recall(KEY) is None
    assert not is_known(*KEY[:3])
    meter.add(100, 0.1)
    assert recall(KEY) == Pace(200, 1.0)
    meter.add(1_000, 0.5)
    assert recall(KEY) == Pace(200, 1.0)
    meter.add(1_000, 0.5)
    assert recall(KEY) == Pace(2_200, 2.0)
    assert is_known(*KEY[:3])


def test_little_work_does_not_replace_much() -> None:
    """Until it is half as much, however long it took: the machine may have been busy."""
    remember(KEY, Pace(10_000, 100.0))
    meter = Meter(KEY)
    meter.add(4_999, 1000.0)
    assert recall(KEY) == Pace(10_000, 100.0)
    meter.add(1, 1000.0)
    assert recall(KEY) == Pace(5_000, 2000.0)


def test_paces_are_told_apart() -> None:
    """By role, model, dtype and device."""
    remember(KEY, Pace(1, 2))
    others = [KEY._replace(**{name: "other"}) for name in KEY._fields]
    assert [recall(other) for other in others] == [None] * 4
    remember(others[0], Pace(3, 4))
    assert recall(KEY) == Pace(1, 2)
    assert recall(others[0]) == Pace(3, 4)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"KEY": 1}', '{"KEY": {"tokens": "1", "seconds": 1}}',
     '{"KEY": {"tokens": 1, "seconds": 0}}', '{"KEY": {"tokens": true, "seconds": 1}}',
     '{"KEY": {"tokens": 1, "seconds": NaN}}'],
)  # fmt: skip
def test_a_damaged_file_is_no_pace(content: str) -> None:
    """And no error; the next pace replaces it."""
    paces_file().parent.mkdir(parents=True, exist_ok=True)
    paces_file().write_text(content.replace("KEY", " | ".join(KEY)))
    assert recall(KEY) is None
    remember(KEY, Pace(1, 2))
    assert recall(KEY) == Pace(1, 2)


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on; the estimate does not know."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "file" / "below"))
    remember(KEY, Pace(1, 2))
    assert recall(KEY) is None


def test_every_loaded_model_has_a_meter(tmp_path: Path) -> None:
    """Under the name by which it was asked for, and on its device."""
    path = str(save_tiny_nli(tmp_path / "nli", "bert"))
    model: Any = load_model("nli", EncoderConfig(nli=path, device="cpu"))
    assert model.meter.key == ("nli", path, "float32", device_label("cpu"))
    pairs = [("The hotel was clean.", "The staff was rude!")]
    model.classify(pairs)
    assert model.meter.total.tokens == weigh(pairs)
    assert model.meter.total.seconds > 0


@pytest.mark.parametrize("role", ["nli", "embedder", "token_encoder"])
def test_calibrating_remembers_what_it_measured(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model of any role; the texts are all different."""
    monkeypatch.setattr(calibrating, "CALIBRATION_S", 0.0)
    path = str(save_tiny_nli(tmp_path / "nli", "bert"))
    named: dict[str, Any] = {role: path}
    config = EncoderConfig(device="cpu", token_layer=1, rescale_with_baseline=False, **named)
    pace = calibrating.calibrate(role, config)
    assert pace.tokens_per_s > 0
    known = recall(paces.pace_key(role, config))
    assert known is not None
    assert known.tokens == pace.tokens
    texts = [text for pair in calibrating._texts(8, 500) for text in pair]
    assert len(set(texts)) == len(texts)
    assert json.loads(paces_file().read_text())
