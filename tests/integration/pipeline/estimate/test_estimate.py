"""What a run would cost, beside what it then does cost."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import claimscore.pipeline.estimate.stage as counting
from claimscore.cache.entry import Entry
from claimscore.cache.key import request_key
from claimscore.cache.store import DiskCache
from claimscore.cli import main
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.estimate import Estimate, estimate_requests, estimate_run
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.ratelimit.shared import (
    LIMITS_FILE,
    RememberedLimits,
    SharedLimits,
    shared_scope,
)
from claimscore.prompts import load_prompt
from claimscore.types import Completion, Message, OutputSchema, Request, Usage
from tests.fake_server import Body, FakeServer, builtin_answer

pytestmark = pytest.mark.usefixtures("rules_answer_once")

EXAMPLES = Path(__file__).parents[4] / "examples" / "hotels.jsonl"
ALL_TASKS = ("--metrics", "", "--tasks", "decompose,paraphrase,negate,facts")
PRICES = ("--input-price", "1.5", "--output-price", "6")

#: A server that nobody can reach.
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache, or knows a key."""
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "state"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def write_records(path: Path, n: int, offset: int = 0) -> Path:
    """Pairs of sentences that can be broken up, no two alike, and a source."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(offset, offset + n):
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


def claimscore_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """What the command says with `--json`."""
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def run_config(source: Path, **settings: Any) -> RunConfig:
    llm = LLMConfig(**{"model": "openai:m", "base_url": NOWHERE, **settings.pop("llm", {})})
    given = {"metrics": (), "tasks": ("decompose",), **settings}
    return RunConfig(input=str(source), out=Path("unused"), llm=llm, **given)


class TestAgainstTheBill:
    """The estimate beside what a run against a server then spends."""

    @pytest.mark.parametrize(
        "options",
        [
            pytest.param(ALL_TASKS, id="all tasks"),
            pytest.param((*ALL_TASKS, "--granularity", "summary"), id="whole summaries"),
            pytest.param(("--metrics", "ds", "--tasks", "decompose"), id="one task"),
        ],
    )
    @pytest.mark.parametrize("source", ["hotels", "synthetic"])
    def test_it_is_within_15_percent(
        self, options: tuple[str, ...], source: str, tmp_path: Path, capsys: Any
    ) -> None:
        """Requests, tokens and dollars; and afterwards there is nothing left to ask."""
        records = EXAMPLES if source == "hotels" else write_records(tmp_path / "in.jsonl", 30)
        with FakeServer() as server:
            call = (records, *options, "--llm", "openai:m", "--base-url", server.base_url, *PRICES)
            expected = claimscore_json(capsys, "estimate", *call)
            assert server.n_requests == 0, "nothing was sent"
            assert not list(tmp_path.glob("[cs]*")), "neither cache nor state was made"
            done = claimscore_json(capsys, "run", *call, "--out", tmp_path / "run")["last_call"]
            after = claimscore_json(capsys, "estimate", *call)
        total = expected["total"]
        guessed = any("not decomposed yet" in line for line in expected["assumptions"])
        assert guessed == ("negate" in options[3])
        assert total["requests"] == done["requests"] > 0
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            assert total[name] == pytest.approx(done[name], rel=0.15), name
            low, high = total[f"{name}_range"]
            assert low < done[name] < high
        assert done["usd"] <= total["usd_at_most"]
        assert after["total"]["requests"] == after["total"]["usd"] == 0
        assert after["total"]["answered"] == expected["total"]["questions"]

    def test_a_cache_that_has_a_part_teaches_the_rest(self, tmp_path: Path, capsys: Any) -> None:
        """Another tokenizer and longer answers than the rules' are learnt from what is stored."""

        async def wordy(body: Body) -> Completion:
            answer = await builtin_answer(body)
            n_characters = sum(len(message["content"]) for message in body["messages"])
            usage = Usage(round(n_characters / 2.5), len(answer.text))
            return dataclasses.replace(answer, usage=usage)

        half = write_records(tmp_path / "half.jsonl", 20)
        whole = write_records(tmp_path / "whole.jsonl", 40)
        with FakeServer(answer=wordy) as server:
            llm = (*ALL_TASKS, "--llm", "openai:m", "--base-url", server.base_url, *PRICES)
            first = claimscore_json(capsys, "run", half, *llm, "--out", tmp_path / "half")
            total = claimscore_json(capsys, "estimate", whole, *llm)["total"]
            done = claimscore_json(capsys, "run", whole, *llm, "--out", tmp_path / "whole")
        assert first["last_call"]["requests"] > 0
        assert total["requests"] == done["last_call"]["requests"]
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            assert total[name] == pytest.approx(done["last_call"][name], rel=0.05), name

    def test_refused_answers_are_asked_again_as_often_as_so_far(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        """And what was given up is left alone, as the run does, unless it is to be retried."""

        async def sometimes(body: Body) -> Completion:
            if sum(body["messages"][-1]["content"].encode()) % 3:
                return await builtin_answer(body)
            return Completion("I am a teapot", "m")

        part = write_records(tmp_path / "part.jsonl", 40)
        whole = write_records(tmp_path / "whole.jsonl", 100)
        with FakeServer(answer=sometimes) as server:
            llm = ("--metrics", "", "--tasks", "decompose", "--llm", "openai:m")
            llm = (*llm, "--base-url", server.base_url)
            assert main(["run", str(part), *llm, "--out", str(tmp_path / "part"), "--quiet"]) == 3
            total = claimscore_json(capsys, "estimate", whole, *llm)["total"]
            asked = server.n_requests
            assert main(["run", str(whole), *llm, "--out", str(tmp_path / "w"), "--quiet"]) == 3
            capsys.readouterr()
            assert total["requests"] == pytest.approx(server.n_requests - asked, rel=0.15)
            after = claimscore_json(capsys, "estimate", whole, *llm)["total"]
            again = claimscore_json(capsys, "estimate", whole, *llm, "--retry-failed")["total"]
        assert after["requests"] == 0
        assert after["given_up"] > 50
        assert after["given_up"] + after["answered"] == after["questions"]
        assert (again["given_up"], again["answered"]) == (0, after["answered"])
        assert again["requests"] >= after["given_up"]


class TestWhatIsThere:
    """What an existing run directory has counts as done."""

    def test_finished_steps_are_answered_without_a_cache(self, tmp_path: Path, capsys: Any) -> None:
        """The claims that others ask about are read from there; nothing in it is changed."""
        records, out = write_records(tmp_path / "in.jsonl", 20), tmp_path / "run"
        with FakeServer() as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, "--out", out)
            one = ("--metrics", "", "--tasks", "decompose", *llm)
            claimscore_json(capsys, "run", records, *one)
            everything = claimscore_json(capsys, "estimate", records, *ALL_TASKS, *llm)
            before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
            other = ("--cache-dir", tmp_path / "other")
            assert (
                claimscore_json(capsys, "estimate", records, *one, *other)["total"]["requests"] == 0
            )
            found = claimscore_json(capsys, "estimate", records, *ALL_TASKS, *llm, *other)
            assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
        counts = {task["task"]: task["requests"] for task in found["tasks"]}
        assert counts == {task["task"]: task["requests"] for task in everything["tasks"]}
        assert counts["decompose"] == 0 < counts["negate"]
        assert not any("not decomposed yet" in line for line in found["assumptions"])

    def test_a_run_of_other_records_is_refused(self, tmp_path: Path, capsys: Any) -> None:
        """As the run itself would be."""
        out = tmp_path / "run"
        options = ("--metrics", "", "--tasks", "decompose", "--out", str(out))
        for n, command in ((3, "run"), (4, "estimate")):
            records = write_records(tmp_path / f"{n}.jsonl", n)
            code = main([command, str(records), *options])
        assert code == 2
        assert "made from other records" in capsys.readouterr().err

    def test_failures_to_be_retried_are_not_done(self, tmp_path: Path, capsys: Any) -> None:
        """Without `--retry-failed` they are."""

        async def teapot(body: Body) -> Completion:
            return Completion("I am a teapot", "m")

        records, out = write_records(tmp_path / "in.jsonl", 3), tmp_path / "run"
        with FakeServer(answer=teapot) as server:
            call = ("--metrics", "", "--tasks", "decompose", "--llm", "openai:m", "--out", out)
            call = (*call, "--base-url", server.base_url)
            assert main(["run", str(records), *map(str, call), "--quiet"]) == 3
            capsys.readouterr()
            left = claimscore_json(capsys, "estimate", records, *call)["total"]
            again = claimscore_json(capsys, "estimate", records, *call, "--retry-failed")["total"]
        assert left["requests"] == left["questions"] == 0
        assert again["requests"] == again["questions"] == 12

    def test_a_folder_without_a_run_is_as_good_as_none(self, tmp_path: Path) -> None:
        """The run directory that will be made."""
        records = write_records(tmp_path / "in.jsonl", 2)
        found = estimate_run(run_config(records), out=tmp_path / "to-be")
        assert found.requests == 8
        assert not (tmp_path / "to-be").exists()


