"""LS_Score's numbers: how likely a summary's tokens are, and its [CLS] cosine with the document.

Two passes over one model. `ls` is what the paper defines. `ls_padded` is what only the published
code counts, and costs a summary of 512 tokens each, so it is done where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from claimscore.metrics.linguistic_semantic import code_linguistic
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    pass_result,
    without_rejected,
)
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import TEXT_SCORES

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.ls_model import LSModel, PairNumbers

_Row = dict[str, Any]


class SummaryItem(NamedTuple):
    """A summary, beside one text of its record's other side where there is one."""

    id: str
    summary: str
    document: str = ""
    given_index: int | None = None


def ls_pass(given: PassInput) -> PassResult:
    """L of the summary and S with every text of the source; records with a blank side have none."""
    model: LSModel = given.model
    document_side, summary_side = given.need.sides
    documents = _texts(given, document_side)
    items = [
        SummaryItem(record, texts[0], document, index)
        for record, texts in _texts(given, summary_side).items()
        for index, document in enumerate(documents.get(record, ()))
    ]

    def ask(items: list[SummaryItem]) -> PairNumbers:
        pairs = [(item.document, item.summary) for item in items]
        return model.score(pairs, on_batch=given.listen(len(pairs)))

    items, numbers, failures = without_rejected("ls", items, ask)
    rows = _pair_rows(items, numbers, document_side, summary_side, model.head)
    return _result("ls", list(rows), failures, model.info)


def ls_padded_pass(given: PassInput) -> PassResult:
    """L as the published code computes it, over all positions of the padded summary."""
    model: LSModel = given.model
    if model.head != "ls":  # no likelihood: the metric says so
        return _result("ls_padded", [], [], model.info)
    (side,) = given.need.sides
    items = [SummaryItem(record, texts[0]) for record, texts in _texts(given, side).items()]

    def ask(items: list[SummaryItem]) -> list[list[float]]:
        texts = [item.summary for item in items]
        sums: list[list[float]] = model.padded_log_probs(
            texts, on_batch=given.listen(len(texts))
        ).tolist()
        return sums

    items, sums, failures = without_rejected("ls_padded", items, ask)
    rows = [
        _value(item.id, side, "linguistic_code", code_linguistic(log_prob, int(tokens)))
        for item, (log_prob, tokens) in zip(items, sums, strict=True)
    ]
    return _result("ls_padded", rows, failures, model.info)


def _texts(given: PassInput, side: str) -> dict[str, list[str]]:
    """The texts of a side that are not blank, by record, of records that are not broken."""
    found: dict[str, list[str]] = {}
    for item in side_texts(given.records, (side,)):
        if item.text.strip() and item.id not in given.broken:
            found.setdefault(item.id, []).append(item.text)
    return found


def _pair_rows(
    items: Sequence[SummaryItem],
    numbers: PairNumbers,
    document_side: str,
    summary_side: str,
    head: str,
) -> Iterator[_Row]:
    """The rows of each pair; those of the summary alone stand once, at its first document."""
    columns = {name: values.tolist() for name, values in numbers._asdict().items()}
    for i, item in enumerate(items):
        row = {name: values[i] for name, values in columns.items()}
        cut = row["summary_cut"] > 0
        if item.given_index == 0:
            if head == "ls":
                for part in ("linguistic", "linguistic_inner"):
                    yield _value(item.id, summary_side, part, row[part]) | {"truncated": cut}
            yield _value(item.id, summary_side, "tokens", row["summary_tokens"])
            yield _value(item.id, summary_side, "cut", row["summary_cut"])
        name = "semantic" if head == "ls" else "linear"
        beside = {
            "given_side": document_side,
            "given_index": item.given_index,
            "truncated": cut or row["document_cut"] > 0,
        }
        yield _value(item.id, summary_side, name, row[name]) | beside
        own = {"given_index": item.given_index}
        yield _value(item.id, document_side, "tokens", row["document_tokens"]) | own
        yield _value(item.id, document_side, "cut", row["document_cut"]) | own


def _value(record: str, side: str, name: str, value: float) -> _Row:
    return {"id": record, "side": side, "name": name, "value": float(value)}


def _result(measure: str, rows: list[_Row], failures: list[_Row], info: ModelInfo) -> PassResult:
    frame = TEXT_SCORES.frame(rows)
    return pass_result(TEXT_SCORES, frame, failures, info, measure=pl.lit(measure))


LS_PASS = ModelPass("ls", "ls_model", ls_pass)
LS_PADDED_PASS = ModelPass("ls_padded", "ls_model", ls_padded_pass, unit="texts")
