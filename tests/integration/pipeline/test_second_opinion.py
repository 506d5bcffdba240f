"""Several verifiers in a run, a second opinion on what is unsure, and several samples."""

import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from claimscore.errors import RejectedError
from claimscore.types import Completion, TokenLogprob, Usage
from tests.fake_server import Body, FakeServer
from tests.support.children import killed_at_last
from tests.support.command_line import Command
from tests.support.report_pages import Page
from tests.support.tiny_models import Folders

COPY, WARM, COLD = "The room is clean.", "The pool is warm.", "The pool is icy cold."
SOURCE = f"{COPY} Guests say that the pool is cold. The bar is big."
RECORDS = [{"id": str(n), "summary": f"{COPY} {WARM} {COLD}", "source": SOURCE} for n in range(3)]
#: The probability of support that the server gives.
GIVEN = {WARM: 0.2, COLD: 0.9}


async def verdict(body: Body) -> Completion:
    """By the claim; at a temperature it is surer of each later sample."""
    claim = body["messages"][1]["content"].split("Claim: ")[1]
    p = GIVEN[claim.rpartition(") ")[2]]
    said = "supported" if p > 0.5 else "unmentioned"
    evidence = "the pool is cold" if p > 0.5 else ""
    text = json.dumps({"verdict": said, "evidence": evidence})
    head = text.index(said)
    top = (("supported", math.log(p)), ("unmentioned", math.log(1 - p)))
    tokens = (text[:head], said, text[head + len(said) :])
    logprobs = tuple(TokenLogprob(t, -0.1, top if t == said else ()) for t in tokens)
    return Completion(text, "m", "stop", Usage(100, 10, 0), None, logprobs)


def call_of(tmp_path: Path, server: FakeServer, verifier: str, *options: object) -> tuple[Any, ...]:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    llm = ("--llm", "verify=openai:m@" + server.base_url, "--verifier", verifier)
    call = ("run", path, "--out", tmp_path / "run", "--units", "sentences", *llm)
    return *call, "--metrics", "faithfulness", "--device", "cpu", "--offline", *options


def table(out: Path, name: str = "support") -> pl.DataFrame:
    rows = pl.read_parquet(sorted((out / name).glob("*.parquet")))
    return rows.sort("id", "claim_position")


@pytest.mark.parametrize("verifier", ["nli,llm", "llm,nli"])
def test_a_model_and_a_language_model_vote(
    tmp_path: Path, tiny: Folders, cli: Command, verifier: str
) -> None:
    nli, out = tiny("bert", "nli"), tmp_path / "run"
    with FakeServer(answer=verdict) as server:
        call = call_of(tmp_path, server, verifier, "--nli", nli)
        counted = cli("estimate", *call[1:2], *call[4:], "--json").json()
        summary = cli(*call, "--json").json()
        n_sent = len(server.bodies)
        assert cli(*call, "--json").json()["last_call"]["requests"] == 0
        text = " ".join(cli(*call).out.split())
        assert len(server.bodies) == n_sent
        cli("report", out)
    assert counted["tasks"][0]["requests"] == n_sent == 2  # the records are alike
    rows, alone = table(out), table(out, "opinions")
    assert alone["verifier"].to_list() == ["llm"] * 9
    (copied, warm, cold) = rows.head(3).to_dicts()
    assert (copied["votes"], copied["uncertainty"], copied["verbatim"]) == (None, 0, True)
    for row, said in ((warm, 0.2), (cold, 0.9)):
        by_name = {vote["verifier"]: vote["probability"] for vote in row["votes"]}
        names = {"nli": str(nli), "llm": "m"}
        assert list(by_name) == [names[name] for name in verifier.split(",")]
        assert by_name["m"] == pytest.approx(said)
        assert row["probability"] == pytest.approx(sum(by_name.values()) / 2)
        assert row["uncertainty"] == pytest.approx(1 - abs(2 * row["probability"] - 1))
        assert row["request_key"] is not None
    assert f"{summary['metrics']['faithfulness']['unsure']} of 9 are unsure" in text
    page = Page((out / "report.html").read_text(encoding="utf-8"))
    (shown,) = page.details()[0]["support"]
    assert [len(row[5].split(",")) for row in shown["rows"]] == [1, 2, 2]
    assert all("user" in call for record in page.details() for call in record["calls"])
    signature = summary["metrics"]["faithfulness"]["signature"]
    assert f"|verifier:{nli}@" in signature
    assert "+verify=v1@" in signature
    other = call_of(tmp_path, server, "nli,llm" if verifier == "llm,nli" else "llm,nli")
    refused = cli(*other, "--nli", nli)
    assert (refused.status, "--verifier: was" in refused.err) == (2, True)


