"""`--verifier llm`: a language model as verifier, on the fake server and with recorded answers."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import RejectedError
from claimscore.prompts import load_prompt
from claimscore.types import Completion, TokenLogprob, Usage
from tests.fake_server import Body, FakeServer
from tests.support.command_line import Command
from tests.support.report_pages import Page

CLEAN, BIG, WARM = "The room is clean.", "The room is big.", "The pool is warm."
SOURCE = f"They say: {CLEAN} Guests say that the pool is cold. They say: {BIG}"
RECORDS = [
    {"id": "one", "summary": f"{CLEAN} {WARM}", "source": SOURCE, "references": [BIG]},
    {"id": "two", "summary": f"{BIG} The bar is shut.", "source": SOURCE, "references": [WARM]},
]


async def verdict(body: Body) -> Completion:
    """What is in the source is supported, something about the pool contradicted. The evidence for
    what is big is made up at first; that about the pool too, and asked again it is no JSON."""
    asked_again = len(body["messages"]) > 2
    question = body["messages"][1]["content"].partition("Source:\n")[2]
    source, claim = question.split("\n\nClaim: ")
    said, evidence = ("supported", claim) if claim in source else ("unmentioned", "")
    if "pool" in claim and "pool" in source:
        said, evidence = "contradicted", "The pool is icy."
    if claim == BIG and not asked_again:
        evidence = "It is really big."
    text = json.dumps({"verdict": said, "evidence": evidence})
    if "pool" in claim and asked_again:
        return Completion("no", "m", "stop", Usage(100, 10, 80))
    head = text.index(said)
    top = ((said, math.log(0.6)), ("supported"[:4], math.log(0.2)))
    tokens = (text[:head], said, text[head + len(said) :])
    logprobs = tuple(TokenLogprob(t, -0.5, top if t == said else ()) for t in tokens)
    return Completion(text, "m", "stop", Usage(100, 10, 80 if asked_again else 0), None, logprobs)


def files(tmp_path: Path) -> Path:
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    return tmp_path / "in.jsonl"


def call_of(
    tmp_path: Path, server: FakeServer, *options: str, model: str = "openai:m"
) -> tuple[Any, ...]:
    """A run of all records whose claims are sentences, judged by the server."""
    llm = ("--llm", model, "--base-url", server.base_url, "--verifier", "llm")
    call = ("run", files(tmp_path), "--out", tmp_path / "run", "--units", "sentences", *llm)
    return *call, "--metrics", "faithfulness", *options


def support(out: Path) -> pl.DataFrame:
    return pl.read_parquet(sorted((out / "support").glob("*.parquet")))


def test_a_language_model_verifies_claims(tmp_path: Path, cli: Command) -> None:
    out = tmp_path / "run"
    call = ("run", files(tmp_path), "--out", out, "--verifier", "llm", "--units", "sentences")
    call = (*call, "--metrics", "faithfulness,faithfulness:score=mean,claim-recall")
    with FakeServer(answer=verdict) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "1")
        priced = (*llm, "--input-price", "1", "--output-price", "10")
        counted = cli("estimate", *call[1:2], *call[4:], *priced, "--json").json()
        assert [task["requests"] for task in counted["tasks"] if task["task"] == "verify"] == [6]
        said = " ".join(cli(*call, *priced).out.split())
        asked = [body["messages"] for body in server.bodies]
        summary = cli(*call, *priced, "--json").json()
        assert len(server.bodies) == len(asked), "the second call asks nothing"
        assert all(body["top_logprobs"] == 5 for body in server.bodies)
    rows = support(out).sort("id", "side", "claim_position", descending=[False, True, False])
    shown = rows.select("id", "side", "verdict", pl.col("probability").round(2), "evidence")
    assert [row[:3] + row[4:] for row in shown.rows()] == [
        ("one", "summary", "supported", CLEAN),
        ("one", "summary", "contradicted", None),
        ("one", "references", "unmentioned", None),
        ("two", "summary", "supported", BIG),
        ("two", "summary", "unmentioned", None),
        ("two", "references", "unmentioned", None),
    ]
    assert rows["probability"].to_list() == pytest.approx([1, 0.25, 0.25, 1, 0.25, 0.25])
    assert rows["evidence_index"].to_list() == [0, None, None, 2, None, None]
    shown = " ".join(cli("status", out, "--record", "one").out.split())
    unsure = f"claim of summary {WARM} contradicted (support 0.25), unsure claim of"
    assert unsure in shown
    sure = f"claim of summary {CLEAN} supported (support 1.00): {CLEAN}"
    assert shown.index(unsure) < shown.index(sure)
    refused = cli("status", out, "--record", "three")
    assert (refused.status, "no record 'three'" in refused.err) == (2, True)
    assert rows.select("verifier", "prompt", "prompt_version").unique().row(0) == (
        *("llm", "verify", "v1"),
    )
    means = {name: metric["mean"] for name, metric in summary["metrics"].items()}
    assert means == pytest.approx(
        {"faithfulness": 0.5, "faithfulness:score=mean": 0.625, "claim-recall": 0}
    )
    signature = summary["metrics"]["faithfulness"]["signature"]
    assert "|verifier:verify=v1@" in signature
    assert ",window_tokens=3000|" in signature
    # two of the six questions were asked again, after the words of the first answer; one of them
    # three times in vain, which leaves the first verdict
    again = [messages for messages in asked if len(messages) > 2]
    assert len(asked) == 6 + len(again) == 6 + 1 + 3
    assert summary["records"] == {"total": 2, "done": 2, "failed": 0}
    assert all("word for word" in messages[-1]["content"] for messages in again)
    assert summary["claim_checks"]["found"] == {"evidence_again": 2, "evidence_dropped": 1}
    assert "2 asked again for evidence, 1 with a verdict without evidence" in said
    assert "320 prompt tokens (32%) were in the server's own cache" in said
    assert summary["spent"]["cached_prompt_tokens"] == 320


async def one_word(body: Body) -> Completion:
    """Yes for .7 and for .1 of lower case; Granite Guardian's No where its template has it; what
    is odd is answered Maybe. One token is cut off at one token."""
    text, reason = str(body), "length" if body["max_tokens"] == 1 else "stop"
    words = {"Yes": 0.7, "yes": 0.1, "No": 0.15}
    places = ["Yes"]
    if "odd" in text:
        places = ["Maybe"]
    elif "documents" in body:
        words, places = {"yes": 0.2, " no": 0.5, "no": 0.1}, ["<score>", " no", "</score>"]
    top = tuple((word, math.log(p)) for word, p in words.items())
    tokens = tuple(
        TokenLogprob(t, dict(top).get(t, 0.0), top if t in words else ()) for t in places
    )
    return Completion("".join(places), "m", reason, Usage(9, 1), logprobs=tokens)


@pytest.mark.parametrize(
    ("version", "probability", "asked"),
    [
        (
            "minicheck",
            0.8,
            {
                "messages": [
                    {"role": "system", "content": load_prompt("verify", "minicheck").system},
                    {"role": "user", "content": f"Document: {SOURCE}\nClaim: {CLEAN}"},
                ],
                "max_tokens": 1,
            },
        ),
        (
            "granite-guardian",
            0.6,
            {
                "messages": [{"role": "assistant", "content": CLEAN}],
                "documents": [{"doc_id": "0", "text": SOURCE}],
                "chat_template_kwargs": {"guardian_config": {"criteria_id": "groundedness"}},
                "max_tokens": 12,
            },
        ),
    ],
)
def test_a_verifier_of_one_word_is_a_prompt(
    tmp_path: Path, cli: Command, version: str, probability: float, asked: dict[str, Any]
) -> None:
    """Asked as its authors do; the probability is that of the supporting word."""
    with FakeServer(answer=one_word) as server:
        call = call_of(tmp_path, server, "--prompt", f"verify={version}", "--max-requests", "4")
        counted = cli("estimate", *call[1:2], *call[4:], "--json").json()["tasks"][0]
        signature = cli(*call, "--json").json()["metrics"]["faithfulness"]["signature"]
        (body,) = [b for b in server.bodies if b["messages"][-1]["content"].endswith(CLEAN)]
    assert (counted["task"], counted["requests"]) == ("verify", 4)
    assert counted["completion_tokens"] >= 4
    everywhere = {"temperature": 0, "logprobs": True, "top_logprobs": 5}
    assert {name: body[name] for name in (*asked, *everywhere)} == asked | everywhere
    assert f"|verifier:verify={version}@" in signature
    rows = support(tmp_path / "run")
    assert rows["probability"].to_list() == pytest.approx([probability] * 4)
    assert rows.select("verdict", "verifier", "truncated").unique().row(0) == (
        *("supported", "llm", False),
    )
    assert rows.select("contradiction", "evidence", "evidence_index").null_count().row(0) == (
        *(4, 4, 4),
    )


@pytest.mark.parametrize(("logprobs", "n_failed"), [("given", 6), ("ignored", 60)])
def test_an_odd_verdict_costs_no_other_one(
    tmp_path: Path, cli: Command, logprobs: str, n_failed: int
) -> None:
    """It is a failure, asked for once; so is one without log-probabilities."""
    with FakeServer(answer=one_word, logprobs=logprobs) as server:
        call = call_of(tmp_path, server, "--prompt", "verify=minicheck", "--json")
        records = [
            {"id": str(n), "summary": f"It is {'odd' if n % 10 == 0 else n}.", "source": f"{n}."}
            for n in range(60)
        ]
        (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        summary = cli(*call).json()
        assert len(server.bodies) == 60
        cli(*call)
        assert len(server.bodies) == 60
    assert summary["records"]["failed"] == n_failed
    (failure,) = summary["failures"]
    assert (failure["stage"], failure["kind"], failure["count"]) == ("verify", "parse", n_failed)
    reason = {"given": "none of Yes, No: 'Maybe'", "ignored": "gave no log-probabilities"}
    assert reason[logprobs] in failure["example"]


def test_the_report_shows_the_evidence_and_what_was_asked(tmp_path: Path, cli: Command) -> None:
    out = tmp_path / "run"
    with FakeServer(answer=verdict) as server:
        cli(*call_of(tmp_path, server, "--window-tokens", "100"))
        cli("report", out)
    one, two = Page((out / "report.html").read_text(encoding="utf-8")).details()
    assert [row[2:] for row in two["support"][0]["rows"]] == [
        ["E", 1.0, BIG, ""],
        ["N", 0.25, None, ""],
    ]
    assert two["support"][0]["unsure"] == [1]
    assert two["support"][0]["quotes"]
    assert one["sides"][0]["marks"] == {
        "1": [
            "asked about again: the evidence was not in the text",
            "the evidence of a verdict is not in the text and was dropped",
            "the verdict is unsure",
        ]
    }
    calls = [call for record in (one, two) for call in record["calls"]]
    assert all("answer" in call for call in calls)
    assert ["user" in call for call in calls].count(False) == 1  # what was asked about again


def test_batch_jobs_hold_nothing_back(tmp_path: Path, cli: Command) -> None:
    """All questions are in the first job, those asked again in the next; without log-probabilities
    a run says that probabilities are 1 and 0."""
    lengths: list[int] = []

    async def answer(body: Body) -> Completion:
        lengths.append(len(body["messages"]))
        return await verdict(body)

    with FakeServer(answer=answer, logprobs="ignored") as server:
        summary = cli(*call_of(tmp_path, server, "--json", model="openai-batch:m")).json()
    assert lengths[:5] == [2, 2, 2, 2, 4]
    assert summary["metrics"]["faithfulness"]["mean"] == 0.5
    assert "Every probability of support is 1 or 0" in summary["notices"][0]


def sources_sent(server: FakeServer) -> list[str]:
    """The source in each first question."""
    asked = [body["messages"] for body in server.bodies if len(body["messages"]) == 2]
    return [messages[1]["content"].split("\n\nClaim: ")[0] for messages in asked]


@pytest.mark.parametrize(("evidence", "n_asked"), [("all", 5), ("best", 1)])
def test_what_bears_on_a_claim_is_sent_of_a_long_source(
    tmp_path: Path, cli: Command, evidence: str, n_asked: int
) -> None:
    """Or all of it, window after window, of which one that supports the claim is enough."""
    filler = [f"Sentence number {n} says nothing of interest." for n in range(40)]
    source = " ".join([*filler, f"They say: {BIG}", *filler])
    with FakeServer(answer=verdict) as server:
        call = call_of(tmp_path, server, "--window-tokens", "200")
        record = {"id": "one", "summary": BIG, "source": source}
        (tmp_path / "in.jsonl").write_text(json.dumps(record), encoding="utf-8")
        metric = f"faithfulness:evidence={evidence}"
        call = tuple(metric if part == "faithfulness" else part for part in call)
        counted = cli("estimate", *call[1:2], *call[4:], "--json").json()["tasks"]
        (scored,) = cli(*call, "--json").json()["metrics"].values()
        sources = sources_sent(server)
    assert counted[-1]["requests"] == len(sources) == n_asked
    numbers = [n for n in range(40) for text in sources if f"number {n} says" in text]
    if evidence == "all":
        assert set(numbers) == set(range(40))
    else:
        assert (
            f"number 39 says nothing of interest. They say: {BIG} Sentence number 0" in sources[0]
        )
        assert " [...] " in sources[0]
        assert 4 < len(numbers) < 20
    (row,) = support(tmp_path / "run").to_dicts()
    assert (row["verdict"], row["evidence"], row["evidence_index"]) == ("supported", BIG, 40)
    assert f"|evidence:{evidence}|" in scored["signature"]


def test_a_claim_that_the_source_says_is_not_asked_about(tmp_path: Path, cli: Command) -> None:
    """In each text; one that another text does not say is asked about there."""
    sources = ["It is warm .\n\u201c The room is  big . \u201d", "The bar is shut."]
    record = {"id": "one", "summary": BIG, "sources": sources}
    with FakeServer(answer=verdict) as server:
        call = call_of(tmp_path, server, "--json")
        (tmp_path / "in.jsonl").write_text(json.dumps(record), encoding="utf-8")
        mean = cli(*call).json()["metrics"]["faithfulness"]["mean"]
        assert [text.partition("Source:\n")[2] for text in sources_sent(server)] == sources[1:]
        cli("report", tmp_path / "run")
    assert mean == 1.0
    columns = ("verdict", "probability", "contradiction", "evidence_index", "evidence", "verbatim")
    rows = support(tmp_path / "run").sort("source_index").select(*columns, "request_key").rows()
    assert rows[0] == ("supported", 1.0, 0.0, 1, "\u201c The room is  big . \u201d", True, None)
    assert rows[1][5] is False


def test_metrics_of_one_run_send_the_same(tmp_path: Path, cli: Command) -> None:
    with FakeServer(answer=verdict) as server:
        call = call_of(tmp_path, server)
        refused = cli(*call[:-1], "faithfulness,faithfulness:evidence=all")
        assert server.bodies == []
    assert (refused.status, "name metrics of one evidence" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verifier", "llm"), "faithfulness: verify: --llm builtin can only do decompose"),
        (
            ("--verifier", "llm", "--llm", "openai:m", "-m", "faithfulness:read=sentence"),
            "leave it out with --verifier llm",
        ),
        (("--tasks", "verify", "--llm", "openai:m"), "--tasks verify: name --verifier llm too"),
        (("--verifier", "llm", "--window-tokens", "9"), "--window-tokens must be at least 100"),
        (
            ("--verifier", "llm", "--prompt", "verify=minicheck", "--llm", "anthropic:m"),
            "[label_words] are read from log-probabilities, which anthropic does not",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, cli: Command, options: tuple[str, ...], message: str
) -> None:
    chosen = () if "-m" in options else ("-m", "faithfulness")
    call = ("run", files(tmp_path), "--out", tmp_path / "run", "--quiet")
    found = cli(*call, *chosen, *options)
    assert found.status == 2
    assert message in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_a_window_too_long_for_the_model_says_the_way_out(tmp_path: Path, cli: Command) -> None:
    async def answer(body: Body) -> Completion:
        if "Claim: The bar" in body["messages"][1]["content"]:
            raise RejectedError("maximum context length is 300 tokens", "context_length")
        return await verdict(body)

    with FakeServer(answer=answer) as server:
        summary = cli(*call_of(tmp_path, server, "--json")).json()
    (failure,) = summary["failures"]
    assert (failure["stage"], failure["kind"]) == ("verify", "context_length")
    assert failure["example"].endswith("asks about shorter windows of the source")
    (reason,) = summary["metrics"]["faithfulness"]["reasons"]
    assert reason == "verify failed for summary"
