"""`claimscore evaluate factsim`: the examples of the FactSim paper, its figures beside one's own.

The reader brings the examples, because they are the paper's: its Table 1 (sentences and their
tuples), Table 2 (claims, their tuples and FactSim) and a product with its reviews and summaries.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import AfterValidator, AliasChoices, BaseModel, Field, ValidationError

from claimscore.atomic import os_errors
from claimscore.config import RunConfig
from claimscore.errors import InputError
from claimscore.evaluation.result import EvaluationResult, Section, fixed, write_rows
from claimscore.metrics.fact_similarity import facts_by_side, factsim
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.run import OnProgress, RunResult, run
from claimscore.runs import RunDirectory

logger = logging.getLogger("claimscore")

#: The folder, inside that of the evaluation, of the run that scores the texts.
SCORED = "run"

PARTS = {"table1": "Table 1", "table2": "Table 2"}
PRODUCTS = ("figure3", "figure4", "product")
SUMMARIES = ("summary", "gpt35_summary_from_paper_appendix_B")

_TEXT, _NUMBER = pl.String(), pl.Float64()
TEXT_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("part", "text", "published_facts", "facts"), _TEXT),
    **dict.fromkeys(("published", "of_published_facts", "factsim"), _NUMBER),
    "reason": _TEXT,
}
PRODUCT_SCHEMA: dict[str, pl.DataType] = {
    "text": _TEXT,
    **dict.fromkeys(("coverage", "consistency", "factsim"), _NUMBER),
    **dict.fromkeys(("n_reviews", "n_text"), pl.Int64()),
    **dict.fromkeys(("unsupported", "reason"), _TEXT),
}


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


_FilledText = Annotated[str, AfterValidator(_filled)]


class ExampleText(BaseModel):
    """A text of a table with its facts, ``(subject, description)`` in the paper's words."""

    text: _FilledText = Field(validation_alias=AliasChoices("sentence", "claim"))
    tuples: list[tuple[str, str]]
    published: float | None = Field(None, validation_alias="factsim")

    @property
    def facts(self) -> list[str]:
        return [" ".join(fact) for fact in self.tuples]


class ExampleProduct(BaseModel):
    """Reviews, and the texts that are compared with them."""

    reviews: list[_FilledText] = Field(min_length=1)
    summary: _FilledText | None = Field(None, validation_alias=AliasChoices(*SUMMARIES))
    references: list[_FilledText] = []

    @property
    def texts(self) -> dict[str, str]:
        named = {f"reference {n}": text for n, text in enumerate(self.references, 1)}
        return {"summary": self.summary, **named} if self.summary else named


class PaperExamples(BaseModel):
    """The content of a file; any part may be missing."""

    table1: list[ExampleText] = []
    table2: list[ExampleText] = []
    product: ExampleProduct | None = Field(None, validation_alias=AliasChoices(*PRODUCTS))

    def rows(self) -> Iterator[tuple[str, str, ExampleText, ExampleText]]:
        """Id, table, text and the first text of its table."""
        for part, examples in (("table1", self.table1), ("table2", self.table2)):
            for number, example in enumerate(examples, 1):
                yield f"{part}/{number}", part, example, examples[0]


@dataclasses.dataclass(frozen=True)
class FactSimResult(EvaluationResult):
    """`texts` has a row a text of the tables, `product` one a text about the product."""

    name = "factsim"
    title = "FactSim's examples"

    config: RunConfig
    run: RunResult
    model: str
    texts: pl.DataFrame
    product: pl.DataFrame

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"texts": self.texts, "product": self.product}

    def sections(self) -> Sequence[Section]:
        """The two tables beside the paper's, then the product."""
        model = f"facts by {self.config.llm.model}, sentence encoder {self.model}"
        found = []
        for part, title in PARTS.items():
            rows = self.texts.filter(part=part)
            if rows.height:
                found.append(_text_section(rows, title, model))
        if self.product.height:
            found.append(_product_section(self.product, model))
        return found


def read_examples(path: Path) -> PaperExamples:
    """The examples of a JSON file; `InputError` where it is not of that form."""
    with os_errors(path):
        content = path.read_bytes()
    try:
        found = PaperExamples.model_validate_json(content)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        where = ", ".join(f"item {n + 1}" if isinstance(n, int) else n for n in first["loc"])
        reason = f"{where}: {first['msg']}" if where else first["msg"]
    else:
        if not (found.table1 or found.table2 or found.product):
            reason = f"none of {', '.join((*PARTS, *PRODUCTS))} is there"
        elif found.product and not found.product.texts:
            reason = "a product needs reviews and a summary or references"
        else:
            return found
    raise InputError(f"{path}: not the examples of the FactSim paper: {reason}")


