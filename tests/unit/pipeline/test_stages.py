"""Which steps of which chunks are missing, the order in which chunks are asked about, and pace."""

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from claimscore.config import RunConfig
from claimscore.pipeline.encoders import Worker
from claimscore.pipeline.model_stage import LocalModelWorker, ModelPool
from claimscore.pipeline.plan import find_todo, with_chunk_size
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.stages import Stages
from claimscore.pipeline.supervision import run_blocking
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIMS, FAILURES, NLI
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, make
from tests.support.pass_doubles import FakeModel
from tests.support.plans import plan_of

#: Of CASPR, and of the check whether its claims are entailed.
MODEL_STEPS = ["nli-a-b", "claim_entailment-a", "claim_entailment-b"]

N_CHUNKS = 3


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    """Chunks of one record each."""
    texts = {"summary_a": ["It is warm. It is big."], "summary_b": ["It is old."]}
    with RunDirectory(tmp_path / "run") as opened:
        for chunk in range(N_CHUNKS):
            frame = pl.DataFrame({"id": [f"r{chunk}"], **texts})
            opened.write_parts(chunk, "records", {"records": frame})
        yield opened


def config(directory: RunDirectory, **settings: Any) -> RunConfig:
    fixed = {"metrics": ("caspr",), "prompts": {"decompose": "v1"}}
    return RunConfig("x.jsonl", directory.path, **{**fixed, **settings})


def todo(directory: RunDirectory, retry_failed: bool = False) -> list[tuple[int, list[str]]]:
    """The missing steps by chunk."""
    plan = plan_of(config(directory), ["id", "summary_a", "summary_b"])
    return [
        (item.chunk, [planned.step for planned in (*item.tasks, *item.passes)])
        for item in find_todo(plan, directory, N_CHUNKS, retry_failed)
    ]


def finish(directory: RunDirectory, chunk: int, *failures: dict[str, str]) -> None:
    tables = {"claims": CLAIMS.empty(), "failures": FAILURES.frame(list(failures))}
    directory.write_parts(chunk, "decompose-a-b", tables)
    for step in MODEL_STEPS:
        directory.write_parts(chunk, step, {"nli": NLI.empty()})


@pytest.mark.parametrize(("n_records", "size"), [(1, 64), (262_144, 64), (10**6, 245)])
def test_a_long_run_has_larger_chunks(n_records: int, size: int) -> None:
    """A step writes a file a chunk: not 15,625 of them for a million records."""
    assert (
        with_chunk_size(RunConfig("x.jsonl", Path("run"), ("ds",)), n_records).chunk_records == size
    )


def test_what_is_finished_is_not_done_again(directory: RunDirectory) -> None:
    """A metric that is added later pays for the side that it adds alone."""
    finish(directory, 1)
    tables = {"claims": CLAIMS.empty(), "failures": FAILURES.empty()}
    directory.write_parts(0, "decompose-a", tables)
    assert todo(directory) == [
        (0, ["decompose-b", *MODEL_STEPS]),
        (2, ["decompose-a-b", *MODEL_STEPS]),
    ]


def test_retry_failed_redoes_the_step_and_what_was_made_from_it(directory: RunDirectory) -> None:
    """Forgotten before anything is done, so a kill in between cannot leave old NLI rows."""
    finish(directory, 0)
    finish(directory, 1, {"id": "r1", "stage": "decompose", "side": "a", "kind": "parse"})
    finish(directory, 2)
    assert todo(directory) == []
    assert todo(directory, retry_failed=True) == [(1, ["decompose-a-b", *MODEL_STEPS])]
    assert not directory.manifest.steps(1).intersection(MODEL_STEPS)


async def answer(request: Request) -> Completion:
    await anyio.sleep(0.001)
    text = request.messages[-1].content
    return Completion(json.dumps({"claims": [text]}), model="m")


def chunks_asked(
    out: Path,
    n_chunks: int,
    n_rows: int,
    model: FakeModel,
    answer: Callable[[Request], Awaitable[Completion]] = answer,
) -> list[int]:
    """The chunk of each request that was sent, in order; every chunk is done in the end."""

    async def work() -> None:
        async with make(provider, max_concurrency=4) as engine:
            progress = Progress()
            worker = LocalModelWorker(Worker({"nli": model}), directory, progress)
            pool = ModelPool([worker])
            await Stages(plan, directory, left, engine, pool, progress).run()

    provider = FakeProvider(answer)
    with RunDirectory(out) as directory:
        directory.check_settings({"seed": 0})
        for n in range(n_chunks):
            texts = [f"Room {i} of chunk {n} is warm." for i in range(n_rows)]
            ids = [f"{n}-{i}" for i in range(n_rows)]
            frame = pl.DataFrame({"id": ids, "summary_a": texts, "summary_b": texts})
            directory.write_parts(n, "records", {"records": frame})
        plan = plan_of(config(directory), frame.columns)
        left = find_todo(plan, directory, n_chunks, retry_failed=False)
        run_blocking(work)
        assert directory.manifest.counts()["claims"] == 2 * n_chunks * n_rows
        assert not find_todo(plan, directory, n_chunks, retry_failed=False)
    texts = [request.messages[-1].content for request in provider.asked]
    return [int(text.partition("chunk ")[2].partition(" ")[0]) for text in texts]


def test_a_chunk_has_its_answers_before_the_next_one_has_its_share(tmp_path: Path) -> None:
    """Chunks that are open together would be done together, and the models would wait: the next
    one is opened when the engine runs short, so each ends a chunk's time after the one before."""
    n_chunks, n_rows = 5, 20
    asked = chunks_asked(tmp_path / "run", n_chunks, n_rows, FakeModel())
    assert sorted(asked) == [chunk for chunk in range(n_chunks) for _ in range(n_rows)]
    for chunk in range(n_chunks - 1):
        last = max(place for place, of in enumerate(asked) if of == chunk)
        assert last < (chunk + 1) * n_rows + 2 * 4


def test_a_slow_model_holds_no_request_up(tmp_path: Path) -> None:
    """Among many chunks whose answers are stored the last may lack some: it waits for no model."""
    n_chunks, all_are_asked = 40, threading.Event()

    class Slow(FakeModel):
        def classify(self, *args: Any, **options: Any) -> Any:
            assert all_are_asked.wait(20), "the last request waits for the models"
            return super().classify(*args, **options)

    async def last_is_heard(request: Request) -> Completion:
        if f"chunk {n_chunks - 1} " in request.messages[-1].content:
            all_are_asked.set()
        return await answer(request)

    asked = chunks_asked(tmp_path / "run", n_chunks, 1, Slow(), last_is_heard)
    assert sorted(asked) == list(range(n_chunks))
