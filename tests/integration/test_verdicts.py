"""Verdicts on claims at the end of a run: their totals, and a row a claim in Python."""

from pathlib import Path
from typing import Any

import pytest

import claimscore
from claimscore.errors import ConfigError
from claimscore.pipeline import model_stage
from tests.support.command_line import Command
from tests.support.pass_doubles import FunctionClassifier
from tests.support.rated_tables import write_jsonl

SOURCES = ["Bo slept in Rome. Anna sold the red car.", "Cleo sold the bike. It rained."]
ROWS = [
    {"id": "two", "sources": SOURCES, "summary": "Cleo sold the bike. Dan sold the car."},
    {"id": "one", "sources": SOURCES[:1], "summary": "Emma sings well. Anna sold the car."},
]


def judgement(premise: str, hypothesis: str) -> list[float]:
    """Entailed where it has all the words, contradicted where both sell, else neither."""
    words = [set(text.replace(".", "").split()) for text in (premise, hypothesis)]
    if words[1] <= words[0]:
        return [0.96, 0.03, 0.01]
    return [0.1, 0.2, 0.7] if "sold" in words[0] & words[1] else [0.2, 0.7, 0.1]


class Judge(FunctionClassifier):
    kind = "nli"


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(judgement)
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: judge)


def test_the_verdicts_of_a_result(tmp_path: Path) -> None:
    """Of several sources the one that supports a claim decides."""
    options: Any = {"progress": False, "cache_dir": tmp_path, "units": "sentences"}
    found = claimscore.evaluate(ROWS, "faithfulness", **options)
    rows = found.verdicts.select("id", "side", "claim", "verdict").rows()
    assert rows == [
        ("two", "summary", "Cleo sold the bike.", "supported"),
        ("two", "summary", "Dan sold the car.", "contradicted"),
        ("one", "summary", "Emma sings well.", "unmentioned"),
        ("one", "summary", "Anna sold the car.", "supported"),
    ]
    assert found.verdicts["evidence"][0] == "Cleo sold the bike."
    assert found.verdicts["probability"].min() == pytest.approx(0.2)
    assert found.verdicts["uncertainty"].to_list() == pytest.approx([0, 0.4, 0.4, 0.08])
    assert "; 2 supported, 1 contradicted, 1 unmentioned; 0 of 4 are unsure" in repr(found)
    with pytest.raises(ConfigError, match="unknown table suport; is support meant"):
        found.table("suport")
    assert found.table("records").height == 2
    assert claimscore.evaluate(ROWS, "rouge-1:against=source", **options).verdicts.is_empty()


def test_a_run_ends_with_totals_of_verdicts(tmp_path: Path, cli: Command) -> None:
    path, out = write_jsonl(tmp_path / "rows.jsonl", ROWS), tmp_path / "run"
    options = ("--metrics", "faithfulness,rouge-1:against=source", "--units", "sentences")
    shown = cli("run", path, "--out", out, *options)
    assert " claims: 2 supported, 1 contradicted, 1 unmentioned; 0 of 4 are unsure\n" in shown.out
    metrics = cli("run", path, "--out", out, *options, "--json").json()["metrics"]
    totals = {name: row.get("verdicts") for name, row in metrics.items()}
    counts = {"supported": 2, "contradicted": 1, "unmentioned": 1}
    assert totals == {"faithfulness": counts, "rouge-1:against=source": None}


def test_a_pair_keeps_its_tables_and_the_process_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def load(role: str, config: Any) -> Judge:
        loads.append(role)
        return Judge(judgement)

    monkeypatch.setattr(model_stage, "load_model", load)
    options: Any = {"cache_dir": tmp_path, "units": "sentences"}
    first = claimscore.score_pair(SOURCES[0], "Bo slept.", "faithfulness", **options)
    second = claimscore.score_pair(SOURCES[1], "Dan sold the car.", "faithfulness", **options)
    assert [pair.verdicts["verdict"][0] for pair in (first, second)] == [
        "supported",
        "contradicted",
    ]
    assert first.table("support").height == first.claims.height == 1
    assert loads == ["nli"]
    claimscore.score_pair("A.", "B.", "faithfulness", keep_models=False, **options)
    assert loads == ["nli", "nli"]
