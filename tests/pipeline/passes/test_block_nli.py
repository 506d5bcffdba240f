"""NLI over blocks: which pairs are asked, in which order, and what a record without any is."""

from __future__ import annotations

import time

import polars as pl
import pytest

from claimscore.pipeline.passes import PassResult
from claimscore.tables import BLOCK_NLI
from tests.pipeline.passes.test_passes import FakeClassifier, run_pass

SENTENCES = ("source.sentence", "summary.sentence")


def run(
    *records: dict[str, object], over: tuple[str, str] = SENTENCES
) -> tuple[PassResult, FakeClassifier]:
    classifier = FakeClassifier()
    frame = pl.DataFrame(list(records), infer_schema_length=None)
    return run_pass("block_nli", classifier, frame, over=over), classifier


def test_every_block_meets_every_sentence() -> None:
    """The document is the premise; rows are premise by premise."""
    result, classifier = run(
        {"id": "r", "source": "It was warm. It was raining.", "summary": "It rained a lot. It did."}
    )
    assert classifier.calls == [
        [("It was warm.", "It rained a lot."), ("It was raining.", "It rained a lot.")]
    ]
    rows = result.rows["block_nli"]
    assert rows.schema == pl.Schema(BLOCK_NLI.schema)
    assert rows.select("premise_index", "hypothesis_index").rows() == [(0, 0), (1, 0)]
    assert rows["entailment"].round(2).to_list() == pytest.approx([0.12, 0.15])
    assert rows.select(pl.col("^.*_(side|cut)$")).unique().rows() == [
        ("source", "sentence", "summary", "sentence")
    ]


def test_both_sides_have_cuts_of_their_own() -> None:
    """`a-b` of the metric: pairs of sentences against the whole summary, however short."""
    over = ("source.2sents_disjoint", "summary.document")
    result, classifier = run(
        {"id": "r", "source": "It was so. It was not. It is dark.", "summary": "Yes."}, over=over
    )
    assert classifier.calls == [[("It was not. It is dark.", "Yes.")]]
    cuts = result.rows["block_nli"].select("premise_cut", "hypothesis_cut").rows()
    assert cuts == [("2sents_disjoint", "document")]


def test_several_documents_follow_each_other() -> None:
    """Their blocks are those of one document, in the order given."""
    documents = ["It was warm. It was raining.", " ", "It was very cold."]
    result, classifier = run({"id": "r", "sources": documents, "summary": "It was a day."})
    assert [premise for premise, _ in classifier.calls[0]] == [
        "It was warm.",
        "It was raining.",
        "It was very cold.",
    ]
    assert result.rows["block_nli"]["premise_index"].to_list() == [0, 1, 2]


def test_records_without_blocks_have_no_rows() -> None:
    """Blank, missing and too short texts; the metric says which."""
    result, _ = run(
        {"id": "1", "source": None, "summary": "It was a day."},
        {"id": "2", "source": "It was a day.", "summary": "  "},
        {"id": "3", "source": "It was a day.", "summary": "Short."},
        {"id": "4", "source": "It was a day.", "summary": "It was a day."},
    )
    assert result.rows["block_nli"]["id"].to_list() == ["4"]
    assert result.failures.is_empty()


def test_a_chunk_without_any_block_is_an_empty_table() -> None:
    """With the schema of the others."""
    result, _ = run({"id": "1", "source": "", "summary": ""})
    assert result.rows["block_nli"].schema == pl.Schema(BLOCK_NLI.schema)
    assert result.rows["block_nli"].is_empty()


def test_a_pair_that_does_not_fit_costs_its_record_alone() -> None:
    """A failure row; the others are judged again without it."""
    result, classifier = run(
        {"id": "1", "source": "This is a huge text.", "summary": "It was a day."},
        {"id": "2", "source": "It was a day.", "summary": "It was a day."},
    )
    assert result.rows["block_nli"]["id"].to_list() == ["2"]
    assert result.failures.select("id", "stage", "kind").rows() == [
        ("1", "block_nli", "out_of_memory")
    ]
    assert len(classifier.calls) == 2


def test_ten_thousand_sentences_take_seconds() -> None:
    """Of a document the first hundred blocks, unless all are asked for."""
    text = " ".join(f"This is sentence number {i} of many." for i in range(10_000))
    started = time.process_time()
    first, _ = run({"id": "r", "source": text, "summary": "It was a day."})
    all_over = ("source.sentence_all", "summary.sentence_all")
    whole, _ = run({"id": "r", "source": text, "summary": "It was a day."}, over=all_over)
    assert time.process_time() - started < 20
    assert first.rows["block_nli"].height == 100
    assert whole.rows["block_nli"].height == 10_000
