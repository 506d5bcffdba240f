"""What holds for every metric, over one record that has rows in all tables."""

import json
import random
from typing import Any

import pytest

from claimscore.metrics import METRICS, load_metric
from claimscore.metrics.base import ChunkTables, Metric, signature
from tests.support.frames import (
    answer,
    block_rows,
    claim_rows,
    cosine,
    fact_cells,
    fact_rows,
    nli_rows,
    number,
    support_rows,
    tables,
    token_row,
)

Rows = dict[str, list[dict[str, Any]]]

LONG = "A clean hotel near the long beach."
TEXTS: dict[str, Any] = {
    "summary_a": "The rooms were clean.",
    "summary_b": "The rooms were noisy.",
    "summary_common": "The rooms were small.",
    "summary": LONG,
    "source": f"{LONG} It rained.",
    "references": [LONG],
}

#: After the name and `|v1`, what a signature holds; `*` is a fact of the run. Those of the other
#: metrics are in `tests/e2e/contract/scores.json`.
SIGNATURES = {
    "meteor": "|against:references|multi:max|synonyms:wordnet-3.0|splitter:rules-4|claimscore:*",
    "ner-overlap": "|ner:en_core_web_sm|types:all|measure:precision|claimscore:*",
    "factcc": "|multi:max|verifier:*|dtype:*|claimscore:*",
    "supert": (
        "|measure:f1|multi:mean|sentences:15|splitter:rules-4|token_encoder:*|layer:*|dtype:*"
        "|claimscore:*"
    ),
    "blanc": (
        "|variant:help|measure:relative|gap:6|splitter:rules-4|masked_lm:*|dtype:*|claimscore:*"
    ),
}

#: Metrics that are scored here; the others need WordNet, spaCy or weights.
SCORED = [name for name in METRICS if name not in ("meteor", "ner-overlap", "summac-conv")]


def rows_of(record: str) -> Rows:
    source, reference = ("source", 0), ("references", 0)
    against = {"candidate_side": "summary", "reference_side": "references", "reference_index": 0}
    verdict = [[[0.6, 0.3, 0.1]]]
    answers = [answer("judge", "summary", i, {"score": 4, "probabilities": None}) for i in range(4)]
    for side in ("summary", "source"):
        answers += [answer(task, side, 0, {"answer": "a"}) for task in ("questions", "answers")]
    rows: Rows = {
        "claims": [
            *claim_rows(record, 2, 1),
            *({"side": side, "text": "t"} for side in ("summary", "references")),
        ],
        "support": [
            *support_rows(record, [[0.9]]),
            *support_rows(record, [[0.9]], sides=("references", "summary")),
        ],
        "nli": nli_rows(record, [["neutral"], ["entailment"]], [["neutral"] * 2]),
        "facts": fact_rows(record, 1, 1),
        "similarities": [
            *fact_cells(record, [[0.5]]),
            cosine(("summary", "references"), (0, 0), 0.5),
        ],
        "token_scores": [token_row(record, 0.5), token_row(record, 0.5, **against)],
        "text_scores": [
            number("perplexity", "log_likelihood", -9.0),
            number("perplexity", "tokens", 3.0),
            number("bart_score", "log_likelihood", -9.0, source),
            number("bart_score", "tokens", 3.0, source),
            number("supert", "f1", 0.5, source),
            number("factcc", "supported", 0.5, source),
            number("blanc_help", "neither", 3.0, source),
            number("blanc_help", "helped", 2.0, source),
            number("ls", "linguistic", -9.0, source),
            number("ls", "linguistic_inner", -9.0, source),
            number("ls", "summary_tokens", 8.0, source),
            number("ls", "summary_cut", 0.0, source),
            number("ls", "semantic", 0.5, source),
            number("sentence_movers", "wms", 0.5, reference),
            number("sentence_movers", "sms", 0.5, reference),
            number("mover_score", "paper-1", 0.5, reference),
        ],
        "block_nli": [
            *block_rows(record, verdict),
            *block_rows(record, verdict, ("document", "document")),
        ],
        "llm_answers": answers,
    }
    return {table: [row | {"id": record} for row in of_table] for table, of_table in rows.items()}


def score(metric: Metric, rows: Rows, *records: dict[str, Any], **more: Any) -> list[Any]:
    columns = {name: TEXTS[name] for name in metric.requires.columns}
    return metric.score(tables([columns | record for record in records], **rows, **more))


@pytest.mark.parametrize("name", SCORED)
def test_declared_columns_and_tables_make_a_score_in_the_range(name: str) -> None:
    """Whatever the order of the rows, and whatever other records are in the tables."""
    metric, rows = load_metric(name), rows_of("x")
    rows = {table: of_table + rows_of("y")[table] for table, of_table in rows.items()}
    (first,) = score(metric, rows, {"id": "x"})
    assert first.reason is None
    assert metric.range[0] <= first.value <= metric.range[1]
    json.dumps(first.components)
    for of_table in rows.values():
        random.Random(0).shuffle(of_table)
    again = score(metric, rows, {"id": "y"}, {"id": "x"})
    assert [one.id for one in again] == ["y", "x"]
    assert [one.value for one in again] == [pytest.approx(first.value)] * 2


@pytest.mark.parametrize(
    ("name", "column"),
    [(name, column) for name in METRICS for column in load_metric(name).requires.columns],
)
@pytest.mark.parametrize("blank", [None, " "], ids=["null", "blank"])
def test_a_blank_text_is_null_with_a_reason(name: str, column: str, blank: str | None) -> None:
    value = [blank] if column == "references" and blank else blank
    (found,) = score(load_metric(name), {}, {"id": "x", column: value})
    assert found.value is None
    first = "no weights" if name == "summac-conv" else f"no text in {column}"
    assert found.reason == first


@pytest.mark.parametrize("with_side", [True, False], ids=["of a side", "of the record"])
@pytest.mark.parametrize(
    ("name", "stage"),
    [(name, stage) for name in SCORED for stage in load_metric(name).requires.stages],
)
def test_a_failed_stage_is_the_reason(name: str, stage: str, with_side: bool) -> None:
    """Even where rows are there; failures of other records and stages do not matter."""
    metric, rows = load_metric(name), rows_of("x")
    if metric.name in ("summac-zs", "mnli-doc"):  # complete matrices are scored
        rows = {}
    failure = {"id": "x", "stage": stage, "message": "too long"}
    if with_side or name in ("llm-judge", "qa"):  # whose questions belong to a side
        failure |= {"side": max(metric.requires.sides_of_stages[stage]), "index": 0}
    others = [{**failure, "id": "y"}, {**failure, "stage": "other"}]
    (found,) = score(metric, rows, {"id": "x"}, failures=[*others, failure])
    assert found.value is None
    assert found.reason.startswith(f"{stage} failed")
    assert found.reason.endswith(": too long")
    if rows:
        assert score(metric, rows, {"id": "x"}, failures=others)[0].value is not None


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_says_what_it_is(name: str) -> None:
    metric = load_metric(name)
    assert metric.name == name
    assert metric.description
    assert metric.reference
    assert metric.range[0] < metric.range[1]
    facts = dict.fromkeys(metric.signature_keys, "*")
    found = signature(metric, facts)
    assert found == f"{name}|v1{SIGNATURES.get(name, found.removeprefix(f'{name}|v1'))}"
    whole = tables([{"id": "x", **TEXTS}])
    assert metric.score(ChunkTables(lambda table: whole[table].clear())) == []