def test_a_second_opinion_is_asked_for_after_the_models(
    tmp_path: Path, tiny: Folders, cli: Command
) -> None:
    """About unsure claims only. A run that was stopped in between goes on and pays nothing twice;
    what `--verifier llm` paid for is there."""
    nli, out = tiny("bert", "nli"), tmp_path / "run"
    with FakeServer(answer=verdict) as server:
        options = ("--nli", nli, "--second-opinion", "unsure")
        call = call_of(tmp_path, server, "nli,llm", *options)
        counted = cli("estimate", *call[1:2], *call[4:], "--json").json()
        stopped = cli(*call, "--max-requests", "1")
        assert (stopped.status, len(server.bodies)) == (75, 1)
        first = table(out, "opinions")
        assert first["votes"].to_list() == [None] * 9
        state = cli("status", out, "--json").json()
        assert (state["llm_chunks_left"], state["model_chunks_left"]) == (3, 0)
        summary = cli(*call, "--max-requests", "9", "--json").json()
        n_sent = len(server.bodies)
        cli("report", out)
    assert counted["tasks"][0]["requests"] == 2
    assert (
        "llm: at most; it is asked about those claims that nli is unsure of"
        in (counted["assumptions"])
    )
    rows = table(out)
    is_unsure = (first["uncertainty"] >= 0.5).to_list()
    assert [votes is not None for votes in rows["votes"].to_list()] == is_unsure
    assert 0 < sum(is_unsure) < len(is_unsure)
    sure = rows.filter(pl.col("votes").is_null())
    assert sure.select("probability", "verdict", "model").equals(
        first.filter(uncertainty=0).select("probability", "verdict", "model")
    )
    assert n_sent == 2
    assert summary["spent"]["requests"] == 2
    assert "second_opinion=unsure of nli" in summary["metrics"]["faithfulness"]["signature"]
    refused = cli(*call_of(tmp_path, server, "nli,llm", "--nli", nli))
    assert (refused.status, "--second-opinion: was" in refused.err) == (2, True)


