"""ROUGE as the package rouge-score counts it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.metrics import load_metric
from claimscore.metrics.rouge import by_rouge_score
from claimscore.text import split_sentences
from tests.support.frames import tables

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
    assert score("rouge-lsum", summary=one, references=[other]).value == 1


@steady
@given(texts, texts, st.sampled_from(TYPES), st.booleans())
def test_equal_to_the_package_and_its_invariants(candidate, reference, rouge_type, stemmer):
    """Ours are the package's numbers; P and R change places with the texts; 1 for equal texts."""
    from rouge_score.rouge_scorer import RougeScorer

    name = rouge_type.replace("-l", "L").replace("-", "")
    cut = (reference, candidate)
    if rouge_type == "rouge-lsum":
        cut = tuple("\n".join(split_sentences(text)) for text in cut)
    theirs = RougeScorer([name], use_stemmer=stemmer).score(*cut)[name]
    found = by_rouge_score(rouge_type, candidate, reference, stemmer=stemmer)
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


# The metric


def test_the_best_reference_counts_or_the_mean():
    record = {"summary": "clean rooms", "references": ["", "dirty rooms", "clean rooms"]}
    best = score("rouge-1", **record)
    assert best.value == 1
    shares = dict.fromkeys(("precision", "recall", "f1"), 1.0)
    assert best.components == {**shares, "best": 2, "values": {1: 0.5, 2: 1.0}}
    assert score("rouge-1:multi=mean", **record).value == 0.75
