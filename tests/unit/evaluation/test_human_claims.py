"""`claimscore evaluate claims`: what matches, what is counted, and what is said of bad input."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.human_claims import (
    ClaimsConfig,
    evaluate_claims,
    matched,
    word_f1,
)
from claimscore.evaluation.result import EvaluationResult
from tests.support.rated_tables import write_jsonl
from tests.support.shared_data import shared

#: Sides that are decomposed beside the summary.
PAIR = {"summary_a": "Al ran.", "summary_b": "Bo sat."}
HUMAN = [
    {
        "id": "1",
        "summary": "Ann Lee sings in Rome. She was born in Oslo, Norway.",
        "claims": ["Ann Lee sings.", "Ann Lee sings in Rome.", "Ann Lee was born in Oslo."],
    },
    {"id": "2", "summary": "Bo runs.", "claims": ["Bo runs."]},
    {"id": "3", "summary": "Hm.", "claims": []},
]
OURS = [
    {"id": "1", "claims": ["Ann Lee sings in Rome.", "She was born in Oslo.", "Norway is cold."]},
    {"id": "2", "claims": ["Bo runs."]},
]


def measured(tmp_path: Path, systems: Sequence[Any] = (OURS,), **options: Any) -> EvaluationResult:
    human = write_jsonl(tmp_path / "human.jsonl", options.pop("human", HUMAN))
    tables = [write_jsonl(tmp_path / f"s{n}.jsonl", rows) for n, rows in enumerate(systems)]
    return evaluate_claims(ClaimsConfig((str(human), *map(str, tables)), samples=50, **options))


def row(result: EvaluationResult, system: str) -> dict[str, Any]:
    return result.tables["systems"].filter(system=system).row(0, named=True)


def test_a_system_by_hand(tmp_path: Path) -> None:
    found = row(measured(tmp_path), "s0")
    assert (found["n_records"], found["n_sentences"]) == (2, 3)
    assert (found["n_claims"], found["n_units"]) == (4, 4)
    assert found["claims_a_sentence"] == pytest.approx(4 / 3)
    # Units: "sings", "sings in Rome" (one claim for both), "born in Oslo" at F1 2*2/(2+4).
    assert (found["recall"], found["precision"]) == (1.0, 3 / 4)
    assert found["f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert found["f1_low"] <= found["f1"] <= found["f1_high"]


def test_baselines_cut_sentences(tmp_path: Path) -> None:
    human = [{"id": "1", "summary": "Bo sat, ate and ran.", "claims": ["Bo sat."]}]
    systems = measured(tmp_path, (), human=human).tables["systems"]
    assert systems.select("system", "claims_a_sentence").rows() == [
        ("whole sentence", 1.0),
        ('cut at , ; "and"', 3.0),
    ]


def test_a_run_and_its_table_agree(tmp_path: Path, cli: Any) -> None:
    """Also a run that decomposed other sides in the same step."""
    human = write_jsonl(tmp_path / "human.jsonl", [{**row, **PAIR} for row in HUMAN])
    run = tmp_path / "run"
    asked = ("run", human, "--metrics", "", "--tasks", "decompose", "--out", run, "--quiet")
    assert cli(*asked).status == 0
    result = cli("evaluate", "claims", human, run, "--json", "--out", tmp_path / "out")
    assert result.status == 0
    found = json.loads(result.out)
    assert [system["system"] for system in found["systems"]][:2] == ["run", "whole sentence"]
    assert found["systems"][0]["n_claims"] == 4
    assert found["cases"] == 2
    written = pl.read_parquet(tmp_path / "out" / "claims.parquet")
    assert written.filter(system="run")["best_human_claim"].null_count() == 0
    page = (tmp_path / "out" / "claims.html").read_text(encoding="utf-8")
    assert "Matched by content words" in page


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_an_assignment_is_no_more_than_either_side(rows: list[list[bool]]) -> None:
    matches = np.array(rows)
    recalled, precise, pairs = matched(matches)
    assert bool(pairs) == matches.any()
    assert pairs <= min(recalled, precise)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("Dogs were running.", "A dog runs", 1.0),
        ("the of and", "the of and", 0.0),
        ("red red car", "red car", 0.8),
    ],
)
def test_words(a: str, b: str, expected: float) -> None:
    """F1 of the multisets of stemmed content words."""
    assert word_f1(a, b) == word_f1(b, a) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("human", "systems", "message"),
    [
        (HUMAN, [OURS[:1]], "no claims of record 2 of"),
        ([{"id": "1", "summary": "A."}], [], "no column claims"),
        ([{"id": "1", "claims": ["A."]}], [], "column summary holds no text"),
        ([{"claims": "A.", "summary": "A."}], [], "a list of texts"),
        (HUMAN[:1] * 2, [], "record 1 is there twice"),
        (HUMAN, [[*OURS, OURS[0]]], "record 1 is there twice"),
        ([], [], "there are no records"),
        (HUMAN[2:], [], "no record has human claims in column claims"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, human: Any, systems: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measured(tmp_path, systems, human=human)


def test_bad_options_and_runs_without_claims_are_refused(tmp_path: Path, cli: Any) -> None:
    with pytest.raises(ConfigError, match="--samples"):
        ClaimsConfig(("x",), samples=0)
    human = write_jsonl(tmp_path / "human.jsonl", HUMAN)
    run = tmp_path / "run"
    asked = ("run", human, "--metrics", "", "--tasks", "facts", "--out", run, "--quiet")
    assert cli(*asked).status == 0
    refused = cli("evaluate", "claims", human, run)
    assert refused.status == 2
    assert "--tasks decompose" in refused.err


def test_baselines_on_the_published_data(tmp_path: Path) -> None:
    rows = pl.read_parquet(shared("data/decomposition/rose_acu.parquet")).to_dicts()
    human = [{"id": r["id"], "summary": r["reference"], "claims": r["acus"]} for r in rows]
    found = row(measured(tmp_path, (), human=human), "whole sentence")
    assert found["n_units"] == 4662
    assert found["recall"] == pytest.approx(0.555, abs=5e-4)
    assert found["f1"] == pytest.approx(0.442, abs=5e-4)
