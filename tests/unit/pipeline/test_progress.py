"""The time left: by what models judged, without loading and waiting, at first as expected."""

import pytest

from claimscore.pipeline import progress as progress_module
from claimscore.pipeline.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on when told."""
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def run_of(**more: object) -> Progress:
    """Ten chunks for models, of which the last is as long as the nine together."""
    weights = {n: 100 if n < 9 else 900 for n in range(10)}
    return Progress(phase="running", weights=weights, model_chunks_todo=10, **more)  # type: ignore[arg-type]


def judge(progress: Progress, clock: list[float], chunk: int, seconds: int) -> None:
    """A chunk that takes so many seconds."""
    for second in range(seconds):
        progress.add_pairs(chunk, 1, (second + 1) / seconds)
        clock[0] += 1
        progress.tick()
    progress.add_chunk(chunk)
    progress.tick()


def test_loading_is_no_pace_and_long_texts_count_more(clock: list[float]) -> None:
    """A minute of loading, then a chunk of 100 bytes in ten seconds: 1,700 take 170."""
    progress = run_of()
    for _ in range(60):
        clock[0] += 1
        progress.tick()
        assert progress.remaining_s() is None
    for chunk in range(2):
        judge(progress, clock, chunk, 10)
    assert progress.remaining_s() == pytest.approx(160, rel=0.1)
    judge(progress, clock, 9, 90)
    assert progress.remaining_s() == pytest.approx(70, rel=0.1), "nine tenths of chunks, half of it"


def test_waiting_for_the_language_model_is_no_pace(clock: list[float]) -> None:
    progress = run_of(llm_chunks_todo=10, llm_chunks_done=1)
    judge(progress, clock, 0, 10)
    for _ in range(100):
        clock[0] += 1
        progress.tick()
    progress.llm_chunks_done = 10
    assert progress.remaining_s() == pytest.approx(170, rel=0.1)


def test_what_the_estimate_knows_is_told_at_first(clock: list[float]) -> None:
    """36 seconds were expected; it takes five times as long, and soon it shows."""
    progress = run_of(model_s_expected=36.0)
    progress.tick()
    assert progress.remaining_s() == pytest.approx(36)
    said = []
    for chunk in range(5):
        judge(progress, clock, chunk, 10)
        said.append(progress.remaining_s() or 0)
    assert 36 < said[0] < said[-1] < 130
