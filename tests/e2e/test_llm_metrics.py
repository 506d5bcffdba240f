"""Whole runs of the metrics whose scores come from the language model."""

import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.types import Completion
from tests.fake_server import Body, FakeServer
from tests.support.command_line import claimscore, table
from tests.support.language_model import judging_answer
from tests.support.prompt_files import prompt_file
from tests.support.rated_tables import write_jsonl


def write_records(path: Path, n: int = 6) -> Path:
    """Summaries that keep, change and invent words of their sources; the last has two sources."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"r{i}",
            "summary": f"Room{i} smells nice. Pool{i} looks {'clean' if i % 2 else 'dirty'}.",
            "source": f"Room{i} smells nice. Pool{i} looks clean. Bar{i} closes early.",
        }
        for i in range(n)
    ]
    rows[-1] |= {"source": rows[-1]["source"].split(". ", 1)}
    return write_jsonl(path, rows)


def options(server: FakeServer, *more: object) -> tuple[object, ...]:
    return ("--llm", "openai:m", "--base-url", server.base_url, "--quiet", *more)


def scores_of(out: Path, metric: str) -> dict[str, dict[str, Any]]:
    scores = pl.read_parquet(out / "scores.parquet").filter(metric=metric)
    return {
        row["id"]: {**row, **json.loads(row["components"])} for row in scores.iter_rows(named=True)
    }


def test_only_what_a_later_call_lacks_is_asked(tmp_path: Path) -> None:
    """Precision asks nothing about the source; recall is bought when it is wanted, without asking
    the rest again; other options ask nothing."""
    records, out = write_records(tmp_path / "in.jsonl"), tmp_path / "run"
    first = ("--metrics", "llm-judge,qa:value=precision")
    more = "llm-judge:dimension=fluency,llm-judge:expectation=off,qa:value=recall"
    with FakeServer(answer=judging_answer) as server:
        assert claimscore("run", records, "--out", out, *first, *options(server)) == 0
        assert set(table(out, "llm_answers").filter(task="questions")["side"]) == {"summary"}
        assert claimscore("score", out, "--metrics", "qa", *options(server)) == 0
        asked = server.n_requests
        assert claimscore("score", out, "--metrics", more, "--quiet") == 0
        assert server.n_requests == asked
        assert set(server.contents.values()) == {1}
    assert scores_of(out, "qa")["r1"]["recall"] == pytest.approx(2 / 3)
    both = scores_of(out, "llm-judge")["r0"]
    fluency = scores_of(out, "llm-judge:dimension=fluency")["r0"]
    assert fluency["value"] == both["fluency"]["value"]


def test_a_failed_answer_costs_its_own_record(tmp_path: Path) -> None:
    """And only the direction it belongs to; `--retry-failed` heals it."""
    records, out = write_records(tmp_path / "in.jsonl", 3), tmp_path / "run"
    broken = {"on": True}

    async def answer(body: Body) -> Completion:
        if broken["on"] and "Pool1 looks clean. Bar1" in _last(body) and "Q" in _last(body):
            return Completion('{"answerable": true, "answer": " "}', "m")
        return await judging_answer(body)

    with FakeServer(answer=answer) as server:
        both = ("--metrics", "qa,qa:value=recall")
        call = ("run", records, "--out", out, *both, *options(server))
        assert claimscore(*call) == 3
        found = scores_of(out, "qa")
        assert [found[f"r{i}"]["value"] is None for i in range(3)] == [False, True, False]
        assert found["r1"]["reason"] == "answers failed for summary: the answer is empty"
        assert scores_of(out, "qa:value=recall")["r1"]["value"] == pytest.approx(2 / 3)
        broken["on"] = False
        assert claimscore(*call, "--retry-failed") == 0
    assert scores_of(out, "qa")["r1"]["value"] is not None


def _last(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def test_parameters_and_headers_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENANT", "secret-of-tenant")
    records, out = write_records(tmp_path / "in.jsonl", 2), tmp_path / "run"
    extra = '[settings.extra]\nseed = 1\nstop = ["#"]\n'
    prompt = prompt_file(tmp_path / "judge.toml", "judge=v1", extra)
    with FakeServer(answer=judging_answer, keep=True) as server:
        plain = ("run", records, "--metrics", "llm-judge", *options(server))
        call = (*plain, "--out", out, "--prompt", f"judge={prompt}", "--verbose")
        headers = ("--header", "X-Tenant=TENANT")
        params = ("--llm-param", "seed=7", "--llm-param", 'user={"a": null}')
        assert claimscore(*call, *headers, *params) == 0
        assert {one["x-tenant"] for one in server.headers} == {"secret-of-tenant"}
        for body in server.bodies:
            assert (body["seed"], body["stop"], body["user"]) == (7, ["#"], {"a": None})
        n_asked = len(server.bodies)
        assert claimscore("score", out, "--metrics", "llm-judge", "--quiet") == 0
        assert claimscore(*call, *headers, *params) == 0  # all of it is stored
        assert claimscore(*call, *headers, *params[:2]) == 2
        shown = capsys.readouterr()
        assert "--llm-param of judge: was " in shown.err
        assert "secret-of-tenant" not in shown.err + shown.out
        assert len(server.bodies) == n_asked
        assert claimscore(*plain, "--out", tmp_path / "other") == 0  # other questions
        assert len(server.bodies) == 2 * n_asked
    settings = tomllib.loads((out / "run.toml").read_text())["additive"]["llm"]["judge"]
    assert json.loads(settings["params"]) == {"seed": 7, "user": {"a": None}}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if b"secret-of-tenant" in path.read_bytes()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--llm-param", "temperature=1"), "it is one of the prompt's [settings]"),
        (("--llm-param", 'a={"b": 1'), "this is no JSON"),
        (("--llm-param", "a=True"), "this is no JSON"),
        (("--header", "X-Key=sk-1234 5"), "write the name of an environment variable"),
        (("--header", "X-Key=abcdefgh1234"), "the environment variable named after = is not set"),
        (("--header", "Host=HOST"), "this header cannot be set"),
        (("--header", "X-Key: sk-1234"), "is not NAME=VARIABLE"),
        (("--header", "X-Key: sk-1234=="), "this header cannot be set"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ",
)
def test_parameters_and_headers_that_cannot_be_are_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = write_records(tmp_path / "in.jsonl", 1)
    call = ("run", records, "--out", tmp_path / "run", "--metrics", "llm-judge")
    assert claimscore(*call, "--llm", "openai:m", *arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "1234" not in said
