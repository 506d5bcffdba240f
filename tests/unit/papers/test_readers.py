"""Readers of published data sets: what a row becomes, and that claimscore reads the records."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from papers.readers import READERS, main, write
from tests.support.prepared import prepare
from tests.support.rated_tables import write_jsonl
from tests.support.shared_data import shared

Rows = list[dict[str, Any]]


def records_of(name: str, source: Path, folder: Path) -> Rows:
    out = folder / "out.jsonl"
    count = write(name, source, out)
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(records) == count
    prepare(str(out), spool=folder / "spool", required={})  # they are records
    return records


_ENTITIES = {"entity_a": "1", "entity_b": "2"}
_SUMMARIES = {f"entity_{side}_summary": [f"{side} one.", f"{side} two."] for side in "ab"}
_ARTICLE = {"article_id": 7, "article": "D.", "reference_summary": "R."}
_EDITED = {"label": 0, "twin": "7-reference", "case": "7", "source": "D."}
_RESPONSE = {
    **{"level": "response", "source_id": 4, "model": "m", "sentence": None, "claim": "C."},
    **{"implicit_true": False, "due_to_null": False, "kind": "Evident Conflict|Subtle Conflict"},
    **{"source": "ragtruth_data2txt", "label": "contradicted"},
    "premise": json.dumps(
        {"GoodForGroups": True, "open": {"WiFi": None}, "review_info": [{"stars": 4.5}]}
    ),
}
_SENTENCE = _RESPONSE | {
    **{"level": "sentence", "sentence": 1, "label": "supported", "kind": "", "premise": "P."},
    "source": "ragtruth_qa",
}

CASES: dict[str, tuple[str, Rows, Rows]] = {
    "opinsummeval": (
        "opinsummeval",
        [
            {
                **{"case": 7, "reviews": ["Good.", "Bad."], "reference": "Mixed."},
                "systems": {
                    "bart": {
                        **{"summary": "So so.", "scores": {"R1_F1": 0.3}},
                        **{"human_annotator1": {"asp": 4.0}, "human_annotator2": {"asp": 3.0}},
                    }
                },
            }
        ],
        [
            {
                **{"id": "7-bart", "case": "7", "system": "bart", "sources": ["Good.", "Bad."]},
                **{"references": ["Mixed."], "summary": "So so.", "ratings": {"asp": 3.5}},
                "R1_F1": 0.3,
            }
        ],
    ),
    "summeval, a line a summary": (
        "summeval",
        [
            {
                **{"id": "dm-1", "model_id": "M0", "decoded": "S.", "text": "D."},
                **{"references": ["R."], "expert_annotations": [{"co": 1}, {"co": 3}]},
            }
        ],
        [
            {
                **{"id": "dm-1-M0", "case": "dm-1", "system": "M0", "source": "D."},
                **{"references": ["R."], "summary": "S.", "ratings": {"co": 2}},
            }
        ],
    ),
    "summac": (
        "summac",
        [
            {
                **{"document": "D.", "claim": "S.", "label": 1, "cut": "test"},
                **{"dataset": "cogensum", "model_name": "BART"},
            },
            {"document": "D", "claim": "C", "fact_score": 0.5},  # QAGS
        ],
        [
            {
                **{"id": "cogensumm-test-0000", "dataset": "cogensumm", "split": "test"},
                **{"source": "D.", "summary": "S.", "label": 1, "system": "BART"},
            }
        ],
    ),
    "bump": (
        "bump",
        [
            _ARTICLE | {"edited_summary": "E1.", "error_type": "Coreference Error"},
            _ARTICLE | {"edited_summary": "E2.", "error_type": "Extrinsic Entity"},
        ],
        [
            {"id": "7-reference", "case": "7", "source": "D.", "summary": "R.", "label": 1},
            _EDITED | {"id": "7-0", "summary": "E1.", "kind": "coreference"},
            _EDITED | {"id": "7-1", "summary": "E2.", "kind": "extrinsic entity"},
        ],
    ),
    "decisions of realsumm": (
        "realsumm",
        [
            {
                **{"doc_id": "d", "system": "m", "kind": "abs", "summary": "S."},
                **{"scu_index": 3, "scu": "U.", "label": True},
            }
        ],
        [
            {
                **{"id": "d-abs-m-3", "case": "d", "system": "m", "kind": "abs", "label": 1},
                **{"source": "S.", "summary": "U."},
            }
        ],
    ),
    "references of realsumm": (
        "realsumm",
        [{"id": "cnndm7", "reference": "Bo ran .", "scus": ["Bo ran."]}],
        [{"id": "cnndm7", "summary": "Bo ran .", "claims": ["Bo ran."]}],
    ),
    "responses of ragtruth": (
        "ragtruth",
        [
            _RESPONSE,
            _RESPONSE | {"source_id": 5, "implicit_true": True},
            _RESPONSE | {"source_id": 6, "due_to_null": True},
            _RESPONSE | {"level": "sentence"},
        ],
        [
            {
                **{"id": "4-m", "case": "4", "system": "m", "domain": "ragtruth_data2txt"},
                **{"source": "good for groups: yes\nopen wi fi: unknown\nreview info stars: 4.5"},
                **{"summary": "C.", "label": 0, "kind": ["evident conflict", "subtle conflict"]},
            }
        ],
    ),
    "sentences of ragtruth": (
        "ragtruth-sentences",
        [
            _RESPONSE,
            _SENTENCE,
            _SENTENCE | {"sentence": 2, "kind": "meta"},
        ],
        [
            {
                **{"id": "4-m-1", "case": "4", "system": "m", "domain": "ragtruth_qa"},
                **{"source": "P.", "summary": "C.", "label": 1, "kind": []},
            }
        ],
    ),
    "rose": (
        "rose",
        [{"id": 3, "reference": "A b.   C d.", "acu": ["A is b. ", "C d."]}],
        [{"id": "3", "summary": "A b. C d.", "claims": ["A is b.", "C d."]}],
    ),
    "factscore": (
        "factscore",
        [
            {
                "topic": "Ann",
                "annotations": [
                    {"text": "Ann sings.", "human-atomic-facts": [{"text": "She sings."}]},
                    {"text": "Hm.", "human-atomic-facts": None},
                ],
            },
            {"topic": "Bo", "annotations": None},
        ],
        [
            {"id": "Ann-0", "case": "Ann", "summary": "Ann sings.", "claims": ["She sings."]},
            {"id": "Ann-1", "case": "Ann", "summary": "Hm.", "claims": []},
        ],
    ),
    "factcheck-gpt": (
        "factcheck-gpt",
        [{"sentences": {"sentence1": {"text": "Bo ran.", "claims": ["Bo ran."]}}}],
        [{"id": "0-0", "case": "0", "summary": "Bo ran.", "claims": ["Bo ran."]}],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_row_becomes_a_record(case: str, tmp_path: Path):
    name, rows, expected = CASES[case]
    assert records_of(name, write_jsonl(tmp_path / "a.jsonl", rows), tmp_path) == expected


def test_cocotrip_with_and_without_synthetic_texts(tmp_path: Path):
    annotations = {"train": [_ENTITIES | _SUMMARIES | {"uid": []}], "dev": [], "test": []}
    path = tmp_path / "anno.json"
    path.write_text(json.dumps(annotations), encoding="utf-8")
    expected = {"id": "1_2", "split": "train", **_ENTITIES, **_SUMMARIES}
    assert records_of("cocotrip", path, tmp_path) == [expected]
    synthetic = {**_ENTITIES, "syn_low_contrast": "Low."}
    (tmp_path / "caspr_synthetic_dataset.json").write_text(json.dumps([synthetic]))
    assert records_of("cocotrip", tmp_path, tmp_path) == [expected | synthetic]


def test_summedits_joins_its_documents(tmp_path: Path):
    write_jsonl(tmp_path / "summedits_docs.jsonl", [{"doc_id": "d", "document": "D."}])
    row = {"doc_id": "d", "domain": "news", "summary": "S.", "label": 0, "edit_types": ["swap"]}
    write_jsonl(tmp_path / "summedits.jsonl", [row, row | {"label": 1}])
    texts = {"case": "d", "domain": "news", "source": "D.", "summary": "S."}
    assert records_of("summedits", tmp_path, tmp_path) == [
        {"id": "0", **texts, "label": 0, "kind": ["swap"]},
        {"id": "1", **texts, "label": 1, "kind": []},
    ]


@pytest.mark.parametrize(
    ("name", "path", "count"),
    [
        ("opinsummeval", "data/opinsummeval.jsonl", 1400),
        ("newsroom", "data/newsroom/newsroom_human_420.jsonl", 420),
        ("summeval", "data/summeval/summeval_expert_1600.jsonl", 1600),
        ("summac", "data/summac_benchmark", 5610),
        ("rose", "data/decomposition/rose_acu.parquet", 413),
        ("factscore", "data/decomposition/factscore.parquet", 3388),
        ("factcheck-gpt", "data/decomposition/factcheck_gpt.parquet", 245),
        ("realsumm", "data/decomposition/realsumm_scu.parquet", 80),
        ("bump", "data/claim_support/bump.parquet", 748 + 168),
        ("summedits", "data/claim_support", 3124),
    ],
)
def test_the_shared_data(name: str, path: str, count: int, tmp_path: Path):
    assert len(records_of(name, shared(path), tmp_path)) == count


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"summac"}))
def test_another_format_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [{"id": "1", "label": 1, "text": "t"}])
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(sys, "argv", ["readers", name, str(path), "--out", str(out)])
    with pytest.raises(SystemExit, match=rf"x.jsonl: this is not {name}: no .*; wanted: "):
        main()
    assert not out.exists()
