"""One task over one chunk: provenance, and failures that cost their own row."""

from __future__ import annotations

import anyio
import polars as pl

from claimscore.cache.base import MemoryCache
from claimscore.config import RunConfig
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import TaskResult, run_task
from claimscore.pipeline.plan import make_plan
from claimscore.types import Completion, Request

RECORDS = pl.DataFrame(
    {"id": ["r1"], "summary_a": ["It is warm. It is big."], "summary_b": ["It is old."]}
)


class FakeProvider:
    """Repeats each sentence as its one claim; refuses to parse what is `big`."""

    family = "fake"
    namespace = "fake"
    model = "m"

    async def complete(self, request: Request) -> Completion:
        text = request.messages[-1].content
        answer = "no" if "big" in text else f'{{"claims": ["{text}"]}}'
        return Completion(answer, model="\ud800m")

    async def aclose(self) -> None:
        """Nothing is open."""


def decompose(tmp_path: object) -> TaskResult:
    config = RunConfig(input="x", out=tmp_path, metrics=("caspr",))  # type: ignore[arg-type]
    (planned,) = make_plan(config, RECORDS.columns).tasks
    results = []

    async def work() -> None:
        async with Engine(FakeProvider(), MemoryCache()) as engine:
            results.append(await run_task(planned, RECORDS, {}, engine, "sentence"))

    anyio.run(work)
    return results[0]


def test_rows_carry_what_made_them(tmp_path: object) -> None:
    """Prompt, version, digest, request, and the model's own name, even where it is no text."""
    rows = decompose(tmp_path).rows
    assert rows.select("side", "text").rows() == [("a", "It is warm."), ("b", "It is old.")]
    assert rows.select("prompt", "prompt_version", "model").unique().rows() == [
        ("decompose", "v1", "?m")
    ]
    assert rows["request_key"].str.len_chars().unique().to_list() == [64]


def test_one_bad_answer_is_one_failure_row(tmp_path: object) -> None:
    """Three samples, then a row that says where, why, and what the last answer was."""
    failures = decompose(tmp_path).failures
    assert failures.select("id", "stage", "side", "index", "kind", "attempts", "raw").rows() == [
        ("r1", "decompose", "a", 1, "parse", 3, "no")
    ]
