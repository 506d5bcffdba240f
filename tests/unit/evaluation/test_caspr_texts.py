"""The five comparisons: what they are made of, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import InputError
from claimscore.evaluation.caspr_experiment import (
    MADE_FROM,
    AnnotatedRecord,
    MadeTexts,
    MissingPair,
    TextPair,
    build_pairs,
    read_annotated,
)
from tests.support.rated_tables import write_jsonl
from tests.support.shared_data import shared

RECORD: dict[str, Any] = {
    "id": 1,
    "entity_a_summary": ["A one.", "A two.", "A three."],
    "entity_b_summary": ["B one."],
}


def read(tmp_path: Path, *records: dict[str, Any]) -> list[AnnotatedRecord]:
    return read_annotated(str(write_jsonl(tmp_path / "records.jsonl", records)))


def test_the_papers_comparisons():
    """All 240 pairs of the published data, text by text."""
    path = shared("data/caspr/comparisons.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    expected = {(row["comparison"], row["id"], row["text_a"], row["text_b"]) for row in rows}
    records = read_annotated(str(shared("data/caspr/cocotrip_caspr.jsonl")))
    assert [record.lacking for record in records] == [()] * 48
    pairs, missing = build_pairs(records, MadeTexts({}, {}))
    assert (len(pairs), missing) == (len(rows), []) == (240, [])
    assert {tuple(pair) for pair in pairs} == expected


def test_made_texts_fill_in_for_those_that_are_not_there(tmp_path: Path):
    first, second = read(tmp_path, {**RECORD, "paraphrase_a": "Given."}, {**RECORD, "id": 2})
    assert (first.id, second.id) == ("1", "2")
    assert second.lacking == tuple(MADE_FROM)
    assert "paraphrase_a" not in first.lacking
    made = {("1", name): f"made {name}" for name in MADE_FROM}
    assert build_pairs([first], MadeTexts(made, {}))[0] == [
        TextPair("syn_low", "1", "A one.", "made syn_low_contrast"),
        TextPair("ref_similar", "1", "A one.", "A two."),
        TextPair("ref_contrastive", "1", "A one.", "B one."),
        TextPair("syn_high", "1", "A one.", "made syn_high_contrast"),
        TextPair("syn_contrast", "1", "Given.", "made paraphrase_b"),
    ]


def test_what_could_not_be_made_costs_its_own_pairs(tmp_path: Path):
    record, _ = read(tmp_path, RECORD, {**RECORD, "id": 2})
    made = {("1", name): "made" for name in MADE_FROM if name != "paraphrase_b"}
    reasons = {("1", "paraphrase_b"): "refused"}
    pairs, missing = build_pairs([record], MadeTexts(made, reasons))
    assert missing == [MissingPair("syn_contrast", "1", "refused")]
    assert len(pairs) == 4


def test_parquet_holds_the_same_records(tmp_path: Path):
    rows = [{**RECORD, "paraphrase_a": None}, {**RECORD, "id": 2, "paraphrase_a": "Given."}]
    path = tmp_path / "records.parquet"
    pl.DataFrame(rows).write_parquet(path)
    assert read_annotated(str(path)) == read(tmp_path, *rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"id": None}, "line 2: id must be there", id="no id"),
        pytest.param({"id": "1"}, "line 2: the id '1' is there twice", id="same id"),
        pytest.param({"entity_a_summary": ["One."]}, "at least two texts", id="one annotator"),
        pytest.param({"entity_a_summary": "One."}, "must be a list", id="no list"),
        pytest.param({"entity_b_summary": []}, "entity_b_summary must be a list", id="no B"),
        pytest.param({"entity_b_summary": [" "]}, "texts that are not empty", id="blank"),
        pytest.param({"paraphrase_a": 3}, "paraphrase_a must hold texts", id="a number"),
    ],
)
def test_wrong_records(tmp_path: Path, change: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        read(tmp_path, RECORD, {**RECORD, "id": 2, **change})


def test_one_record_is_too_few(tmp_path: Path):
    with pytest.raises(InputError, match="too few"):
        read(tmp_path, RECORD)