def factsim_examples(config: RunConfig, on_progress: OnProgress | None = None) -> FactSimResult:
    """FactSim of the examples in `config.input`, by one run in the folder `config.out`.

    Each text of a table is compared with the first one of its table, as in the paper's Table 2:
    by the paper's own facts, and by those that the language model finds. A summary or reference
    of the product is compared with its reviews. Resumed like any run; raises as `claimscore.run`,
    and `InputError` for a file that is not of this form.
    """
    examples = read_examples(Path(config.input))
    source = write_rows(config.folder / "examples.jsonl", _records(examples))
    scoring = dataclasses.replace(
        config, input=str(source), out=config.folder / SCORED, metrics=("factsim",), tasks=()
    )
    result = run(scoring, on_progress=on_progress)
    facts = facts_by_side(RunDirectory.reader(scoring.out).scan("facts").collect())
    scores = pl.read_parquet(scoring.folder / "scores.parquet", glob=False).filter(metric="factsim")
    found = {row["id"]: row for row in scores.iter_rows(named=True)}
    embedder: Any = load_model("embedder", config.encoders)
    if config.model_store:
        embedder = open_store(config.cache_dir, on_notice=logger.warning).around(embedder)
    texts = [
        {
            "part": part,
            "text": example.text,
            "published_facts": "; ".join(example.facts),
            "facts": "; ".join(facts.get((name, "summary"), ())),
            "published": example.published,
            "of_published_facts": factsim(*map(embedder.embed, (first.facts, example.facts))).score,
            "factsim": found[name]["value"],
            "reason": found[name]["reason"],
        }
        for name, part, example, first in examples.rows()
    ]
    texts_of_product = examples.product.texts if examples.product else {}
    product = [_product_row(name, found[name]) for name in texts_of_product]
    return FactSimResult(
        config,
        result,
        embedder.info.model,
        pl.DataFrame(texts, schema=TEXT_SCHEMA),
        pl.DataFrame(product, schema=PRODUCT_SCHEMA),
    )


def _records(examples: PaperExamples) -> Iterator[dict[str, Any]]:
    for name, _, example, first in examples.rows():
        yield {"id": name, "sources": [first.text], "summary": example.text}
    if examples.product:
        for name, text in examples.product.texts.items():
            yield {"id": name, "sources": examples.product.reviews, "summary": text}


def _product_row(name: str, score: Mapping[str, Any]) -> dict[str, Any]:
    parts = json.loads(score["components"] or "{}")
    return {
        "text": name,
        "coverage": parts.get("coverage"),
        "consistency": parts.get("consistency"),
        "factsim": score["value"],
        "n_reviews": parts.get("n_source"),
        "n_text": parts.get("n_summary"),
        "unsupported": "; ".join(parts.get("unsupported", ())),
        "reason": score["reason"],
    }


def _text_section(rows: pl.DataFrame, title: str, model: str) -> Section:
    published = rows["published"].null_count() < rows.height
    header = ("text", "facts (paper)", "facts", "FactSim of the paper's facts", "FactSim")
    return Section(
        f"{title}: FactSim with its first text",
        (*header, "published") if published else header,
        [
            (
                row["text"],
                row["published_facts"],
                row["facts"] or "-",
                fixed(row["of_published_facts"], 2),
                row["reason"] or fixed(row["factsim"], 2),
                *((fixed(row["published"], 2),) if published else ()),
            )
            for row in rows.iter_rows(named=True)
        ],
        (model,),
    )


def _product_section(product: pl.DataFrame, model: str) -> Section:
    return Section(
        "The product's reviews and texts about them",
        ("text", "coverage", "consistency", "FactSim", "facts", "not in the reviews"),
        [
            (
                row["text"],
                fixed(row["coverage"], 2),
                fixed(row["consistency"], 2),
                row["reason"] or fixed(row["factsim"], 2),
                f"{row['n_text']} of {row['n_reviews']}",
                row["unsupported"] or "-",
            )
            for row in product.iter_rows(named=True)
        ],
        (model, "facts: those of the text, of all reviews"),
    )
