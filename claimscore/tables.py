"""The schema of every Parquet table, as code next to its description.

`docs/reference/tables.md` is written from here. A table is a folder of parts, one a chunk of
records; rows keep the order of the input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import polars as pl

#: Columns of every row that an LLM made.
LLM_PROVENANCE: dict[str, pl.DataType] = {
    "request_key": pl.String(),
    "prompt": pl.String(),
    "prompt_version": pl.String(),
    "prompt_digest": pl.String(),
    "model": pl.String(),
}

#: Columns of every row that an encoder made.
MODEL_PROVENANCE: dict[str, pl.DataType] = {
    "model": pl.String(),
    "revision": pl.String(),
    "dtype": pl.String(),
}


#: The column of the records that each side is taken from, in the order sides are shown.
SIDE_COLUMNS: dict[str, str] = {
    "a": "summary_a",
    "b": "summary_b",
    "common": "summary_common",
    "summary": "summary",
}

#: The side of the columns `source` and `sources`.
SOURCE_SIDE = "source"

#: The side of the column `references`.
REFERENCES_SIDE = "references"

#: The columns of the records whose texts are on one side; each holds a text or a list of texts.
_LIST_COLUMNS = {SOURCE_SIDE: ("source", "sources"), REFERENCES_SIDE: ("references",)}


def texts_on_side(row: Mapping[str, Any], side: str) -> list[str]:
    """The texts of one record on a side, in order; a null column has none, a null item is blank."""
    found: list[str] = []
    for column in _LIST_COLUMNS.get(side) or (SIDE_COLUMNS[side],):
        value = row.get(column)
        if isinstance(value, str):
            found.append(value)
        elif value is not None:
            found += [text or "" for text in value]
    return found


@dataclasses.dataclass(frozen=True)
class Table:
    """Name, columns and meaning of one table."""

    name: str
    description: str
    schema: dict[str, pl.DataType]

    def frame(self, rows: list[dict[str, object]]) -> pl.DataFrame:
        """Rows (dicts, missing columns are null) as a frame of exactly this schema."""
        return pl.DataFrame(rows, schema=self.schema)

    def empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.schema)


CLAIMS = Table(
    "claims",
    "Single claims of a text, in order; `sentence` is the sentence they come from.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "sentence_index": pl.Int32(),
        "claim_index": pl.Int32(),
        "text": pl.String(),
        "sentence": pl.String(),
        **LLM_PROVENANCE,
    },
)

CLAIM_CHECKS = Table(
    "claim_checks",
    "What looks wrong about a claim, or about the claims of a sentence (`claim_index` is null). "
    "`value` is a share (little_overlap, uncovered_words), the entailment (not_entailed), the "
    "number of words (no_claims), the number of the earlier claim (repeat) or of the prompt's "
    "example (example_copy), else null.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "sentence_index": pl.Int32(),
        "claim_index": pl.Int32(),
        "check": pl.String(),
        "value": pl.Float64(),
        **MODEL_PROVENANCE,
    },
)

PARAPHRASES = Table(
    "paraphrases",
    "Paraphrases of a sentence, or of the whole text (`sentence_index` is null); `sample` "
    "counts them.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "sentence_index": pl.Int32(),
        "sample": pl.Int32(),
        "original": pl.String(),
        "text": pl.String(),
        **LLM_PROVENANCE,
    },
)

NEGATIONS = Table(
    "negations",
    "level `claim`: the negation of a claim; level `sentence`: the negated claims of a sentence "
    "joined again (`claim_index` is null); `sample` counts them.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "level": pl.String(),
        "sentence_index": pl.Int32(),
        "claim_index": pl.Int32(),
        "sample": pl.Int32(),
        "original": pl.String(),
        "text": pl.String(),
        **LLM_PROVENANCE,
    },
)

FACTS = Table(
    "facts",
    "FactSim's tuples: a subject and a description of one word.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "index": pl.Int32(),
        "subject": pl.String(),
        "description": pl.String(),
        **LLM_PROVENANCE,
    },
)

NLI = Table(
    "nli",
    "Probabilities of an NLI model for every claim of one side with every claim of the other, "
    "in both directions; an index is a position among the side's claims.",
    {
        "id": pl.String(),
        "premise_side": pl.String(),
        "premise_index": pl.Int32(),
        "hypothesis_side": pl.String(),
        "hypothesis_index": pl.Int32(),
        "direction": pl.String(),
        "entailment": pl.Float32(),
        "neutral": pl.Float32(),
        "contradiction": pl.Float32(),
        "truncated": pl.Boolean(),
        **MODEL_PROVENANCE,
    },
)

TOKEN_SCORES = Table(
    "token_scores",
    "BERTScore of a candidate text against a reference text, and the model's baseline (null "
    "where it has none); `reference_index` counts the texts of a side that may have several.",
    {
        "id": pl.String(),
        "candidate_side": pl.String(),
        "reference_side": pl.String(),
        "reference_index": pl.Int32(),
        "precision": pl.Float64(),
        "recall": pl.Float64(),
        "f1": pl.Float64(),
        "baseline_precision": pl.Float64(),
        "baseline_recall": pl.Float64(),
        "baseline_f1": pl.Float64(),
        "layer": pl.Int32(),
        "truncated": pl.Boolean(),
        **MODEL_PROVENANCE,
    },
)

BLOCK_NLI = Table(
    "block_nli",
    "Probabilities of an NLI model for every block of one text (the premise) with every block "
    "of another; a cut is a granularity of SummaC, with `_punkt` for that splitter and `_code` "
    "where blocks are left out as in SummaC's code.",
    {
        "id": pl.String(),
        "premise_side": pl.String(),
        "premise_cut": pl.String(),
        "premise_index": pl.Int32(),
        "hypothesis_side": pl.String(),
        "hypothesis_cut": pl.String(),
        "hypothesis_index": pl.Int32(),
        "entailment": pl.Float32(),
        "neutral": pl.Float32(),
        "contradiction": pl.Float32(),
        "truncated": pl.Boolean(),
        **MODEL_PROVENANCE,
    },
)

SUPPORT = Table(
    "support",
    "Whether a text supports a claim, as metric faithfulness says. `claim_position` is the "
    "place of the claim among those of `side` in `claims` (`pl.int_range(pl.len()).over('id', "
    "'side')`), `source_index` that of the text. `verdict` is supported, contradicted or "
    "unmentioned. `contradiction` is that of the evidence. `verifier` is nli (three labels), "
    "binary (two) or llm, whose evidence is quoted, and null where the text does not have it.",
    {
        "id": pl.String(),
        "side": pl.String(),
        "claim_position": pl.Int32(),
        "claim": pl.String(),
        "source_side": pl.String(),
        "source_index": pl.Int32(),
        "read": pl.String(),
        "verdict": pl.String(),
        "probability": pl.Float32(),
        "contradiction": pl.Float32(),
        "evidence_index": pl.Int32(),
        "evidence": pl.String(),
        "truncated": pl.Boolean(),
        "verifier": pl.String(),
        **LLM_PROVENANCE,
        **MODEL_PROVENANCE,
    },
)

SIMILARITIES = Table(
    "similarities",
    "The cosine of every unit of one side with every unit of another, by the sentence encoder.",
    {
        "id": pl.String(),
        "unit": pl.String(),
        "row_side": pl.String(),
        "row_index": pl.Int32(),
        "column_side": pl.String(),
        "column_index": pl.Int32(),
        "similarity": pl.Float32(),
        "truncated": pl.Boolean(),
        **MODEL_PROVENANCE,
    },
)

TEXT_SCORES = Table(
    "text_scores",
    "Numbers that a model gives a text, or a text beside another: `measure` is the pass, `name` "
    "one of its numbers; `given_index` counts the texts of a side that has several.",
    {
        "id": pl.String(),
        "measure": pl.String(),
        "side": pl.String(),
        "given_side": pl.String(),
        "given_index": pl.Int32(),
        "name": pl.String(),
        "value": pl.Float64(),
        "truncated": pl.Boolean(),
        **MODEL_PROVENANCE,
    },
)

LLM_ANSWERS = Table(
    "llm_answers",
    "Checked answers of tasks without a table of their own, as a JSON object. Of judge, "
    "`question` is the dimension. Of questions and answers, `side` is the text that the "
    "question was made from, and `index` its place among that side's questions.",
    {
        "id": pl.String(),
        "task": pl.String(),
        "side": pl.String(),
        "index": pl.Int32(),
        "sample": pl.Int32(),
        "question": pl.String(),
        "answer": pl.String(),
        **LLM_PROVENANCE,
    },
)

FAILURES = Table(
    "failures",
    "What could not be done, with the reason; `raw` is the last answer that was refused.",
    {
        "id": pl.String(),
        "stage": pl.String(),
        "side": pl.String(),
        "index": pl.Int32(),
        "kind": pl.String(),
        "message": pl.String(),
        "attempts": pl.Int32(),
        "request_key": pl.String(),
        "raw": pl.String(),
    },
)

SCORES = Table(
    "scores",
    "One value a record and metric; `reason` says why a value is null; `components` is "
    "a JSON object of the metric's parts.",
    {
        "id": pl.String(),
        "metric": pl.String(),
        "value": pl.Float64(),
        "reason": pl.String(),
        "components": pl.String(),
        "signature": pl.String(),
    },
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        CLAIMS,
        CLAIM_CHECKS,
        PARAPHRASES,
        NEGATIONS,
        FACTS,
        LLM_ANSWERS,
        NLI,
        BLOCK_NLI,
        SUPPORT,
        SIMILARITIES,
        TOKEN_SCORES,
        TEXT_SCORES,
        FAILURES,
        SCORES,
    )
}
