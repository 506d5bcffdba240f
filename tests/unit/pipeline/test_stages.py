"""Which steps of which chunks are missing, and that a stop stops both stages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import polars as pl
import pytest

from claimscore.cache.base import MemoryCache
from claimscore.config import RunConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline import progress as progress_module
from claimscore.pipeline.blocking import first_error, run_blocking
from claimscore.pipeline.chunks import find_todo
from claimscore.pipeline.encoders import Worker
from claimscore.pipeline.encoders.protocols import OnBatch
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.model_stage import LocalModels
from claimscore.pipeline.plan import Plan, make_plan
from claimscore.pipeline.progress import Pace, Progress
from claimscore.pipeline.stages import Stages
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIMS, FAILURES, NLI
from claimscore.types import Completion, Request
from tests.support.pass_doubles import FakeModel as FakeClassifier

COLUMNS = ["id", "summary_a", "summary_b"]


def config(tmp_path: Path, **settings: Any) -> RunConfig:
    return RunConfig(input="x.jsonl", out=tmp_path / "run", units="sentences", **settings)


def plan_for(settings: RunConfig) -> Plan:
    return make_plan(settings, COLUMNS)


def records(chunk: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": [f"r{chunk}"], "summary_a": ["It is warm. It is big."], "summary_b": ["It is old."]}
    )


def directory_with(tmp_path: Path, n_chunks: int) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.__enter__()
    for chunk in range(n_chunks):
        directory.write_parts(chunk, "records", {"records": records(chunk)})
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    opened = directory_with(tmp_path, 3)
    yield opened
    opened.__exit__(None, None, None)


def run_stages(
    settings: RunConfig, directory: RunDirectory, classifier: Any, n_chunks: int = 3
) -> Progress:
    progress = Progress()
    todo = find_todo(plan_for(settings), directory, n_chunks, settings.retry_failed)
    pool = LocalModels([Worker({"nli": classifier})], directory, progress)
    stages = Stages(settings, directory, todo, None, pool, progress)
    if hasattr(classifier, "stop"):
        classifier.stop = stages.stop
    run_blocking(stages.run)
    return progress


def test_all_steps_are_done_once(tmp_path: Path, directory: RunDirectory) -> None:
    """Claims and NLI of every chunk; nothing is left afterwards."""
    settings = config(tmp_path, metrics=("caspr",))
    progress = run_stages(settings, directory, FakeClassifier())
    assert (progress.llm_chunks_done, progress.model_chunks_done) == (3, 3)
    assert directory.scan("nli").collect().height == progress.pairs_done == 3 * 4
    assert find_todo(plan_for(settings), directory, 3, retry_failed=False) == []


def test_only_missing_steps_are_done(tmp_path: Path, directory: RunDirectory) -> None:
    """A chunk that was finished before is not computed again."""
    settings = config(tmp_path, metrics=("caspr",))
    empty = {"claims": CLAIMS.empty(), "failures": FAILURES.empty()}
    directory.write_parts(1, "decompose-a-b", empty)
    directory.write_parts(1, "nli-a-b", {"nli": NLI.empty()})
    todo = find_todo(plan_for(settings), directory, 3, retry_failed=False)
    assert [item.chunk for item in todo] == [0, 2]


def test_a_side_that_is_missing_is_done_alone(tmp_path: Path, directory: RunDirectory) -> None:
    """A metric added later pays for the side it adds, not for those that are there."""
    settings = config(tmp_path, metrics=("caspr",))
    done = {"claims": CLAIMS.empty(), "failures": FAILURES.empty()}
    directory.write_parts(0, "decompose-a", done)
    todo = find_todo(plan_for(settings), directory, 1, retry_failed=False)
    assert [planned.step for planned in todo[0].tasks] == ["decompose-b"]


def test_retry_failed_redoes_the_step_and_what_was_made_from_it(
    tmp_path: Path, directory: RunDirectory
) -> None:
    """Forgotten before anything is done, so a kill in between cannot leave old NLI rows."""
    settings = config(tmp_path, metrics=("caspr",))
    run_stages(settings, directory, FakeClassifier())
    failure = FAILURES.frame([{"id": "r1", "stage": "decompose", "side": "a", "kind": "parse"}])
    directory.write_parts(1, "decompose-a-b", {"claims": CLAIMS.empty(), "failures": failure})
    todo = find_todo(plan_for(settings), directory, 3, retry_failed=True)
    assert [(item.chunk, len(item.tasks)) for item in todo] == [(1, 1)]
    assert [planned.step for planned in todo[0].passes] == ["nli-a-b"]
    assert not directory.has(1, "nli-a-b")


class StoppingClassifier(FakeClassifier):
    """Asks for a stop while it judges its first chunk."""

    def stop(self) -> None:
        raise AssertionError("set by run_stages")

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> np.ndarray[Any, Any]:
        self.stop()
        return super().classify(pairs, on_batch=on_batch)


def test_a_stop_ends_the_model_stage_at_the_next_batch(
    tmp_path: Path, directory: RunDirectory
) -> None:
    """`StoppedEarly`; the chunk it was in is not finished, and the next run does it whole."""
    settings = config(tmp_path, metrics=("caspr",))
    with pytest.raises(StoppedEarly):
        run_stages(settings, directory, StoppingClassifier())
    assert directory.steps_done("nli-a-b") == 0
    run_stages(settings, directory, FakeClassifier())
    assert directory.steps_done("nli-a-b") == 3


class BrokenClassifier(FakeClassifier):
    """Has a bug."""

    def classify(self, pairs: Any, *, on_batch: Any = None) -> Any:
        raise ZeroDivisionError("a bug")


def test_a_bug_in_the_model_stage_ends_the_run(tmp_path: Path, directory: RunDirectory) -> None:
    """It is raised as itself, not as a group, and nothing hangs."""
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_stages(config(tmp_path, metrics=("caspr",)), directory, BrokenClassifier())


def test_work_can_be_started_inside_an_event_loop() -> None:
    """A notebook has a loop in its thread already."""
    done = []

    async def work() -> None:
        await anyio.sleep(0)
        done.append(1)

    async def notebook() -> None:
        run_blocking(work)

    anyio.run(notebook)
    assert done == [1]


def test_the_first_error_of_nested_groups_is_found() -> None:
    """What went wrong before the rest was cancelled."""
    inner = ExceptionGroup("inner", [ValueError("first"), KeyError("second")])
    assert str(first_error(ExceptionGroup("outer", [inner]))) == "first"


class Provider:
    """Repeats each sentence as its one claim; remembers of which chunk it was asked."""

    family = namespace = "fake"
    model = "m"

    def __init__(self) -> None:
        self.chunks: list[int] = []

    async def complete(self, request: Request) -> Completion:
        text = request.messages[-1].content
        self.chunks.append(int(text.partition("chunk ")[2][0]))
        await anyio.sleep(0.001)
        return Completion(json.dumps({"claims": [text]}), model="m")

    async def aclose(self) -> None:
        """Nothing is open."""


def test_a_chunk_has_its_answers_before_the_next_one_has_its_share(tmp_path: Path) -> None:
    """Chunks that are open together would be done together, and the models would wait: the next
    one is opened when the engine runs short, so each ends a chunk's time after the one before."""
    settings = RunConfig(input="x.jsonl", out=tmp_path / "run", metrics=("caspr",))
    provider, in_flight, n_chunks, n_rows = Provider(), 4, 5, 20
    with RunDirectory(tmp_path / "run") as directory:
        for chunk in range(n_chunks):
            texts = [f"Room {i} of chunk {chunk} is warm." for i in range(n_rows)]
            frame = pl.DataFrame({"id": [f"{chunk}-{i}" for i in range(n_rows)]})
            frame = frame.with_columns(summary_a=pl.Series(texts), summary_b=pl.Series(texts))
            directory.write_parts(chunk, "records", {"records": frame})
        todo = find_todo(plan_for(settings), directory, n_chunks, retry_failed=False)

        async def work() -> None:
            async with Engine(provider, MemoryCache(), max_concurrency=in_flight) as engine:
                progress = Progress()
                pool = LocalModels([Worker({"nli": FakeClassifier()})], directory, progress)
                await Stages(settings, directory, todo, engine, pool, progress).run()

        run_blocking(work)
    asked = provider.chunks
    assert sorted(asked) == [chunk for chunk in range(n_chunks) for _ in range(n_rows)]
    for chunk in range(n_chunks - 1):
        last = max(place for place, of in enumerate(asked) if of == chunk)
        assert last < (chunk + 1) * n_rows + 2 * in_flight


