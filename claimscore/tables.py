"""The schema of every Parquet table, as code next to its description.

`docs/reference/tables.md` is written from here. A table is a folder of parts, one a chunk of
records; rows keep the order of the input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import polars as pl

from claimscore.errors import ConfigError

Columns = dict[str, pl.DataType]


def _columns(dtype: pl.DataType, names: str) -> Columns:
    return dict.fromkeys(names.split(), dtype)


_text, _boolean = partial(_columns, pl.String()), partial(_columns, pl.Boolean())
_float32, _float64 = partial(_columns, pl.Float32()), partial(_columns, pl.Float64())
_int32 = partial(_columns, pl.Int32())

#: Columns of every row that an LLM made.
LLM_PROVENANCE = _text("request_key prompt prompt_version prompt_digest model")

#: Columns of every row that an encoder made.
MODEL_PROVENANCE = _text("model revision dtype")


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

#: The columns of the records whose texts are on a side; each holds a text or a list of texts.
COLUMNS_OF: dict[str, tuple[str, ...]] = {
    **{side: (column,) for side, column in SIDE_COLUMNS.items()},
    SOURCE_SIDE: ("source", "sources"),
    REFERENCES_SIDE: ("references",),
}


def texts_on_side(row: Mapping[str, Any], side: str) -> list[str]:
    """The texts of one record on a side, in order; a null column has none, a null item is blank.
    `ConfigError` where a column has no texts: another program wrote the records."""
    texts: list[str] = []
    for column in COLUMNS_OF[side]:
        value = row.get(column)
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            texts += [text or "" for text in value]
        elif value is not None:
            raise ConfigError(f"record {row.get('id')!r}: its column {column} is no text")
    return texts


@dataclasses.dataclass(frozen=True)
class Table:
    """Name, columns and meaning of one table; the columns `filled` are never null."""

    name: str
    description: str
    schema: Columns
    filled: tuple[str, ...] = ("id",)

    def frame(self, rows: list[dict[str, object]]) -> pl.DataFrame:
        """Rows (dicts, missing columns are null) as a frame of exactly this schema."""
        return pl.DataFrame(rows, schema=self.schema)

    def empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.schema)


CLAIMS = Table(
    "claims",
    "Single claims of a text, in order; `sentence` is the sentence they come from. What is judged "
    "and scored leaves out a claim with `left_out` (`ambiguous`).",
    {
        **_text("id side"),
        **_int32("sentence_index claim_index"),
        **_text("text sentence left_out"),
        **LLM_PROVENANCE,
    },
    ("id", "side", "text"),
)

#: Why a claim is left out: the model could not decide what a pronoun or a name of it refers to.
AMBIGUOUS = "ambiguous"

Claims = TypeVar("Claims", pl.DataFrame, pl.LazyFrame)


def counted(claims: Claims) -> Claims:
    """The rows of the table `claims` that count: those that are not left out."""
    return claims.filter(pl.col("left_out").is_null())


CLAIM_CHECKS = Table(
    "claim_checks",
    "What looks wrong about a claim, or about the claims of a sentence (`claim_index` is null). "
    "`value` is a share (little_overlap, uncovered_words), the entailment (not_entailed) or a "
    "number of words (no_claims). Of repeat it is the earlier claim, of example_copy the prompt's "
    "example. Of entailed it is the highest entailment by a claim that counts; its place is "
    "`claim_position`, as in `support`.",
    {
        **_text("id side"),
        **_int32("sentence_index claim_index claim_position"),
        **_text("check"),
        **_float64("value"),
        **MODEL_PROVENANCE,
    },
)

PARAPHRASES = Table(
    "paraphrases",
    "Paraphrases of a sentence, or of the whole text (`sentence_index` is null); `sample` "
    "counts them.",
    {
        **_text("id side"),
        **_int32("sentence_index sample"),
        **_text("original text"),
        **LLM_PROVENANCE,
    },
)

NEGATIONS = Table(
    "negations",
    "level `claim`: the negation of a claim; level `sentence`: the negated claims of a sentence "
    "joined again (`claim_index` is null); `sample` counts them.",
    {
        **_text("id side level"),
        **_int32("sentence_index claim_index sample"),
        **_text("original text"),
        **LLM_PROVENANCE,
    },
)

FACTS = Table(
    "facts",
    "FactSim's tuples: a subject and a description of one word.",
    {**_text("id side"), **_int32("index"), **_text("subject description"), **LLM_PROVENANCE},
)

NLI = Table(
    "nli",
    "Probabilities of an NLI model for every two claims of two sides, in both directions. An index "
    "counts the side's claims without `left_out`.",
    {
        **_text("id premise_side"),
        **_int32("premise_index"),
        **_text("hypothesis_side"),
        **_int32("hypothesis_index"),
        **_text("direction"),
        **_float32("entailment neutral contradiction"),
        **_boolean("truncated"),
        **MODEL_PROVENANCE,
    },
    ("id", "premise_side", "hypothesis_side", "entailment", "neutral", "contradiction"),
)

TOKEN_SCORES = Table(
    "token_scores",
    "BERTScore of a candidate text against a reference text, and the model's baseline (null "
    "where it has none); `reference_index` counts the texts of a side that may have several.",
    {
        **_text("id candidate_side reference_side"),
        **_int32("reference_index"),
        **_float64("precision recall f1 baseline_precision baseline_recall baseline_f1"),
        **_int32("layer"),
        **_boolean("truncated"),
        **MODEL_PROVENANCE,
    },
)

BLOCK_NLI = Table(
    "block_nli",
    "Probabilities of an NLI model for every block of one text with every block of another. A cut "
    "is a granularity of SummaC, with `_punkt` for that splitter and `_code` where SummaC's code "
    "leaves blocks out.",
    {
        **_text("id premise_side premise_cut"),
        **_int32("premise_index"),
        **_text("hypothesis_side hypothesis_cut"),
        **_int32("hypothesis_index"),
        **_float32("entailment neutral contradiction"),
        **_boolean("truncated"),
        **MODEL_PROVENANCE,
    },
)

SUPPORT = Table(
    "support",
    "Whether a text supports a claim, as [faithfulness](../metrics/faithfulness.md) says. "
    "`claim_position` is the place of the claim among those of `side` in `claims` without "
    "`left_out` (`pl.int_range(pl.len()).over('id', 'side')`), `source_index` that of the text. "
    "`read` is the metric's `read` and `evidence`. `contradiction` is that of the evidence. "
    "`verifier` is nli (three labels), binary (two) or llm, whose evidence is a quotation. `votes` "
    "are those of several verifiers or samples; probability and contradiction are then their "
    "means, all else is of the surest vote with evidence, but the LLM columns are the language "
    "model's.",
    {
        **_text("id side"),
        **_int32("claim_position"),
        **_text("claim source_side"),
        **_int32("source_index"),
        **_text("read verdict"),
        **_float32("probability contradiction uncertainty"),
        **_int32("evidence_index"),
        **_text("evidence"),
        **_boolean("verbatim truncated"),
        "votes": pl.List(
            pl.Struct({**_text("verifier verdict"), **_float32("probability contradiction")})
        ),
        **_text("verifier"),
        **LLM_PROVENANCE,
        **MODEL_PROVENANCE,
    },
)

OPINIONS = Table(
    "opinions",
    "With a language model and another verifier: what the one that was asked first says, as in "
    "`support`; `threshold` is its own.",
    {**SUPPORT.schema, **_float64("threshold")},
)

SIMILARITIES = Table(
    "similarities",
    "The cosine of every unit of one side with every unit of another, by the sentence encoder.",
    {
        **_text("id unit row_side"),
        **_int32("row_index"),
        **_text("column_side"),
        **_int32("column_index"),
        **_float32("similarity"),
        **_boolean("truncated"),
        **MODEL_PROVENANCE,
    },
)

TEXT_SCORES = Table(
    "text_scores",
    "Numbers that a model gives a text, or a text beside another: `measure` is the pass, `name` "
    "one of its numbers; `given_index` counts the texts of a side that has several.",
    {
        **_text("id measure side given_side"),
        **_int32("given_index"),
        **_text("name"),
        **_float64("value"),
        **_boolean("truncated"),
        **MODEL_PROVENANCE,
    },
)

LLM_ANSWERS = Table(
    "llm_answers",
    "Answers of judge (`question` is the dimension) and of questions and answers (`side` is the "
    "text of the question, `index` its place among those of the side), as a JSON object.",
    {
        **_text("id task side"),
        **_int32("index sample"),
        **_text("question answer"),
        **LLM_PROVENANCE,
    },
)

FAILURES = Table(
    "failures",
    "What could not be done, with the reason; `raw` is the last answer that was refused.",
    {
        **_text("id stage side"),
        **_int32("index"),
        **_text("kind message"),
        **_int32("attempts"),
        **_text("request_key raw"),
    },
)

SCORES = Table(
    "scores",
    "One value a record and metric; `reason` says why a value is null; `components` is "
    "a JSON object of the metric's parts.",
    {**_text("id metric"), **_float64("value"), **_text("reason components signature")},
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
        OPINIONS,
        SIMILARITIES,
        TOKEN_SCORES,
        TEXT_SCORES,
        FAILURES,
        SCORES,
    )
}


def wide_scores(rows: pl.DataFrame) -> pl.DataFrame:
    """Scores as a row a record, in their order: `id`, a column a metric, and `reason`, which says
    why a value is null."""
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    values = rows.pivot(on="metric", index="id", values="value", maintain_order=True)
    missing = rows.filter(pl.col("value").is_null())
    reasons = missing.group_by("id", maintain_order=True).agg(
        pl.format("{}: {}", "metric", "reason").str.join("; ").alias("reason")
    )
    joined = values.join(reasons, on="id", how="left", maintain_order="left")
    return joined.select("id", *metrics, "reason")
