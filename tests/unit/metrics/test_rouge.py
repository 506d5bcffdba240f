"""ROUGE as two packages count it, and Newsroom's published rows."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from claimscore.metrics.rouge import NoTokensError, by_rouge_101, by_rouge_score
from claimscore.stats.agreement import spearman
from tests.support.frames import tables
from tests.support.shared_data import shared

steady = settings(deadline=None, max_examples=60)
TYPES = ("rouge-1", "rouge-2", "rouge-l", "rouge-lsum")
vocabulary = ("the", "a", "hotel", "room", "was", "is", "not", "clean", "Clean", "cleaned")
words = st.lists(st.sampled_from(vocabulary), min_size=1)
texts = st.lists(words.map(" ".join), min_size=1, max_size=4).map(". ".join)


def score(spec, **record):
    (found,) = load_metric(spec).score(tables([{"id": "x", **record}]))
    return found


def test_the_stemmer_joins_forms_of_a_word():
    pair = ("cleaned rooms", "cleaning rooms")
    assert by_rouge_score("rouge-1", *pair).f1 == 0.5
    assert by_rouge_score("rouge-1", *pair, stemmer=True).f1 == 1
    assert score("rouge-1:stemmer=yes", summary=pair[0], references=[pair[1]]).value == 1


def test_sentences_in_another_order_cost_lsum_nothing():
    one, other = "The room was big. We ate well.", "We ate well. The room was big."
    assert by_rouge_score("rouge-l", one, other).f1 < 1
    assert by_rouge_score("rouge-lsum", one, other).f1 == 1
    assert by_rouge_score("rouge-lsum", one, other, split=False).f1 < 1
    lines = score("rouge-lsum:sentences=lines", summary=one, references=[other])
    assert lines.value < score("rouge-lsum", summary=one, references=[other]).value == 1


@steady
@given(texts, texts, st.sampled_from(TYPES), st.booleans())
def test_equal_to_the_package_and_its_invariants(candidate, reference, rouge_type, stemmer):
    """Ours are the package's numbers; P and R change places with the texts; 1 for equal texts."""
    from rouge_score.rouge_scorer import RougeScorer

    name = rouge_type.replace("-l", "L").replace("-", "")
    theirs = RougeScorer([name], use_stemmer=stemmer).score(reference, candidate)[name]
    found = by_rouge_score(rouge_type, candidate, reference, stemmer=stemmer, split=False)
    for ours, package in zip(found, theirs, strict=True):
        assert ours is None or ours == package
        assert ours is None or 0 <= ours <= 1
    if rouge_type != "rouge-lsum":
        turned = by_rouge_score(rouge_type, reference, candidate, stemmer=stemmer)
        assert (turned.recall, turned.precision) == (found.precision, found.recall)
    same = by_rouge_score(rouge_type, candidate, candidate, stemmer=stemmer)
    assert set(same) in ({1.0}, {None})


@pytest.mark.parametrize(("measure", "value"), [("f1", 0), ("recall", 0), ("precision", None)])
def test_a_measure_without_denominator_is_null(measure, value):
    """A one-word text has no bigram: the package says 0, which is 0/0 here."""
    spec, reference = f"rouge-2:measure={measure}", "the clean room"
    assert score(spec, summary="clean", references=[reference]).value == value
    assert score(spec, summary="clean", references=["clean"]).value is None


# The package rouge 1.0.1


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
def test_golden_of_the_older_package(candidate, reference, expected):
    """Precision and recall of rouge-1, rouge-2, rouge-l, as `rouge` 1.0.1 printed them."""
    found = [
        number
        for rouge_type in TYPES[:3]
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
    metric = load_metric(f"{rouge_type}:measure=recall:variant=rouge-1.0.1")
    values = [found.value for found in metric.score(tables(records))]
    dimensions = ("coherence", "fluency", "informativeness", "relevance")
    found = [
        spearman(values, [row["human_mean"][name] for row in rows], level="pooled").value
        for name in dimensions
    ]
    assert np.abs(np.array(found) - expected).max() <= 5e-5
    assert np.abs(np.array(found) - paper).max() <= 0.014


# The metric


def test_the_best_reference_counts_or_the_mean():
    record = {"summary": "clean rooms", "references": ["", "dirty rooms", "clean rooms"]}
    best = score("rouge-1", **record)
    assert best.value == 1
    shares = dict.fromkeys(("precision", "recall", "f1"), 1.0)
    assert best.components == {**shares, "best": 2, "values": {1: 0.5, 2: 1.0}}
    assert score("rouge-1:multi=mean", **record).value == 0.75


def test_what_the_older_package_cannot_score():
    with pytest.raises(ConfigError, match=r"rouge 1\.0\.1 has no stemmer"):
        load_metric("rouge-1:variant=rouge-1.0.1:stemmer=yes")
    with pytest.raises(NoTokensError, match="candidate"):
        by_rouge_101("rouge-l", "...", "a")
