"""`--dedupe entailed`: scores are those of texts without the claims that others entail."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.pipeline import model_stage
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.runs import RunDirectory
from tests.support.command_line import Command
from tests.support.pass_doubles import FunctionClassifier
from tests.support.report_pages import Page

FULL = "Anna sold the red car. Anna sold the car. Bo slept in Rome. Anna sold the red car."
SHORT = "Anna sold the red car. Bo slept in Rome."
OTHER = "Bo slept. Cleo sold the car. Bo slept in Rome."
OTHER_SHORT = "Cleo sold the car. Bo slept in Rome."
METRICS = ("--metrics", "caspr,faithfulness,claim-recall,ds")


def entails(premise: str, hypothesis: str) -> list[float]:
    """By words: entailed, contradicted where the name is another one, or neither."""
    words = [set(text.strip(".").split()) for text in (premise, hypothesis)]
    if words[1] <= words[0]:
        return [0.96, 0.03, 0.01]
    return [0.1, 0.2, 0.7] if "sold" in words[0] & words[1] else [0.2, 0.7, 0.1]


class Judge(FunctionClassifier):
    """The model of every role; it refuses what it is told to."""

    kind, refused = "nli", ("", "")

    def classify(self, pairs: Any, **options: Any) -> Any:
        huge = tuple(i for i, pair in enumerate(pairs) if pair == self.refused)
        if huge:
            raise RejectedItemsError("a text does not fit", "out_of_memory", huge)
        return super().classify(pairs, **options)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    model = Judge(entails)
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: model)
    return model


@pytest.fixture
def run_of(tmp_path: Path, cli: Command, judge: Judge) -> Any:
    """A run of two records with these texts, the second the first turned round."""

    def call(name: str, texts: tuple[str, str], *options: str) -> Path:
        records = [
            {
                "id": str(place),
                "summary_a": a,
                "summary_b": b,
                "summary": a,
                "source": "Anna sold the car. Bo slept.",
                "references": [b, a],
            }
            for place, (a, b) in enumerate((texts, texts[::-1]))
        ]
        path, out = tmp_path / f"{name}.jsonl", tmp_path / name
        path.write_text("\n".join(map(json.dumps, records)))
        result = cli(
            "run", path, "--out", out, "--no-model-store", "--quiet", *(options or METRICS)
        )
        assert (out / "scores.parquet").exists(), result.err
        return out

    return call


def scores(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "scores.parquet")


def test_entailed_claims_are_as_if_they_were_not_there(run_of: Any, cli: Command) -> None:
    out = run_of("full", (FULL, OTHER))
    plain = scores(out)
    assert not any("entailed" in step for step in RunDirectory.reader(out).manifest.all_steps())
    expected = scores(run_of("short", (SHORT, OTHER_SHORT)))["value"].to_list()
    asked_for = scores(run_of("at_once", (FULL, OTHER), *METRICS, "--dedupe", "entailed"))
    cli("score", out, *METRICS, "--dedupe", "entailed", "--no-model-store", "--quiet")
    assert scores(out).equals(asked_for)
    of_claims = asked_for["metric"] != "ds"
    assert asked_for.filter(of_claims)["value"].to_list() == [
        value for value, counts in zip(expected, of_claims, strict=True) if counts
    ]
    assert not plain["value"].equals(asked_for["value"])
    assert not plain["signature"].str.contains("dedupe").any()
    signed = asked_for["signature"].str.contains("|dedupe:entailed by embedded@r1", literal=True)
    assert signed.to_list() == of_claims.to_list()


def test_what_was_left_out_is_counted_and_stays_so(run_of: Any, cli: Command) -> None:
    out = run_of("run", (FULL, OTHER), "--metrics", "caspr", "--dedupe", "entailed")
    before = scores(out)
    counts = cli("status", out, "--json").json()["claim_checks"]
    assert counts["found"]["entailed"] == 6
    assert "6 of 14 claims are entailed by another claim of their text" in counts["warnings"][0]
    details = Page((out / "report.html").read_text(encoding="utf-8")).details()
    marks = {side["side"]: side.get("marks") for side in details[0]["sides"]}
    assert marks["a"] == {
        place: ["left out of scores: another claim entails it (entailment 0.96)"]
        for place in ("1", "3")
    }
    shown = cli("status", out, "--record", "0", "--json").json()["claims"]
    assert [claim["claim"] for claim in shown if claim["left_out"] == "entailed"] == [
        "Anna sold the car.",
        "Anna sold the red car.",
        "Bo slept.",
    ]
    cli("score", out, "--metrics", "ds", "--no-model-store", "--quiet")
    again = scores(out).filter(metric="caspr")
    assert again.equals(before)


def test_a_record_whose_claims_do_not_fit_has_no_score(run_of: Any, judge: Judge) -> None:
    judge.refused = ("Anna sold the car.", "Anna sold the red car.")
    out = run_of("run", (FULL, OTHER), "--metrics", "caspr", "--dedupe", "entailed")
    assert scores(out)["reason"].to_list() == [
        f"entailed_claims failed for summary_{side}: a text does not fit" for side in "ab"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--metrics", "ds"), "--dedupe entailed: no metric of this run reads claims"),
        (("--units", "sentences"), "--dedupe leaves out claims, and --units sentences has none"),
    ],
)
def test_where_there_are_no_claims_it_is_refused(
    tmp_path: Path, cli: Command, options: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"summary_a": SHORT, "summary_b": OTHER}))
    result = cli("run", path, "--out", tmp_path / "run", *options, "--dedupe", "entailed")
    assert result.status == 2
    assert message in result.err