class TestUnknown:
    """What is not known is said, and is not zero."""

    def test_an_unknown_price(self, tmp_path: Path, capsys: Any) -> None:
        """Null in JSON; in words, with what to do."""
        call = ("estimate", EXAMPLES, *ALL_TASKS, "--llm", "openai:gpt-4o-mini")
        call = (*call, "--base-url", NOWHERE)
        found = claimscore_json(capsys, *call)
        assert found["price"] is None
        for part in (found["total"], *found["tasks"]):
            assert part["usd"] is part["usd_range"] is part["usd_at_most"] is None
        assert main([str(item) for item in call]) == 0
        said = capsys.readouterr().out
        assert "cost: unknown (name --input-price and --output-price)" in said
        assert "$" not in said

    def test_a_known_one_is_named_with_its_source(self, capsys: Any) -> None:
        """And the range, and the most."""
        assert main(["estimate", str(EXAMPLES), *ALL_TASKS, "--llm", "openai:gpt-4o-mini"]) == 0
        said = capsys.readouterr().out
        assert "$0.15 and $0.6 a million tokens, genai-prices" in said
        assert "assumed: decompose: answers as long as the built-in rules'" in said
        assert "total" in said

    def test_the_rules_cost_nothing(self, capsys: Any) -> None:
        """Nobody is asked."""
        assert main(["estimate", str(EXAMPLES)]) == 0
        assert "cost: nothing" in capsys.readouterr().out

    def test_nothing_missing_is_said(self, tmp_path: Path, capsys: Any) -> None:
        """In words too."""
        options = ("--metrics", "", "--tasks", "decompose")
        assert main(["run", str(EXAMPLES), *options, "--out", str(tmp_path), "--quiet"]) == 0
        assert main(["estimate", str(EXAMPLES), *options]) == 0
        assert "nothing is missing" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param(("--metrics", ""), id="nothing to do"),
            pytest.param(("--metrics", "summac-zs-none"), id="unknown metric"),
            pytest.param(("--llm", "openai"), id="no model"),
            pytest.param(("--prompt", "decompose=v99"), id="no such prompt"),
        ],
    )
    def test_what_a_run_would_refuse_is_refused(self, arguments: tuple[str, ...]) -> None:
        """With the same exit code."""
        assert main(["estimate", str(EXAMPLES), *arguments]) == 2

    def test_standard_input_is_read(self) -> None:
        """Into a temporary file, since it is read twice."""
        with EXAMPLES.open("rb") as stdin:
            assert estimate_run(run_config(Path("-")), stdin=stdin).requests == 48


