"""ROUGE as the package rouge 1.0.1 counts it, and Newsroom's published rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from claimscore.metrics import catalogue
from claimscore.stats.agreement import correlation
from papers import rouge_101
from papers.rouge_101 import by_rouge_101
from tests.support.frames import tables
from tests.support.shared_data import shared

FILE = Path(rouge_101.__file__)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ("a b a c", "a b c a", [1, 1, 1 / 3, 1 / 3, 2 / 3, 2 / 3]),
        (
            "The room was clean . . The view, nice.",
            "The room and the view. It was clean",
            [4 / 7, 4 / 8, 2 / 7, 2 / 7, 4 / 7, 4 / 8],
        ),
    ],
)
def test_golden_of_the_package(candidate, reference, expected):
    """Precision and recall of rouge-1, rouge-2, rouge-l, as `rouge` 1.0.1 printed them."""
    found = [
        number
        for rouge_type in ("rouge-1", "rouge-2", "rouge-l")
        for number in by_rouge_101(rouge_type, candidate, reference)[:2]
    ]
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("rouge_type", "expected", "paper"),
    [
        ("rouge-1", (0.2465, 0.2073, 0.3397, 0.2981), (0.2446, 0.1991, 0.3371, 0.3028)),
        ("rouge-2", (0.1208, 0.0885, 0.1839, 0.1524), (0.1133, 0.0763, 0.1816, 0.1385)),
        ("rouge-l", (0.2179, 0.1802, 0.3179, 0.2681), (0.2164, 0.1736, 0.3178, 0.2700)),
    ],
)
def test_newsroom_rows(rouge_type, expected, paper):
    """Spearman over all 420 pairs: the older package's to four digits, the paper's within 0.014."""
    lines = shared("data/newsroom/newsroom_human_420.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    records = [{key: row[key] for key in ("id", "summary")} for row in rows]
    for record, row in zip(records, rows, strict=True):
        record["references"] = [row["reference"]]
    metric = catalogue([FILE]).load(f"old-{rouge_type}:measure=recall")
    values = [found.value for found in metric.score(tables(records))]
    dimensions = ("coherence", "fluency", "informativeness", "relevance")
    found = [
        correlation(
            "spearman", values, [row["human_mean"][name] for row in rows], level="pooled"
        ).value
        for name in dimensions
    ]
    assert np.abs(np.array(found) - expected).max() <= 5e-5
    assert np.abs(np.array(found) - paper).max() <= 0.014


def test_a_text_without_words_has_no_score() -> None:
    record = {"id": "x", "summary": "...", "references": ["a"]}
    (score,) = catalogue([FILE]).load("old-rouge-l").score(tables([record]))
    assert (score.value, score.reason) == (None, "no word that ROUGE counts in the candidate")
