"""`scripts.judge.evaluate`: accuracy and calibration of an NLI model on labelled pairs."""

from pathlib import Path

import polars as pl
import pytest

import claimscore
from scripts.judge import evaluate
from tests.support.rated_tables import write_jsonl

PAIRS = [
    {"premise": f"{n}", "hypothesis": f"{n}", "label": label}
    for n, label in enumerate(["entailment", "neutral", "neutral", "contradiction"])
]


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says entailment with .8 of every pair."""

    def nli(pairs: pl.DataFrame, name: str, dtype: str) -> pl.DataFrame:
        return pairs.with_columns(
            entailment=pl.lit(0.8, pl.Float32),
            neutral=pl.lit(0.1, pl.Float32),
            contradiction=pl.lit(0.1, pl.Float32),
            label=pl.lit("entailment"),
            error=pl.when(pl.col("premise") == "huge").then(pl.lit("out_of_memory: too long")),
        )

    monkeypatch.setattr(claimscore, "nli", nli, raising=False)


def test_a_row_by_hand(tmp_path: Path) -> None:
    """One of four is right at a confidence of .8: an error of .55."""
    judged = evaluate.judge(write_jsonl(tmp_path / "dev.jsonl", PAIRS), "m", "float32")
    n, accuracy, ece, likelihood, _ = evaluate.measured(judged)
    assert (n, ece) == (4, "55.0")
    assert str(accuracy).startswith("25.0 [4.6–")
    assert float(str(likelihood)) == pytest.approx((0.2231 + 3 * 2.3026) / 4, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"label": "maybe"}, "unknown label 'maybe'"), ({"premise": "huge"}, "row 4: out_of_memory")],
)
def test_what_cannot_be_measured(tmp_path: Path, change: dict[str, str], message: str) -> None:
    path = write_jsonl(tmp_path / "dev.jsonl", [*PAIRS[:3], PAIRS[3] | change])
    with pytest.raises(ValueError, match=message):
        evaluate.judge(path, "m", "float32")