class TestLargeInputs:
    """Only a part is counted, and that is said."""

    def test_a_sample_comes_near_the_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Requests and tokens are scaled up."""
        records = write_records(tmp_path / "in.jsonl", 200)
        config = run_config(records, tasks=("decompose", "negate", "facts"), chunk_records=10)
        exact = estimate_run(config)
        monkeypatch.setattr(counting, "COUNTED_RECORDS", 100)
        monkeypatch.setattr(counting, "RULED_RECORDS", 50)
        sampled = estimate_run(config)
        for whole, part in zip(exact.tasks, sampled.tasks, strict=True):
            assert part.requests == pytest.approx(whole.requests, rel=0.03), part.task
            assert part.questions == pytest.approx(whole.questions, rel=0.03)
            assert part.prompt_tokens.expected == pytest.approx(
                whole.prompt_tokens.expected, rel=0.05
            )
        said = "\n".join(sampled.assumptions)
        assert "decompose: counted on 100 of 200 records" in said
        assert "negate: counted on 50 of 200 records" in said
        assert "counted on" not in "\n".join(exact.assumptions)

    def test_lengths_are_taken_from_a_sample(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rules need not answer everything."""
        config = run_config(write_records(tmp_path / "in.jsonl", 100))
        exact = estimate_run(config)
        monkeypatch.setattr("claimscore.pipeline.estimate.lengths.SAMPLED", 40)
        sampled = estimate_run(config)
        assert sampled.requests == exact.requests
        assert sampled.completion_tokens.expected == pytest.approx(
            exact.completion_tokens.expected, rel=0.1
        )


