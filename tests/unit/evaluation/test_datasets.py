"""Converters: every published format, and that both forms of a data set agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.caspr_experiment import read_annotated
from claimscore.evaluation.datasets import CONVERTERS, convert
from claimscore.records.dataset import prepare
from tests.support.rated_tables import write_jsonl
from tests.support.shared_data import shared

DIMENSIONS = ("asp_rel", "self_coh", "sent_con", "readblty")


def converted(name: str, source: Path, folder: Path) -> list[dict[str, Any]]:
    out = folder / "out.jsonl"
    count = convert(name, source, out)
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(records) == count
    prepare(str(out), spool=folder / "spool", required={})  # they are records
    return records


def test_opinsummeval_folder_and_file_agree(tmp_path: Path):
    first, second = (dict.fromkeys(DIMENSIONS, 4.0), dict.fromkeys(DIMENSIONS, 3.0))
    folder = tmp_path / "metric_evaluation"
    folder.mkdir()
    scores = {"bart": {"R1_F1": 0.3, "annot1": first, "annot2": second}, "case": 7}
    write_jsonl(folder / "scores.jsonl", [scores])
    texts = {"revs": {"rev1": "Good.", "rev2": "Bad."}, "summ": "Mixed.", "case": 7}
    write_jsonl(folder / "14model_outputs.jsonl", [{**texts, "model_output": {"bart": "So so."}}])
    output = {
        "summary": "So so.",
        "human_annotator1": first,
        "human_annotator2": second,
        "scores": {"R1_F1": 0.3},
    }
    joined = {"case": 7, "reviews": ["Good.", "Bad."], "reference": "Mixed."}
    file = write_jsonl(tmp_path / "j.jsonl", [{**joined, "systems": {"bart": output}}])
    expected = {
        "id": "7-bart",
        "case": "7",
        "system": "bart",
        "sources": ["Good.", "Bad."],
        "references": ["Mixed."],
        "summary": "So so.",
        "ratings": dict.fromkeys(DIMENSIONS, 3.5),
        "R1_F1": 0.3,
    }
    assert converted("opinsummeval", folder, tmp_path) == [expected]
    assert converted("opinsummeval", file, tmp_path) == [expected]


def test_cocotrip_with_and_without_synthetic_texts(tmp_path: Path):
    pair = {"entity_a": "1", "entity_b": "2", "entity_a_uid": []}
    texts = {f"entity_{side}_summary": [f"{side} one.", f"{side} two."] for side in "ab"}
    other = {**pair, "entity_b": "3", **texts}
    annotations = {"train": [{**pair, **texts}], "dev": [], "test": [other]}
    path = tmp_path / "anno.json"
    path.write_text(json.dumps(annotations), encoding="utf-8")
    expected = [
        {"id": "1_2", "split": "train", "entity_a": "1", "entity_b": "2", **texts},
        {"id": "1_3", "split": "test", "entity_a": "1", "entity_b": "3", **texts},
    ]
    assert converted("cocotrip", path, tmp_path) == expected
    assert converted("cocotrip", tmp_path, tmp_path) == expected
    synthetic = {"entity_a": "1", "entity_b": "3", "syn_low_contrast": "Low."}
    (tmp_path / "caspr_synthetic_dataset.json").write_text(json.dumps([synthetic]))
    expected[1]["syn_low_contrast"] = "Low."
    assert converted("cocotrip", tmp_path, tmp_path) == expected
    assert len(read_annotated(str(tmp_path / "out.jsonl"))) == 2


def test_bump_names_the_twin_of_each_edited_summary(tmp_path: Path):
    edits = [("E1.", "Coreference Error"), ("E2.", "Extrinsic Entity")]
    common = {"article_id": 7, "article": "D.", "reference_summary": "R."}
    rows = [common | {"edited_summary": text, "error_type": kind} for text, kind in edits]
    texts = {"case": "7", "source": "D."}
    twin = {"label": 0, "twin": "7-reference"}
    assert converted("bump", write_jsonl(tmp_path / "a.jsonl", rows), tmp_path) == [
        {"id": "7-reference", **texts, "summary": "R.", "label": 1},
        {"id": "7-0", **texts, "summary": "E1.", "kind": "coreference", **twin},
        {"id": "7-1", **texts, "summary": "E2.", "kind": "extrinsic entity", **twin},
    ]


def test_summedits_and_the_decisions_of_realsumm(tmp_path: Path):
    write_jsonl(tmp_path / "summedits_docs.jsonl", [{"doc_id": "d", "document": "D."}])
    row = {"doc_id": "d", "domain": "news", "summary": "S.", "label": 0, "edit_types": ["swap"]}
    write_jsonl(tmp_path / "summedits.jsonl", [row, row | {"label": 1}])
    first, second = converted("summedits", tmp_path, tmp_path)
    texts = {"case": "d", "domain": "news", "source": "D.", "summary": "S."}
    assert first == {"id": "0", **texts, "label": 0, "kind": ["swap"]}
    assert second == {"id": "1", **texts, "label": 1, "kind": []}
    decision = {"doc_id": "d", "system": "m", "kind": "abs", "summary": "S.", "scu_index": 3}
    decision |= {"scu": "U.", "label": True}
    (found,) = converted("realsumm", write_jsonl(tmp_path / "r.jsonl", [decision]), tmp_path)
    assert found == {
        **{"id": "d-abs-m-3", "case": "d", "system": "m", "kind": "abs", "label": 1},
        **{"source": "S.", "summary": "U."},
    }


def test_newsroom_csv(tmp_path: Path):
    path = tmp_path / "newsroom-human-eval.csv"
    names = ("coherence", "fluency", "informativeness", "relevance")
    header = ("ArticleID", "System", "ArticleTitle", "ArticleText", "SystemSummary")
    lines = [",".join((*header, *(f"{name.capitalize()}Rating" for name in names)))]
    lines += [
        f"8,lede3,T,A &amp; B,It&#39;s A,{given}" for given in ("4,3,5,1", "4,4,5,1", "4,5,2,1")
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert converted("newsroom", path, tmp_path) == [
        {
            **{"id": "8-lede3", "case": "8", "system": "lede3", "source": "A & B"},
            **{"summary": "It's A", "ratings": dict(zip(names, (4, 4, 4, 1), strict=True))},
        }
    ]


def test_summeval_both_forms(tmp_path: Path):
    experts = [{"coherence": n, "consistency": 5} for n in (1, 2, 3)]
    paired = {
        "id": "dm-1",
        "model_id": "M0",
        "decoded": "S.",
        "text": "Doc.",
        "references": ["R."],
        "expert_annotations": experts,
    }
    means = {"coherence": 2.0, "consistency": 5.0}
    joined = {
        "id": "dm-1",
        "document": "Doc.",
        "references": ["R."],
        "systems": {"M0": {"summary": "S.", "expert_mean": means}},
    }
    first = converted("summeval", write_jsonl(tmp_path / "a.jsonl", [paired]), tmp_path)
    assert first == converted("summeval", write_jsonl(tmp_path / "b.jsonl", [joined]), tmp_path)
    assert first[0]["ratings"] == means


def test_summac_in_all_forms(tmp_path: Path):
    row = {"document": "Doc.", "claim": "S.", "label": 1, "cut": "test", "model_name": "BART"}
    expected = {
        "id": "cogensumm-test-0000",
        "dataset": "cogensumm",
        "split": "test",
        "source": "Doc.",
        "summary": "S.",
        "label": 1,
        "system": "BART",
    }
    tree = tmp_path / "a.json"
    tree.write_text(json.dumps([{"name": "cogensumm", "dataset": [row]}]))
    rows = tmp_path / "b.json"
    rows.write_text(json.dumps([{**row, "dataset": "cogensum"}]))
    folder = tmp_path / "folder"
    folder.mkdir()
    write_jsonl(folder / "c.jsonl", [{**row, "dataset": "cogensumm"}])
    write_jsonl(folder / "qags.jsonl", [{"document": "D", "claim": "C", "fact_score": 0.5}])
    for source in (tree, rows, folder):
        assert converted("summac", source, tmp_path) == [expected]


@pytest.mark.parametrize(
    ("name", "path", "count"),
    [
        pytest.param("opinsummeval", "data/opinsummeval.jsonl", 1400, id="opinsummeval"),
        pytest.param("newsroom", "data/newsroom/newsroom_human_420.jsonl", 420, id="newsroom"),
        pytest.param("summac", "data/summac_benchmark/frank_val.jsonl", 664, id="summac"),
    ],
)
def test_the_shared_data(name: str, path: str, count: int, tmp_path: Path):
    assert len(converted(name, shared(path), tmp_path)) == count


HUMAN_CLAIMS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "rose": (
        "acu.json",
        '[{"id": 3, "reference": "A b.   C d.", "acu": ["A is b. ", "C d."]}]',
        [{"id": "3", "summary": "A b. C d.", "claims": ["A is b.", "C d."]}],
    ),
    "factscore": (
        "ChatGPT.jsonl",
        '{"topic": "Ann", "annotations": [{"text": "Ann sings.", "human-atomic-facts": '
        '[{"text": "Ann sings.", "label": "S"}]}, {"text": "Hm.", "human-atomic-facts": null}]}\n'
        '{"topic": "Bo", "annotations": null}',
        [
            {"id": "Ann-0", "case": "Ann", "summary": "Ann sings.", "claims": ["Ann sings."]},
            {"id": "Ann-1", "case": "Ann", "summary": "Hm.", "claims": []},
        ],
    ),
    "factcheck-gpt": (
        "benchmark.jsonl",
        '{"sentences": {"sentence1": {"text": "Bo ran.", "claims": ["Bo ran."]}}}',
        [{"id": "0-0", "case": "0", "summary": "Bo ran.", "claims": ["Bo ran."]}],
    ),
    "carb": (
        "dev.tsv",
        "Bo ate pie .\tate\tBo\tpie\nBo ate pie .\twas eaten by\tpie\tBo\t\n",
        [{"id": "0", "summary": "Bo ate pie .", "claims": ["Bo ate pie", "pie was eaten by Bo"]}],
    ),
}


@pytest.mark.parametrize("name", HUMAN_CLAIMS)
def test_human_claims(name: str, tmp_path: Path):
    file, content, expected = HUMAN_CLAIMS[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert converted(name, tmp_path / file, tmp_path) == expected


def test_realsumm_joins_references_and_units(tmp_path: Path):
    chosen = tmp_path / "selected_docs_for_human_eval"
    (chosen / "abs" / "bart").mkdir(parents=True)
    (chosen / "selected_documents.md").write_text("# Set\n\n[7, 5]\n", encoding="utf-8")
    references = "<t> Bo ran . </t> <t> Al sat . </t>\nCy won .\n"
    (chosen / "abs" / "bart" / "ref.txt").write_text(references, encoding="utf-8")
    units = tmp_path / "human_annotations" / "SCUs_and_annotations"
    units.mkdir(parents=True)
    rows = "cnndm5,Cy won.,Y\ncnndm7,Bo ran.,Y\ncnndm7,BLANK,N\n"
    (units / "SCUs_list.csv").write_text("eventId,questionText,answer\n" + rows, encoding="utf-8")
    assert converted("realsumm", tmp_path, tmp_path) == [
        {"id": "cnndm7", "summary": "Bo ran . Al sat .", "claims": ["Bo ran."]},
        {"id": "cnndm5", "summary": "Cy won .", "claims": ["Cy won."]},
    ]


@pytest.mark.parametrize("name", sorted(CONVERTERS.keys() - {"carb", "realsumm", "rose"}))
def test_another_format_is_named(name: str, tmp_path: Path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"id": "1", "label": 1, "text": "t"}])
    out = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=rf"x.jsonl: record 1 is not in a format of {name}: no '"):
        convert(name, path, out)
    assert not out.exists()


def test_a_table_in_place_of_the_authors_json(tmp_path: Path):
    path = tmp_path / "rose.parquet"
    path.write_bytes(b"PAR1\xd0\xff")
    with pytest.raises(InputError, match=r"is no JSON; wanted: RoSE .*acu-cnndm"):
        convert("rose", path, tmp_path / "out.jsonl")


def test_unknown_or_empty(tmp_path: Path):
    with pytest.raises(ConfigError, match="known: opinsummeval, newsroom, summeval, summac"):
        convert("frank", tmp_path, tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="there are no records"):
        convert("summac", write_jsonl(tmp_path / "e.jsonl", []), tmp_path / "out.jsonl")
