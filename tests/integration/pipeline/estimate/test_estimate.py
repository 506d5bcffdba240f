"""What a run would cost, beside what it then does cost."""

import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore.pipeline.estimate.stage as counting
from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.pipeline import model_stage
from claimscore.pipeline.estimate import estimate_run
from claimscore.pipeline.map.job import estimate_map
from claimscore.pipeline.map.settings import MapConfig
from claimscore.pipeline.run import run
from claimscore.prompts import Prompt
from claimscore.prompts.prompt import PromptSettings
from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer, plain_answer
from tests.support.command_line import Command
from tests.support.pass_doubles import FakeModel

EXAMPLES = Path(__file__).parents[4] / "examples" / "hotels.jsonl"
ALL_TASKS = ("--metrics", "", "--tasks", "decompose,paraphrase,negate,facts")
DECOMPOSE = ("--metrics", "", "--tasks", "decompose")
PRICES = ("--input-price", "1.5", "--output-price", "6")

#: A server that nobody can reach.
NOWHERE = "http://127.0.0.1:9/v1"


def write_records(path: Path, n: int) -> Path:
    """Pairs of sentences that can be broken up, no two alike, and a source."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(n):
            record = {
                "id": f"r{i}",
                "summary_a": f"Room {i} is clean and quiet, and the staff of floor {i} is kind. "
                f"The bar with {i} seats is open late but loud.",
                "summary_b": f"Bed {i} is hard but cheap. The pool of house {i}, which is old, "
                "is warm and large, and guests liked it.",
                "source": f"We had room {i} for {i} nights. The pool was warm. " * (1 + i % 3),
            }
            stream.write(json.dumps(record) + "\n")
    return path


class Calls:
    """`estimate` and `run` of records against a server, with the same options."""

    def __init__(self, cli: Command, server: FakeServer, *options: object) -> None:
        self._cli = cli
        self._options = (*options, "--llm", "openai:m", "--base-url", server.base_url)

    def estimate(self, records: Path, *more: object) -> Any:
        return self._cli("estimate", records, *self._options, *more, "--json").json()

    def run(self, records: Path, out: Path) -> Any:
        found = self._cli("run", records, *self._options, "--out", out, "--json")
        return found.json()["last_call"]


def run_config(source: Path, **settings: Any) -> RunConfig:
    llm = LLMConfig(**{"model": "openai:m", "base_url": NOWHERE, **settings.pop("llm", {})})
    given = {"metrics": (), "tasks": ("decompose",), **settings}
    return RunConfig(input=str(source), out=Path("unused"), llm=llm, **given)


class TestAgainstTheBill:
    """The estimate beside what a run against a server then spends."""

    @pytest.mark.parametrize(
        ("source", "options"),
        [
            pytest.param("hotels", ALL_TASKS, id="all tasks"),
            pytest.param("synthetic", (*ALL_TASKS, "--granularity", "summary"), id="summaries"),
            pytest.param("synthetic", ("--metrics", "ds", *DECOMPOSE[2:]), id="one task"),
        ],
    )
    def test_the_bill_is_near(
        self, options: tuple[str, ...], source: str, tmp_path: Path, cli: Command
    ) -> None:
        records = EXAMPLES if source == "hotels" else write_records(tmp_path / "in.jsonl", 30)
        cache = Path(os.environ["CLAIMSCORE_CACHE_DIR"])
        with FakeServer() as server:
            calls = Calls(cli, server, *options, *PRICES)
            expected = calls.estimate(records)
            assert server.n_requests == 0, "nothing was sent"
            assert not cache.exists(), "no cache was made"
            done = calls.run(records, tmp_path / "run")
            after = calls.estimate(records)
        total = expected["total"]
        guessed = any("not made yet" in line for line in expected["assumptions"])
        assert guessed == ("negate" in options[3])
        assert total["requests"] == pytest.approx(done["requests"], rel=0.3)
        for name, rel in (("prompt_tokens", 0.3), ("completion_tokens", 0.35), ("usd", 0.3)):
            assert total[name] == pytest.approx(done[name], rel=rel), name
        assert done["usd"] <= total["usd_at_most"]
        assert after["total"]["requests"] == after["total"]["usd"] == 0

    def test_a_cache_that_has_a_part_teaches_the_rest(self, tmp_path: Path, cli: Command) -> None:
        """Another tokenizer and longer answers are learnt from what is stored."""

        async def wordy(body: Body) -> Completion:
            answer = await plain_answer(body)
            n_characters = sum(len(message["content"]) for message in body["messages"])
            usage = Usage(round(n_characters / 2.5), len(answer.text))
            return dataclasses.replace(answer, usage=usage)

        whole = write_records(tmp_path / "whole.jsonl", 40)
        with FakeServer(answer=wordy) as server:
            calls = Calls(cli, server, *ALL_TASKS, *PRICES)
            calls.run(write_records(tmp_path / "half.jsonl", 20), tmp_path / "half")
            total = calls.estimate(whole)["total"]
            done = calls.run(whole, tmp_path / "whole")
        assert total["requests"] == pytest.approx(done["requests"], rel=0.3)
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            assert total[name] == pytest.approx(done[name], rel=0.05), name

    def test_what_was_given_up_is_left_alone(self, tmp_path: Path, cli: Command) -> None:
        """As the run does, unless it is to be retried."""

        async def sometimes(body: Body) -> Completion:
            if sum(body["messages"][-1]["content"].encode()) % 3:
                return await plain_answer(body)
            return Completion("I am a teapot", "m")

        whole = write_records(tmp_path / "whole.jsonl", 100)
        with FakeServer(answer=sometimes) as server:
            calls = Calls(cli, server, *DECOMPOSE)
            calls.run(whole, tmp_path / "w")
            after = calls.estimate(whole)["total"]
            again = calls.estimate(whole, "--retry-failed")["total"]
            there = calls.estimate(whole, "--out", tmp_path / "w")["total"]
            redone = calls.estimate(whole, "--out", tmp_path / "w", "--retry-failed")["total"]
        assert after["requests"] == 0
        assert after["given_up"] > 50
        assert after["given_up"] + after["answered"] == after["questions"]
        assert (again["given_up"], again["answered"]) == (0, after["answered"])
        assert again["requests"] >= after["given_up"]
        assert (there["requests"], there["questions"]) == (0, 0), "all is done in the folder"
        assert redone["requests"] == again["requests"]


def test_finished_steps_of_a_run_directory_count_as_answered(tmp_path: Path, cli: Command) -> None:
    """Without a cache; the claims that others ask about are read from there; nothing in it is
    changed. A run of other records is refused, as the run itself would be."""
    records, out = write_records(tmp_path / "in.jsonl", 20), tmp_path / "run"
    with FakeServer() as server:
        Calls(cli, server, *DECOMPOSE).run(records, out)
        calls = Calls(cli, server, *ALL_TASKS, "--out", out)
        everything = calls.estimate(records)
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        found = calls.estimate(records, "--cache-dir", tmp_path / "other")
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    counts = {task["task"]: task["requests"] for task in found["tasks"]}
    assert counts == {task["task"]: task["requests"] for task in everything["tasks"]}
    assert counts["decompose"] == 0 < counts["negate"]
    assert not any("not made yet" in line for line in found["assumptions"])
    refused = cli("estimate", write_records(tmp_path / "other.jsonl", 4), *DECOMPOSE, "--out", out)
    assert (refused.status, "made from other records" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            (*ALL_TASKS, "--llm", "openai:m", "--base-url", NOWHERE),
            ["cost: unknown (name --input-price and --output-price)"],
        ),
        (
            (*ALL_TASKS, "--llm", "openai:gpt-4o-mini"),
            [
                "$0.15 and $0.6 a million tokens, genai-prices",
                "assumed: decompose: 4 bytes a token, answers by the length of their texts",
            ],
        ),
        ((), ["cost: nothing"]),
    ],
    ids=["unknown", "known", "builtin"],
)
def test_the_cost(options: tuple[str, ...], said: list[str], cli: Command) -> None:
    """What is not known is said, and is not zero."""
    found = cli("estimate", EXAMPLES, *options)
    assert found.status == 0
    assert all(text in found.out for text in said)
    if "unknown" in said[0]:
        assert "$" not in found.out
        shown = cli("estimate", EXAMPLES, *options, "--json").json()
        assert shown["models"][0]["price"] is None
        for part in (shown["total"], *shown["tasks"]):
            assert part["usd"] is part["usd_at_most"] is None


def test_a_sample_comes_near_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and tokens are scaled up, and it is said."""
    records = write_records(tmp_path / "in.jsonl", 200)
    config = run_config(records, tasks=("decompose", "negate", "facts"), chunk_records=10)
    exact = estimate_run(config)
    monkeypatch.setattr(counting, "COUNTED_RECORDS", 100)
    sampled = estimate_run(config)
    for whole, part in zip(exact.tasks, sampled.tasks, strict=True):
        assert part.requests == pytest.approx(whole.requests, rel=0.03), part.task
        assert part.questions == pytest.approx(whole.questions, rel=0.03)
        assert part.prompt_tokens == pytest.approx(whole.prompt_tokens, rel=0.05)
        assert part.completion_tokens == pytest.approx(whole.completion_tokens, rel=0.1)
    said = "\n".join(sampled.assumptions)
    assert "counted on 100 of 200 records" in said
    assert "counted on" not in "\n".join(exact.assumptions)


