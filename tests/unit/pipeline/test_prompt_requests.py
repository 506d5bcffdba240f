"""Several texts a request, several samples a text: whose answer is whose, what a bad one costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from claimscore.cache.base import MemoryCache
from claimscore.cli import main
from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import TaskResult, run_task
from claimscore.pipeline.plan import make_plan
from claimscore.types import Completion, Request

SENTENCES = [f"Thing {n} is good." for n in range(10)]
RECORDS = pl.DataFrame(
    {"id": ["r1", "r2"], "summary_a": [" ".join(SENTENCES), "One is bad."], "summary_b": ["", ""]}
)

Answer = Callable[[list[str], Request], Any]


class Provider:
    """Answers a list of numbered texts by a function of them; remembers the requests."""

    family = "fake"
    namespace = "fake"
    model = "m"

    def __init__(self, answer: Answer) -> None:
        self.asked: list[Request] = []
        self._answer = answer

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        lines = request.messages[-1].content.split("\n")
        texts = [line.partition(". ")[2] for line in lines]
        answer = self._answer(texts, request)
        text = answer if isinstance(answer, str) else json.dumps({"answers": answer})
        return Completion(text, model="m")

    async def aclose(self) -> None:
        """Nothing is open."""


def claims(texts: list[str]) -> list[dict[str, Any]]:
    return [{"text": n, "claims": [text]} for n, text in enumerate(texts, start=1)]


def decompose(
    answer: Answer, engines: list[Engine] | None = None, **config: Any
) -> tuple[TaskResult, Provider]:
    given = {"prompts": {"decompose": "v2"}, "tasks": ("decompose",), "metrics": (), **config}
    plan = make_plan(RunConfig(input="x", out=Path("unused"), **given), RECORDS.columns)
    (planned,) = plan.tasks
    provider, results = Provider(answer), []

    async def work() -> None:
        async with Engine(provider, MemoryCache()) as engine:
            if engines is not None:
                engines.append(engine)
            results.append(await run_task(planned, RECORDS, {}, engine, "sentence"))

    anyio.run(work)
    return results[0], provider


def test_eight_sentences_of_one_text_make_a_request() -> None:
    """Ten make two; those of another record are not mixed in; rows are as of one at a time."""
    result, provider = decompose(lambda texts, _: claims(texts))
    assert sorted(len(r.messages[-1].content.split("\n")) for r in provider.asked) == [1, 2, 8]
    rows = result.rows.select("id", "side", "sentence_index", "claim_index", "text", "sentence")
    assert rows.rows() == [
        *(("r1", "a", n, 0, text, text) for n, text in enumerate(SENTENCES)),
        ("r2", "a", 0, 0, "One is bad.", "One is bad."),
    ]
    keys = result.rows["request_key"].to_list()
    assert len(set(keys)) == 3
    assert len(set(keys[:8])) == 1
    assert result.rows["prompt_version"].unique().to_list() == ["v2"]
    assert result.failures.is_empty()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda items: items[:2] + items[3:], id="left out"),
        pytest.param(lambda items: [*items[:2], {"text": 3}, *items[3:]], id="misshapen"),
        pytest.param(
            lambda items: [*items[:2], {"text": 3, "claims": [" "]}, *items[3:]], id="empty claim"
        ),
    ],
)
def test_a_sentence_answered_badly_is_asked_about_alone(spoil: Callable[[Any], Any]) -> None:
    """The other seven keep their answer: one request more, and no row differs."""
    whole, _ = decompose(lambda texts, _: claims(texts))
    result, provider = decompose(
        lambda texts, _: spoil(claims(texts)) if len(texts) == 8 else claims(texts)
    )
    assert len(provider.asked) == 4
    assert provider.asked[-1].messages[-1].content == "1. Thing 2 is good."
    drop = ("request_key",)
    assert result.rows.drop(drop).equals(whole.rows.drop(drop))


@pytest.mark.parametrize(
    ("answer", "n_tries"),
    [
        pytest.param(lambda texts: "no", 3, id="no JSON"),
        pytest.param(lambda texts: [], 3, id="nothing"),
        pytest.param(lambda texts: claims(texts)[:7] + claims(texts)[:1], 3, id="one twice"),
        pytest.param(
            lambda texts: [{**item, "text": item["text"] - 1} for item in claims(texts)],
            1,
            id="counted from 0",
        ),
        pytest.param(
            lambda texts: [{"text": 0}, *({**i, "text": i["text"] - 1} for i in claims(texts)[1:])],
            1,
            id="counted from 0, and that one wrong",
        ),
        pytest.param(
            lambda texts: [*claims(texts), {"text": 9, "claims": []}], 1, id="one too many"
        ),
    ],
)
def test_an_answer_that_may_be_about_others_is_not_used(answer: Any, n_tries: int) -> None:
    """All eight are asked about alone; no claim lands under another sentence, none is lost."""
    whole, _ = decompose(lambda texts, _: claims(texts))
    engines: list[Engine] = []
    result, provider = decompose(
        lambda texts, _: answer(texts) if len(texts) == 8 else claims(texts), engines
    )
    assert len(provider.asked) == 2 + n_tries + 8
    assert result.rows.drop("request_key").equals(whole.rows.drop("request_key"))
    assert engines[0].stats.failed == 0, "a failure that costs no row is not counted"


def test_a_sentence_that_fails_alone_too_is_one_failure() -> None:
    """With its place, its reason and its last answer; the others are there."""

    def answer(texts: list[str], _: Request) -> Any:
        return [item for item in claims(texts) if "Thing 2 " not in item["claims"][0]] or "no"

    result, _ = decompose(answer)
    assert result.rows.height == 10
    failures = result.failures.select("id", "stage", "side", "index", "kind", "attempts", "raw")
    assert failures.rows() == [("r1", "decompose", "a", 2, "parse", 3, "no")]


def samples_prompt(tmp_path: Path, task: str, n: int) -> Path:
    path = tmp_path / f"{task}.toml"
    settings = f"[settings]\nsamples = {n}\ntemperature = 0.7\n"
    path.write_text(f'name = "{task}"\ninherits = "v1"\nversion = "s"\n{settings}')
    return path


def paraphrase(
    answer: Callable[[Request], str], path: Path, cache: MemoryCache | None = None
) -> tuple[TaskResult, list[Request]]:
    config = RunConfig(
        input="x",
        out=Path("unused"),
        metrics=(),
        tasks=("paraphrase",),
        prompts={"paraphrase": str(path)},
    )
    records = RECORDS.filter(id="r2")
    (planned,) = make_plan(config, records.columns).tasks
    provider = Provider(lambda _, request: json.dumps({"paraphrase": answer(request)}))
    results = []

    async def work() -> None:
        async with Engine(provider, cache or MemoryCache()) as engine:
            results.append(await run_task(planned, records, {}, engine, "sentence"))

    anyio.run(work)
    return results[0], provider.asked


def test_samples_are_rows_and_requests_of_their_own(tmp_path: Path) -> None:
    """Each by its index; more samples later buy only those that are new."""
    cache = MemoryCache()
    path = samples_prompt(tmp_path, "paraphrase", 3)
    result, asked = paraphrase(lambda r: f"words {r.sample_index}", path, cache)
    assert sorted(request.sample_index for request in asked) == [0, 1, 2]
    rows = result.rows.select("sentence_index", "sample", "text").rows()
    assert rows == [(0, n, f"words {n}") for n in range(3)]
    assert result.rows["request_key"].n_unique() == 3
    more = samples_prompt(tmp_path, "paraphrase", 5)
    result, asked = paraphrase(lambda r: f"words {r.sample_index}", more, cache)
    assert sorted(request.sample_index for request in asked) == [3, 4]
    assert result.rows["sample"].to_list() == [0, 1, 2, 3, 4]


def test_a_refused_sample_never_becomes_another(tmp_path: Path) -> None:
    """It is asked for again beyond those that are wanted, so no answer stands there twice."""
    path = samples_prompt(tmp_path, "paraphrase", 3)
    result, asked = paraphrase(
        lambda r: "" if r.sample_index == 1 else f"words {r.sample_index}", path
    )
    assert sorted(request.sample_index for request in asked) == [0, 1, 2, 4]
    assert result.rows["text"].to_list() == ["words 0", "words 4", "words 2"]
    result, asked = paraphrase(lambda r: "" if r.sample_index % 3 == 1 else "words", path)
    assert sorted(request.sample_index for request in asked) == [0, 1, 2, 4, 7]
    assert result.rows["sample"].to_list() == [0, 2]
    (failure,) = result.failures.to_dicts()
    assert (failure["index"], failure["attempts"]) == (0, 3)
    assert failure["message"].startswith("sample 1: ")


@pytest.mark.parametrize("task", ["decompose", "facts"])
def test_a_task_whose_rows_metrics_read_has_one_sample(tmp_path: Path, task: str) -> None:
    """Claims of three samples in one table would be three times the claims."""
    path = samples_prompt(tmp_path, task, 3)
    config = RunConfig(
        input="x", out=tmp_path, metrics=(), tasks=(task,), prompts={task: str(path)}
    )
    with pytest.raises(ConfigError, match="several samples may have paraphrase, negate, judge"):
        make_plan(config, RECORDS.columns)


@pytest.mark.parametrize("task", ["facts"])
def test_a_task_about_whole_texts_takes_one_at_a_time(tmp_path: Path, task: str) -> None:
    """A review is a text of its own."""
    path = tmp_path / "mine.toml"
    path.write_text(
        f'name = "{task}"\ninherits = "v1"\nuser = "$texts"\n[settings]\ntexts_per_request = 4\n'
    )
    config = RunConfig(
        input="x", out=tmp_path, metrics=(), tasks=(task,), prompts={task: str(path)}
    )
    with pytest.raises(ConfigError, match=r"\$texts: facts asks about one text at a time"):
        make_plan(config, RECORDS.columns)


def test_the_rules_have_no_other_model(tmp_path: Path) -> None:
    """Nor have batches: a file of them goes to one model."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "decompose"\ninherits = "v1"\n[settings]\nmodel = "large"\n')
    config = RunConfig(
        input="x", out=tmp_path, metrics=(), tasks=("decompose",), prompts={"decompose": str(path)}
    )
    with pytest.raises(ConfigError, match="names the model large, which --llm builtin cannot ask"):
        make_plan(config, RECORDS.columns)


def test_samples_of_negations_are_joined_one_by_one(tmp_path: Path) -> None:
    """A sentence of two claims with three samples has three joined negations."""
    records = tmp_path / "in.jsonl"
    records.write_text(json.dumps({"summary_a": "It is warm and big. It is old."}))
    path = samples_prompt(tmp_path, "negate", 3)
    call = ("run", str(records), "--out", str(tmp_path / "a"), "--metrics", "", "--quiet")
    assert main([*call, "--tasks", "negate", "--prompt", f"negate={path}"]) == 0
    rows = pl.read_parquet(tmp_path / "a" / "negations" / "*.parquet")
    joined = rows.filter(level="sentence").select("sentence_index", "sample").rows()
    assert joined == [(sentence, sample) for sentence in (0, 1) for sample in range(3)]
    assert rows.filter(level="claim").height == 9
    assert rows.filter(level="sentence")["text"].n_unique() == 2
