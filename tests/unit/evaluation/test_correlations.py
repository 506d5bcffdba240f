"""`evaluate correlate`: values, intervals, tests between metrics, ranks."""

from pathlib import Path

import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.correlations import CorrelateConfig, correlate
from claimscore.evaluation.result import EvaluationResult
from tests.support.rated_tables import rated_rows, write_jsonl

RATINGS = ("fluency", "relevance")


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(write_jsonl(tmp_path / "t.jsonl", rated_rows(20)))


def found(table: str, **options: object) -> EvaluationResult:
    chosen = {"scores": ("good", "poor"), "ratings": RATINGS, "case": "article", "samples": 300}
    return correlate(CorrelateConfig(table, **{**chosen, **options}))


def only(frame, **filters: object) -> dict:
    (row,) = frame.filter(**filters).to_dicts()
    return row


def test_a_better_metric_is_found(table: str):
    result = found(
        table, levels=("system", "summary", "pooled"), methods=("pearson", "spearman"), compare=True
    )
    assert result.tables["comparisons"].height == 12
    pooled = only(
        result.tables["comparisons"], correlation="pearson", level="pooled", rating="fluency"
    )
    assert pooled["low"] > 0
    assert pooled["p_bootstrap"] < 0.01
    assert result.tables["comparisons"]["reason"].null_count() == 12


def test_a_metric_against_itself_has_no_interval_and_p_1(table: str):
    result = found(table, scores=("good", "good"), methods=("pearson",), compare=True)
    row = only(result.tables["comparisons"], level="system", rating="fluency")
    assert (row["difference"], row["low"], row["high"], row["p_bootstrap"]) == (0, None, None, 1)


def test_a_score_without_a_value_says_why(tmp_path: Path):
    rows = [{**row, "two\nlines|": 1.0} for row in rated_rows(20)]
    result = found(str(write_jsonl(tmp_path / "t.jsonl", rows)), scores=("two\nlines|",))
    (flat, _) = result.tables["correlations"].filter(level="summary").to_dicts()
    assert (flat["value"], flat["low"], flat["undefined_cases"]) == (None, None, 20)
    assert "constant" in flat["reason"]


def test_the_seed_decides(table: str):
    first, again, other = (found(table, seed=seed).tables["correlations"] for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first["low"].equals(other["low"])
    assert first["value"].equals(other["value"])


def test_missing_values(tmp_path: Path):
    rows = rated_rows(20)
    rows[7]["poor"] = None
    path = str(write_jsonl(tmp_path / "t.jsonl", rows))
    with pytest.raises(InputError, match="no value of poor for case c1 of system s2"):
        found(path)
    with pytest.raises(InputError, match="no value of poor for row 8;"):
        found(path, case=None)
    result = found(path, drop_missing=True)
    assert (result.facts["cases"], result.facts["left_out"]) == (19, 1)
    assert found(path, scores=("good",)).facts["left_out"] == 0


def test_rows_without_cases_are_pooled(table: str):
    row = only(
        found(table, case=None, samples=20).tables["correlations"], score="good", rating="fluency"
    )
    assert (row["level"], row["n_cases"], row["n_systems"]) == ("pooled", 100, 1)
    with_cases = found(table, levels=("pooled",), samples=20).tables["correlations"]
    assert only(with_cases, score="good", rating="fluency")["value"] == row["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"case": None, "levels": ("system",)}, "--case"),
        ({"levels": ("corpus",)}, "none of system, summary, pooled"),
        ({"methods": ("tau",)}, "none of kendall"),
        ({"scores": ()}, "at least one column"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_settings_that_cannot_be_used(table: str, options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        found(table, **options)


def test_too_little_to_correlate_is_refused(tmp_path: Path):
    few_cases = str(write_jsonl(tmp_path / "cases.jsonl", rated_rows(1, 5)))
    few_systems = str(write_jsonl(tmp_path / "systems.jsonl", rated_rows(9, 2)))
    with pytest.raises(InputError, match="1 whole cases are too few"):
        found(few_cases)
    with pytest.raises(InputError, match="2 systems in column system"):
        found(few_systems)