def test_hours_at_the_limits() -> None:
    """The narrowest decides, and each server has it; where none is known, no number."""
    total = estimate_run(run_config(EXAMPLES)).total
    tokens = total.prompt_tokens + total.completion_tokens
    two = (f"{NOWHERE}/a", f"{NOWHERE}/b")
    for llm, hours, reason in (
        ({"rpm": 6.0, "tpm": 1e9}, 48 / 6 / 60, "6 requests a minute"),
        ({"rpm": 6000.0, "tpm": 1e4}, tokens / 1e4 / 60, "10,000 tokens a minute"),
        ({"rpm": 6.0, "base_url": two}, 48 / 12 / 60, "6 requests a minute of each of 2 servers"),
        ({}, None, "no limit of the server is known"),
    ):
        estimate = estimate_run(run_config(EXAMPLES, llm=llm))
        assert estimate.requests == 48
        assert estimate.hours == (None if hours is None else pytest.approx(hours))
        assert reason in estimate.assumptions[-1]


def test_without_rules_or_answers_the_length_is_a_quarter_of_the_most(tmp_path: Path) -> None:
    """Said so; equal requests are asked once, however far apart."""
    llm = LLMConfig(model="openai:m", base_url=NOWHERE, input_price=1.0, output_price=2.0)
    numbers = itertools.chain(range(1000), range(900))
    table = pl.DataFrame({"text": [f"{i:>20} " * 4 for i in numbers]})
    prompt = Prompt("map", "v1", "$text", settings=PromptSettings(max_tokens=100))
    estimate = estimate_map(MapConfig(table, prompt, tmp_path / "out.parquet", llm=llm))
    assert (estimate.records, estimate.requests) == (1900, 1000)
    assert (estimate.total.prompt_tokens, estimate.total.completion_tokens) == (21_000, 25_000)
    assert estimate.total.usd == pytest.approx(0.021 + 0.05)
    assert estimate.total.usd_at_most == pytest.approx(0.021 + 0.2)
    assert "a quarter of max_tokens" in "".join(estimate.assumptions)
    assert estimate.to_json()["passes"] == [], "a map has no models"