@pytest.mark.parametrize("n_answered", [0, 129])
def test_kill_9_between_the_parts_of_a_run(
    tmp_path: Path, tiny: Folders, cli: Command, n_answered: int
) -> None:
    """When the models are done, and the first question is on its way or one of the second chunk.
    The same command asks no model again and pays for no answer twice; tables and scores are those
    of a run that nobody killed."""
    held, killed = threading.Event(), threading.Event()

    async def answer(body: Body) -> Completion:
        if server.n_requests > n_answered:
            held.set()
        while held.is_set() and not killed.is_set():
            await anyio.sleep(0.002)
        return await verdict(body)

    with FakeServer(answer=answer) as server:
        options = ("--nli", tiny("bert", "nli"), "--second-opinion", "unsure")
        options = (*options, "--dtype", "float32", "--max-concurrency", "verify=1")
        call = call_of(tmp_path, server, "nli,llm", *options)
        records = [
            {"id": f"{n}", "summary": f"{COPY} ({n}) {WARM} ({n}) {COLD}", "source": SOURCE}
            for n in range(66)
        ]
        (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        command = [sys.executable, "-m", "claimscore", *map(str, call)]
        with killed_at_last(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as process:
            assert held.wait(timeout=60)
            process.kill()
            assert process.wait(timeout=60) == -signal.SIGKILL
            killed.set()
        assert table(tmp_path / "run", "opinions").height == 3 * 66
        again = cli(*call, "--json").json()
        n_sent, n_asked = server.n_requests, len(server.contents)
        whole = [*map(str, call)]
        whole[whole.index(str(tmp_path / "run"))] = str(tmp_path / "whole")
        assert cli(*whole, "--cache-dir", tmp_path / "new").status == 0
    assert n_asked == 2 * 66
    assert n_sent <= n_asked + 1, "but for what was on its way"
    assert (again["last_call"]["nli_pairs"], again["records"]["done"]) == (0, 66)
    for name in ("opinions", "support"):
        assert table(tmp_path / "run", name).equals(table(tmp_path / "whole", name))
    scores = [(tmp_path / out / "scores.parquet").read_bytes() for out in ("run", "whole")]
    assert scores[0] == scores[1]


def test_a_second_opinion_that_failed_is_asked_for_again(
    tmp_path: Path, tiny: Folders, cli: Command
) -> None:
    """Its record has no score meanwhile; what the model said stays."""
    is_down = True

    async def answer(body: Body) -> Completion:
        if is_down and body["messages"][1]["content"].endswith(COLD):
            raise RejectedError("not this one", kind="content_filter")
        return await verdict(body)

    with FakeServer(answer=answer) as server:
        options = ("--nli", tiny("bert", "nli"), "--second-opinion", "unsure", "--json")
        call = call_of(tmp_path, server, "nli,llm", *options)
        failed = cli(*call)
        is_down, n_sent = False, len(server.bodies)
        again = cli(*call, "--retry-failed")
        assert [b["messages"][1]["content"][-len(COLD) :] for b in server.bodies[n_sent:]] == [COLD]
    assert (failed.status, failed.json()["records"]["failed"]) == (3, 3)
    assert {row["stage"] for row in failed.json()["failures"]} == {"verify"}
    assert (again.status, again.json()["last_call"]["nli_pairs"]) == (0, 0)
    assert table(tmp_path / "run").height == 9


def test_samples_of_a_language_model_vote(tmp_path: Path, cli: Command) -> None:
    """At a temperature, each in the cache by its number."""
    n_asked: dict[str, int] = {}

    async def without_logprobs(body: Body) -> Completion:
        claim = body["messages"][1]["content"].split("Claim: ")[1]
        n_asked[claim] = n_asked.get(claim, 0) + 1
        said = "supported" if claim == COLD or n_asked[claim] == 1 else "unmentioned"
        evidence = "the pool is cold" if said == "supported" else ""
        text = json.dumps({"verdict": said, "evidence": evidence})
        return Completion(text, "m", "stop", Usage(100, 10, 0))

    with FakeServer(answer=without_logprobs) as server:
        call = call_of(
            tmp_path, server, "llm", "--verify-samples", "3", "--max-concurrency", "verify=1"
        )
        summary = cli(*call, "--json").json()
        assert {body["temperature"] for body in server.bodies} == {0.7}
        assert len(server.bodies) == 6
        cli(*call)
        assert len(server.bodies) == 6
        cli("report", tmp_path / "run")
    rows = table(tmp_path / "run").head(3)
    assert rows["probability"].to_list() == pytest.approx([1, 1 / 3, 1])
    assert rows["uncertainty"].to_list() == pytest.approx([0, 2 / 3, 0])
    assert rows["verdict"].to_list() == ["supported", "unmentioned", "supported"]
    assert [vote["verifier"] for vote in rows["votes"][1].to_list()] == [
        "sample 1",
        "sample 2",
        "sample 3",
    ]
    assert summary["metrics"]["faithfulness"]["unsure"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--second-opinion", "unsure"), "name two verifiers, as nli,llm"),
        (("--verify-samples", "3"), "--verify-samples is of --verifier llm"),
        (("--verifier", "nli,llm", "-m", "factcc"), "name one model of two labels"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, cli: Command, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(RECORDS[0]), encoding="utf-8")
    call = ("run", tmp_path / "in.jsonl", "--out", tmp_path / "run", "-m", "faithfulness")
    refused = cli(*call, *options)
    assert refused.status == 2
    assert message in " ".join(refused.err.split())