class SlowAtOne:
    """Answers at once, but for the last sentence of the long text: that waits for `until`."""

    family, namespace, model = "f", "n", "m"

    def __init__(self, until: str) -> None:
        self._until = until
        self._asked = anyio.Event()

    async def complete(self, request: Request) -> Completion:
        text = request.messages[-1].content
        if self._until in text:
            self._asked.set()
        if "Part 499 " in text:
            with anyio.fail_after(20):
                await self._asked.wait()
        return Completion('{"claims": ["It is warm."]}', "m")

    async def aclose(self) -> None:
        pass


def test_a_record_of_500_sentences_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """While one of its answers is missing, chunks that come behind are done."""
    settings = RunConfig(input="x", out=tmp_path / "run", metrics=(), tasks=("decompose",))
    long = " ".join(f"Part {i} of house 0 is warm." for i in range(500))
    n_chunks = 6
    with RunDirectory(tmp_path / "run") as directory:
        for chunk in range(n_chunks):
            text = long if chunk == 0 else f"House {chunk} is warm."
            frame = pl.DataFrame({"id": [f"r{chunk}"], "summary": [text]})
            directory.write_parts(chunk, "records", {"records": frame})
        plan = make_plan(settings, ["id", "summary"])
        todo = find_todo(plan, directory, n_chunks, retry_failed=False)

        async def work() -> None:
            provider = SlowAtOne(until=f"House {n_chunks - 1} ")
            async with Engine(provider, MemoryCache(), max_concurrency=4) as engine:
                pool = LocalModels([], directory, Progress())
                await Stages(settings, directory, todo, engine, pool, Progress()).run()

        run_blocking(work)
        assert directory.counts()["claims"] == 500 + n_chunks - 1


def test_the_time_left_is_that_of_the_slower_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown while a stage has done nothing; never zero while models have work."""
    now = 0.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    progress = Progress(llm_chunks_todo=4, llm_chunks_done=4, model_chunks_todo=4)
    progress.tick()
    assert progress.remaining_s() is None
    now = 10.0
    progress.model_chunk_share = 0.5
    progress.tick()
    assert progress.remaining_s() == pytest.approx(70)


def test_the_pace_is_that_of_the_last_two_minutes() -> None:
    """An hour of another limit or of an outage is forgotten."""
    pace = Pace()
    for second in range(3600):
        pace.see(10 * second, second)
    assert pace.seconds_for(100) == pytest.approx(10)
    for second in range(3600, 3600 + 130):
        pace.see(36000 + (second - 3600), second)
    assert pace.seconds_for(100) == pytest.approx(100, rel=0.1)
    assert pace.seconds_for(0) == 0.0


def test_a_pace_of_nothing_says_nothing() -> None:
    """Not infinity, and not zero."""
    pace = Pace()
    assert pace.seconds_for(1) is None
    pace.see(5, 0.0)
    pace.see(5, 10.0)
    assert pace.seconds_for(1) is None