def test_items_are_what_models_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts for the embedder, pairs for the classifier; a blank text is none, and afterwards
    nothing is left."""
    models, n = {"embedder": FakeModel(), "nli": FakeModel()}, 5
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: models[role])
    records = [
        {
            "id": str(i),
            "sources": [
                f"Great pool, and {i} quiet rooms. The food is good.",
                "" if i == n - 1 else "The rooms were clean. The staff was rude.",
            ],
            "summary": f"The rooms were clean. The staff of {i} was nice.",
        }
        for i in range(n)
    ]
    metrics = ("bert-cosine:against=source", "summac-zs", "mnli-doc")
    config = RunConfig(records, tmp_path / "run", metrics, chunk_records=2)
    counts = {one.step: one.items for one in estimate_run(config).passes}
    run(config)
    asked = {role: sum(map(len, model.calls)) for role, model in models.items()}
    assert asked["embedder"] == counts["text_similarities-summary.text-source.text"] == 3 * n - 1
    blocks = [n_pairs for step, n_pairs in counts.items() if step.startswith("block_nli")]
    assert asked["nli"] == sum(blocks)
    assert blocks == [4 * 2 * (n - 1) + 2 * 2, 2 * (n - 1) + 1]
    after = estimate_run(config, out=tmp_path / "run")
    assert [one.items for one in after.passes] == [0, 0, 0]


def test_pace_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command) -> None:
    """By the last run of this pass, model and device; pairs of claims that are guessed are about
    what the model is then asked. A run that took stored results says nothing of the pace."""
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: FakeModel())
    monkeypatch.setattr("claimscore.pipeline.model_stage.LEAST_S", 0.0)
    config = RunConfig(str(EXAMPLES), tmp_path / "run", ("caspr",))
    before = estimate_run(config).passes[0]
    assert (before.per_second, before.is_about) == (None, True)
    done = run(config).summary["last_call"]["passes"]["nli-a-b"]
    after = estimate_run(config).passes[0]
    assert before.items == pytest.approx(done["items"], rel=0.3)
    assert after.per_second == pytest.approx(done["items"] / done["seconds"], rel=0.05)
    other = dataclasses.replace(config, encoders=EncoderConfig(device="cpu"))
    assert estimate_run(other).passes[0].per_second is None
    shown = cli("estimate", EXAMPLES, "--metrics", "caspr").out
    assert f"{after.per_second:,.0f}" in shown
    assert f"{after.items:,} pairs" in shown
