"""Several workers on one queue: the same bytes as one, in any order, however it ends."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import polars as pl
import pytest

from claimscore.cache.maintenance import details
from claimscore.cache.store import DiskCache
from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline import model_stage
from claimscore.pipeline.encoders import Worker
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.model_stage import LocalModelWorker, ModelPool, WorkerLostError
from claimscore.pipeline.plan import ChunkTodo, find_todo
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.run import run
from claimscore.pipeline.stages import Stages
from claimscore.pipeline.supervision import run_blocking
from claimscore.runs import RunDirectory
from claimscore.types import Completion
from tests.fake_server import Body, FakeServer, plain_answer
from tests.support.plans import plan_of

N_CHUNKS = 12
#: Pairs a batch of the fake.
BATCH = 2


class Killed(BaseException):
    """In the place of kill -9."""


class Chunkwise:
    """Numbers that depend on all pairs of a call, as those of a real model may in their last
    bits: only a chunk that is computed whole and alone gives the same again.

    `pause` is called before each batch.
    """

    info = ModelInfo("chunkwise", "r1", "float32")

    def __init__(self, pause: Callable[[], object] = lambda: None) -> None:
        self.n_calls = 0
        self._pause = pause

    def classify(self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None) -> Any:
        self.n_calls += 1
        for done in range(0, len(pairs), BATCH):
            self._pause()
            if on_batch is not None:
                on_batch(min(done + BATCH, len(pairs)))
        seed = hashlib.sha256(json.dumps(list(pairs)).encode()).digest()[:8]
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        return rng.dirichlet(np.ones(3), len(pairs)).astype(np.float32)


def settings(out: Path, **options: Any) -> RunConfig:
    return RunConfig(
        input=str(out.parent / "records.jsonl"),
        out=out,
        metrics=("caspr",),
        units="sentences",
        chunk_records=2,
        **{"model_store": False, **options},
    )


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two records a chunk; some chunks have ten times the pairs of others."""
    path = tmp_path / "records.jsonl"
    rows = [
        {
            "id": str(n),
            "summary_a": " ".join(f"Room {n} has bed {i}." for i in range(1 + n % 5)),
            "summary_b": f"Room {n} is big. The bar is {n} steps away.",
        }
        for n in range(2 * N_CHUNKS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


Loader = Callable[..., list[Chunkwise]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Loader:
    """What runs load from now on: a fake a worker, which all call `pause`."""

    def use(pause: Callable[[], object] = lambda: None) -> list[Chunkwise]:
        loaded: list[Chunkwise] = []

        def load_fake(role: str, config: EncoderConfig) -> Any:
            loaded.append(Chunkwise(pause))
            return loaded[-1]

        monkeypatch.setattr(model_stage, "load_model", load_fake)
        return loaded

    return use


def scored(out: Path, device: str = "cpu") -> bytes:
    run(settings(out, encoders=EncoderConfig(device=device)))
    return (out / "scores.parquet").read_bytes()


def nli_of(out: Path) -> pl.DataFrame:
    return pl.read_parquet(sorted((out / "nli").glob("*.parquet")))


@pytest.mark.usefixtures("records")
def test_workers_share_the_work_and_give_the_bytes_of_one(tmp_path: Path, load: Loader) -> None:
    """Every chunk once, by a worker that is free; no byte of a score or of a row tells which."""
    load()
    alone = scored(tmp_path / "one")
    working: set[int] = set()
    all_work = threading.Event()

    def pause() -> None:
        working.add(threading.get_ident())
        if len(working) == 3:
            all_work.set()
        assert all_work.wait(60), "a worker has nothing to do"

    loaded = load(pause)
    together = scored(tmp_path / "three", "cpu,cpu,cpu")
    assert together == alone
    assert nli_of(tmp_path / "three").equals(nli_of(tmp_path / "one"))
    calls = [model.n_calls for model in loaded]
    assert (len(calls), sum(calls)) == (3, N_CHUNKS)
    assert min(calls) >= 1
    call = json.loads((tmp_path / "three" / "summary.json").read_text())["last_call"]
    assert call["nli_pairs"] == nli_of(tmp_path / "three").height
    assert call["passes"]["nli-a-b"]["records"] == 2 * N_CHUNKS


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("at", [1, 9, 30])
def test_cut_off_and_taken_up_again_with_two_workers(tmp_path: Path, load: Loader, at: int) -> None:
    """Whatever the other worker was in the middle of: the next call does the rest, to the bytes
    of a run that nothing happened to."""
    load()
    whole = scored(tmp_path / "whole")
    batches = iter(range(10**6))
    mutex = threading.Lock()

    def end() -> None:
        with mutex:
            if next(batches) == at:
                raise Killed

    load(end)
    out = tmp_path / "run"
    with pytest.raises(Killed):
        scored(out, "cpu,cpu")
    assert not (out / "scores.parquet").exists()
    done = RunDirectory.reader(out).steps_done("nli-a-b")
    assert done < N_CHUNKS
    loaded = load()
    assert scored(out, "cpu,cpu") == whole
    assert sum(model.n_calls for model in loaded) == N_CHUNKS - done


def test_requests_and_models_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a run of 20 pairs; nothing is waited for that is not needed."""
    seen: list[int] = []
    rows = [
        {
            "id": f"r{i}",
            "summary_a": f"Room {i} is warm. Bar {i} is big.",
            "summary_b": f"It is {i}.",
        }
        for i in range(20)
    ]
    records = tmp_path / "in.jsonl"
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def answer(body: Body) -> Completion:
        with anyio.move_on_after(60):
            while len(server.bodies) > 20 and not seen:
                await anyio.sleep(0.002)
        return await plain_answer(body)

    def load(*_: object) -> list[Worker]:
        return [Worker({"nli": Chunkwise(lambda: seen.append(len(server.bodies)))})]

    monkeypatch.setattr(model_stage, "load_workers", load)
    with FakeServer(answer=answer) as server:
        llm = LLMConfig(model="openai:m", base_url=server.base_url, max_concurrency=4)
        config = RunConfig(str(records), tmp_path / "run", ("caspr",), llm=llm)
        result = run(dataclasses.replace(config, cache_dir=tmp_path / "cache", model_store=False))
    assert result.summary["records"]["done"] == 20
    assert seen[0] < len(server.bodies) / 2
    assert run(config).summary["metrics"]["caspr"]["n"] == 20  # the same chunks, all of them done


@contextlib.contextmanager
def stages(
    out: Path,
    workers: Sequence[Worker],
    change: Any = lambda pool: pool,
) -> Iterator[tuple[Stages, RunDirectory]]:
    with RunDirectory(out) as directory:
        directory.check_settings({"seed": 0})
        for chunk in range(N_CHUNKS):
            texts = {"summary_a": ["It is warm. It is big."], "summary_b": ["It is old."]}
            frame = pl.DataFrame({"id": [f"r{chunk}"], **texts})
            directory.write_parts(chunk, "records", {"records": frame})
        plan = plan_of(settings(out), ["id", "summary_a", "summary_b"])
        todo = find_todo(plan, directory, N_CHUNKS, retry_failed=False)
        progress = Progress()
        local = [LocalModelWorker(worker, directory, progress) for worker in workers]
        pool = change(ModelPool(local))
        yield Stages(plan, directory, todo, None, pool, progress), directory


class Endless(Chunkwise):
    """Begins batch after batch; `begun` is set by the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def classify(self, pairs: Any, *, on_batch: Any = None) -> Any:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.begun.set()
            time.sleep(0.005)
            on_batch(0)
        raise AssertionError("it goes on for a run that has ended")


@pytest.mark.usefixtures("records")
def test_answers_are_kept_if_models_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the language model was asked is paid for: it lands before the error ends the run."""

    async def answer(body: Body) -> Completion:
        await anyio.sleep(0 if "r0" in str(body) else 0.5)
        return await plain_answer(body)

    class Broken(Chunkwise):
        def classify(self, *_: Any, **__: Any) -> Any:
            raise ConfigError("no NLI model")

    monkeypatch.setattr(model_stage, "load_model", lambda *_: Broken())
    with FakeServer(answer=answer) as server:
        llm = LLMConfig(model="openai:m", base_url=server.base_url)
        cache = tmp_path / "cache"
        config = settings(tmp_path / "run", llm=llm, cache_dir=cache)
        config = dataclasses.replace(config, units="claims")
        with pytest.raises(ConfigError, match="no NLI model"):
            run(config)
        paid = sum(server.counts.paid.values())
    with contextlib.closing(DiskCache(cache)) as answers:
        assert details(answers).entries == paid > 0


def dying_pool(healthy: ModelPool, times: int) -> ModelPool:
    """Workers in the place of other processes: one dies over its chunks, `times` of them."""
    return ModelPool([DyingWorker(times), *healthy.workers])


class DyingWorker:
    """Says that its process died over each chunk; after so many it is not ready any more."""

    name, threads = "dying", 1

    def __init__(self, times: int) -> None:
        self._left = times

    async def ready(self, is_over: Callable[[], bool]) -> None:
        while not (self._left or is_over()):
            await anyio.sleep(0.01)

    async def do(self, item: ChunkTodo, is_over: Callable[[], bool]) -> None:
        self._left -= 1
        raise WorkerLostError("killed")


def test_chunks_of_dead_workers_are_done_by_others(tmp_path: Path) -> None:
    """Each once, and the stage ends though a worker never comes back; a chunk that kills every
    worker stops the run."""
    model = Chunkwise(lambda: time.sleep(0.002))
    pool = functools.partial(dying_pool, times=3)
    with stages(tmp_path / "run", [Worker({"nli": model})], pool) as (work, directory):
        run_blocking(work.run)
        assert model.n_calls == directory.steps_done("nli-a-b") == N_CHUNKS
    pool = functools.partial(dying_pool, times=1000)
    with (
        stages(tmp_path / "other", [], pool) as (work, _),
        pytest.raises(StoppedEarly, match=r"5 workers died over chunk \d, .*killed"),
    ):
        run_blocking(work.run)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stop_ends_all_workers_and_drops_what_waits(tmp_path: Path, is_cancelled: bool) -> None:
    """After the batches at work, and without a thread left behind, though what is around the
    stages ends them; nothing is half done, the rest is done later."""
    models = [Endless(), Endless()]
    workers = [Worker({"nli": model}) for model in models]
    ends = contextlib.nullcontext() if is_cancelled else pytest.raises(StoppedEarly, match="interr")
    with stages(tmp_path / "run", workers) as (work, directory):

        async def ended() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(work.run)
                for model in models:
                    await anyio.to_thread.run_sync(model.begun.wait)
                if is_cancelled:
                    group.cancel_scope.cancel()
                else:
                    work.stop()

        with ends:
            run_blocking(ended)
        assert directory.steps_done("nli-a-b") == 0