class TestTime:
    """Hours at the limits; what is guessed is said."""

    @pytest.mark.parametrize(
        ("llm", "minutes", "said"),
        [
            ({"rpm": 6.0}, 8.0, "6 requests a minute (as given)"),
            ({"tpm": 10_000.0}, None, "10,000 tokens a minute (as given)"),
            ({"max_concurrency": 1}, None, "1 requests in flight"),
        ],
        ids=["requests", "tokens", "concurrency"],
    )
    def test_the_narrowest_limit_decides(
        self, llm: dict[str, Any], minutes: float | None, said: str
    ) -> None:
        """And is named."""
        found = estimate_run(run_config(EXAMPLES, llm=llm))
        assert found.requests == 48
        tokens = found.prompt_tokens.expected + found.completion_tokens.expected
        expected = minutes or (tokens / 10_000 if "tpm" in llm else None)
        if expected is not None:
            assert found.hours == pytest.approx(expected / 60)
        else:
            assert found.hours is not None
            assert found.hours > 48 / 3600
        assert said in found.assumptions[-1]

    def test_limits_that_were_learnt_are_remembered(self, tmp_path: Path) -> None:
        """Of this server and key."""
        shared = SharedLimits(tmp_path / "state" / LIMITS_FILE, shared_scope(NOWHERE, None))
        shared.remember(RememberedLimits(found_rps=0.05))
        found = estimate_run(run_config(EXAMPLES))
        shared.remember(RememberedLimits(rpm=6.0))
        assert "3 requests a minute (as last learnt)" in found.assumptions[-1]
        assert "6 requests a minute" in estimate_run(run_config(EXAMPLES)).assumptions[-1]
        assert (
            "in flight"
            in estimate_run(run_config(EXAMPLES, llm={"base_url": NOWHERE + "/x"})).assumptions[-1]
        )

    def test_what_several_servers_do_adds_up(self, tmp_path: Path) -> None:
        """Each at its own pace: one by the limit that it was found to have, the others by slots."""
        slow, *fast = (f"{NOWHERE}/{name}" for name in "abc")
        llm = {"base_url": (slow, *fast), "max_concurrency": 2}
        one = estimate_run(run_config(EXAMPLES, llm={**llm, "base_url": slow}))
        shared = SharedLimits(tmp_path / "state" / LIMITS_FILE, shared_scope(slow, None))
        shared.remember(RememberedLimits(rpm=6.0))
        found = estimate_run(run_config(EXAMPLES, llm=llm))
        assert one.hours is not None
        per_hour = 2 * one.requests / one.hours + 6 * 60
        assert found.hours == pytest.approx(found.requests / per_hour)
        assert "3 servers together: 1 x 6 requests a minute" in found.assumptions[-1]
        assert "2 x 2 requests in flight" in found.assumptions[-1]

    def test_nobody_knows_how_long_a_batch_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Except that a day is promised."""
        provider = load_provider(LLMConfig(model="openai:m", base_url=NOWHERE))
        monkeypatch.setattr(
            "claimscore.pipeline.estimate.stage.load_provider", lambda llm: provider
        )
        found = estimate_run(run_config(EXAMPLES, llm={"model": "openai-batch:m"}))
        assert found.hours is None
        assert "24 hours" in found.assumptions[-1]


class TestAnyRequests:
    """For a prompt and a table of one's own."""

    LLM = LLMConfig(model="openai:m", base_url=NOWHERE, input_price=1.0, output_price=2.0)

    def requests(self, n: int, **settings: Any) -> Iterator[Request]:
        provider = load_provider(self.LLM)
        for i in range(n):
            yield Request(
                provider.family,
                provider.namespace,
                provider.model,
                (Message("user", f"{i:>20} " * 4),),
                **{"max_tokens": 100, **settings},
            )

    def estimate(self, requests: Iterator[Request], **settings: Any) -> Estimate:
        given = {"name": "map", "llm": self.LLM, "provider": load_provider(self.LLM), **settings}
        return estimate_requests(requests, _text, **given)

    def keep(self, requests: Iterator[Request], answer: Completion) -> None:
        cache = DiskCache(Path(os.environ["CLAIMSCORE_CACHE_DIR"]))
        cache.put_many({request_key(request): Entry(answer) for request in requests})
        cache.close()

    def test_without_rules_or_answers_the_length_is_a_quarter_of_the_most(self) -> None:
        """Said so, with the whole range."""
        found = self.estimate(self.requests(1000))
        assert (found.records, found.requests) == (1000, 1000)
        assert found.prompt_tokens.expected == 1000 * 21
        assert found.completion_tokens == (1000, 25_000, 100_000)
        assert found.usd is not None
        assert found.usd.expected == pytest.approx(0.021 + 0.05)
        assert "a quarter of max_tokens" in "".join(found.assumptions)

    def test_equal_requests_are_asked_once(self) -> None:
        """As the engine does it, however far apart they are."""
        found = self.estimate(itertools.chain(self.requests(900), self.requests(900)))
        assert (found.records, found.requests) == (1800, 900)
        assert found.tasks[0].prompt_tokens.expected == 900 * 21

    def test_stored_answers_say_how_long_the_others_will_be(self) -> None:
        """And how many bytes a token has."""
        self.keep(self.requests(100), Completion("fine", "m", usage=Usage(42, 7)))
        found = self.estimate(self.requests(300))
        assert found.requests == 200
        assert found.prompt_tokens.expected == pytest.approx(200 * 42)
        assert found.completion_tokens.expected == 200 * 7

    def test_a_refused_answer_leads_to_the_next_sample(self) -> None:
        """As long as there are samples left, and final ones excepted."""
        for sample_index in range(3):
            self.keep(self.requests(2, sample_index=sample_index), Completion("bad", "m"))
            found = self.estimate(self.requests(2))
            assert found.requests == (2 if sample_index < 2 else 0)
        assert found.tasks[0].given_up == 2
        assert self.estimate(self.requests(2), retry_failed=True).requests == 2
        stopped = Completion("", "m", finish_reason="content_filter")
        self.keep(self.requests(1, temperature=1.0), stopped)
        assert self.estimate(self.requests(1, temperature=1.0)).tasks[0].given_up == 1

    def test_no_answer_is_expected_to_be_longer_than_it_may_be(self) -> None:
        """`max_tokens` cuts it off."""
        output = OutputSchema("decompose", load_prompt("decompose").schema.schema)  # type: ignore[union-attr]
        words = self.requests(5, output=output, max_tokens=3)
        assert self.estimate(words).completion_tokens == (
            pytest.approx(9),
            15,
            15,
        )

    def test_other_scripts_have_fewer_bytes_a_character_a_token(self) -> None:
        """Bytes are nearer to tokens than characters are."""
        (plain,) = self.requests(1)
        chinese = dataclasses.replace(plain, messages=(Message("user", "文" * 84),))
        assert self.estimate(iter([chinese])).prompt_tokens.expected == 63
        assert self.estimate(iter([plain])).prompt_tokens.expected == 21

    def test_nothing_is_nothing(self) -> None:
        """No requests, no cost, no time, no assumption."""
        found = self.estimate(iter([]))
        assert (found.requests, found.hours, found.assumptions) == (0, 0.0, ())
        assert found.usd == (0.0, 0.0, 0.0)

    def test_a_broken_record_of_a_map_is_the_callers(self) -> None:
        """What the generator raises is not swallowed."""

        def broken() -> Iterator[Request]:
            yield from self.requests(1)
            raise ConfigError("line 2")

        with pytest.raises(ConfigError, match="line 2"):
            self.estimate(broken())


def _text(completion: Completion) -> str:
    if completion.text == "bad":
        raise ParseError("bad")
    return completion.text
