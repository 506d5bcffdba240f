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
from typing import Any, NamedTuple

import polars as pl

from claimscore.atomic import os_errors, write_text
from claimscore.config import RunConfig
from claimscore.errors import InputError
from claimscore.evaluation.sections import Section
from claimscore.metrics.fact_similarity import factsim
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.run import OnProgress, RunResult, run
from claimscore.runs import RunDirectory

logger = logging.getLogger("claimscore")

#: The run of an evaluation, a folder inside its own.
SCORED = "run"

#: Parts of the examples that hold a text a row, and the name of the text there.
TEXTS = {"table1": "sentence", "table2": "claim"}

#: Names under which a product may stand, and under which the summary of its reviews.
PRODUCTS = ("figure3", "figure4", "product")
SUMMARIES = ("summary", "gpt35_summary_from_paper_appendix_B")

_TEXT, _NUMBER = pl.String(), pl.Float64()
TEXT_SCHEMA: dict[str, pl.DataType] = {
    "part": _TEXT,
    "text": _TEXT,
    "published_facts": _TEXT,
    "facts": _TEXT,
    "published": _NUMBER,
    "of_published_facts": _NUMBER,
    "factsim": _NUMBER,
    "reason": _TEXT,
}
PRODUCT_SCHEMA: dict[str, pl.DataType] = {
    "text": _TEXT,
    "coverage": _NUMBER,
    "consistency": _NUMBER,
    "factsim": _NUMBER,
    "n_reviews": pl.Int64(),
    "n_text": pl.Int64(),
    "unsupported": _TEXT,
    "reason": _TEXT,
}


class Example(NamedTuple):
    """A text of a table; `facts` as ``subject description``, in the paper's words."""

    part: str
    text: str
    facts: tuple[str, ...]
    published: float | None


class Product(NamedTuple):
    """Reviews, and what is compared with them by name."""

    reviews: tuple[str, ...]
    texts: Mapping[str, str]


class Examples(NamedTuple):
    """The content of a file; any part may be missing."""

    texts: tuple[Example, ...]
    product: Product | None


class FactSimResult(NamedTuple):
    """`texts` has a row a text of the tables, `product` one a text about the product."""

    run: RunResult
    model: str
    texts: pl.DataFrame
    product: pl.DataFrame


def read_examples(path: Path) -> Examples:
    """The examples of a JSON file; `InputError` where it is not of that form."""
    with os_errors(path):
        content = path.read_bytes()
    try:
        found = json.loads(content)
        return _examples(found)
    except (ValueError, KeyError, TypeError) as exc:
        reason = f"{exc} is missing" if isinstance(exc, KeyError) else str(exc)
        raise InputError(f"{path}: not the examples of the FactSim paper: {reason}") from None


def _examples(found: Any) -> Examples:
    if not isinstance(found, dict):
        raise TypeError("the file must be a JSON object")
    texts = tuple(_texts(found))
    given = next((found[name] for name in PRODUCTS if name in found), None)
    if not texts and given is None:
        raise ValueError(f"none of {', '.join((*TEXTS, *PRODUCTS))} is there")
    return Examples(texts, None if given is None else _product(given))


def _texts(found: Mapping[str, Any]) -> Iterator[Example]:
    for part, name in TEXTS.items():
        for row in found.get(part, ()):
            facts = (" ".join((subject, description)) for subject, description in row["tuples"])
            published = row.get("factsim")
            yield Example(
                part,
                _text(row[name]),
                tuple(facts),
                None if published is None else float(published),
            )


def _product(given: Mapping[str, Any]) -> Product:
    reviews = tuple(map(_text, given["reviews"]))
    summaries = [_text(given[name]) for name in SUMMARIES if name in given]
    texts = dict(zip(("summary",), summaries, strict=False))
    for number, reference in enumerate(given.get("references", ()), 1):
        texts[f"reference {number}"] = _text(reference)
    if not reviews or not texts:
        raise ValueError("a product needs reviews and a summary or references")
    return Product(reviews, texts)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{value!r} is not a text")
    return value


def factsim_examples(config: RunConfig, on_progress: OnProgress | None = None) -> FactSimResult:
    """FactSim of the examples in `config.input`, by one run in the folder `config.out`.

    Each text of a table is compared with the first one of its table, as in the paper's Table 2:
    by the paper's own facts, and by those that the language model finds. A summary or reference
    of the product is compared with its reviews. Resumed like any run; raises as `claimscore.run`,
    and `InputError` for a file that is not of this form.
    """
    examples = read_examples(Path(config.input))
    records = list(_records(examples))
    source = config.folder / "examples.jsonl"
    with os_errors(config.folder):
        config.folder.mkdir(parents=True, exist_ok=True)
    write_text(source, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records))
    scoring = dataclasses.replace(
        config, input=str(source), out=config.folder / SCORED, metrics=("factsim",), tasks=()
    )
    result = run(scoring, on_progress=on_progress)
    directory = RunDirectory.reader(scoring.out)
    scores = pl.read_parquet(scoring.folder / "scores.parquet", glob=False).filter(metric="factsim")
    found = {row["id"]: row for row in scores.iter_rows(named=True)}
    facts = _found_facts(directory)
    embedder: Any = load_model("embedder", config.encoders)
    if config.model_store:
        embedder = open_store(config.cache_dir, on_notice=logger.warning).around(embedder)
    return FactSimResult(
        result,
        embedder.info.model,
        pl.DataFrame(list(_text_rows(examples, found, facts, embedder)), schema=TEXT_SCHEMA),
        pl.DataFrame(list(_product_rows(examples, found)), schema=PRODUCT_SCHEMA),
    )


def _of_parts(examples: Examples) -> Iterator[tuple[str, Example, Example]]:
    """Each text of the tables with its id and the first text of its table."""
    for part in TEXTS:
        rows = [example for example in examples.texts if example.part == part]
        for number, example in enumerate(rows, 1):
            yield f"{part}/{number}", example, rows[0]


def _records(examples: Examples) -> Iterator[dict[str, Any]]:
    for name, example, first in _of_parts(examples):
        yield {"id": name, "sources": [first.text], "summary": example.text}
    if examples.product is not None:
        for name, text in examples.product.texts.items():
            yield {"id": name, "sources": list(examples.product.reviews), "summary": text}


def _found_facts(directory: RunDirectory) -> dict[str, list[str]]:
    """The facts of each record's summary, in order."""
    fact = pl.concat_str("subject", "description", separator=" ").alias("fact")
    rows = directory.scan("facts").filter(pl.col("side") == "summary").sort("index")
    found: dict[str, list[str]] = {}
    for record, text in rows.select("id", fact).collect().iter_rows():
        found.setdefault(record, []).append(text)
    return found


def _text_rows(
    examples: Examples,
    found: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Sequence[str]],
    embedder: Any,
) -> Iterator[dict[str, Any]]:
    for name, example, first in _of_parts(examples):
        vectors = (embedder.embed(list(one.facts)) for one in (first, example))
        yield {
            "part": example.part,
            "text": example.text,
            "published_facts": _shown(example.facts),
            "facts": _shown(facts.get(name, ())),
            "published": example.published,
            "of_published_facts": factsim(*vectors).score,
            "factsim": found[name]["value"],
            "reason": found[name]["reason"],
        }


def _product_rows(
    examples: Examples, found: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for name in examples.product.texts if examples.product else ():
        row = found[name]
        parts = json.loads(row["components"] or "{}")
        yield {
            "text": name,
            "coverage": parts.get("coverage"),
            "consistency": parts.get("consistency"),
            "factsim": row["value"],
            "n_reviews": parts.get("n_source"),
            "n_text": parts.get("n_summary"),
            "unsupported": _shown(parts.get("unsupported", ())),
            "reason": row["reason"],
        }


def _shown(facts: Sequence[str]) -> str:
    return "; ".join(facts)


def factsim_sections(result: FactSimResult, config: RunConfig) -> Iterator[Section]:
    """The two tables beside the paper's, then the product."""
    model = f"facts by {config.llm.model}, sentence encoder {result.model}"
    for part, title in (("table1", "Table 1"), ("table2", "Table 2")):
        rows = result.texts.filter(part=part)
        if rows.height:
            yield _text_section(rows, title, model)
    if result.product.height:
        yield Section(
            "The product's reviews and texts about them",
            ("text", "coverage", "consistency", "FactSim", "facts", "not in the reviews"),
            [
                (
                    row["text"],
                    *(_number(row[name]) for name in ("coverage", "consistency")),
                    row["reason"] or _number(row["factsim"]),
                    f"{row['n_text']} of {row['n_reviews']}",
                    row["unsupported"] or "-",
                )
                for row in result.product.iter_rows(named=True)
            ],
            (model, "facts: those of the text, of all reviews"),
        )


def _text_section(rows: pl.DataFrame, title: str, model: str) -> Section:
    published = rows["published"].null_count() < rows.height
    return Section(
        f"{title}: FactSim with its first text",
        (
            *("text", "facts (paper)", "facts", "FactSim of the paper's facts", "FactSim"),
            *(("published",) if published else ()),
        ),
        [
            (
                row["text"],
                row["published_facts"],
                row["facts"] or "-",
                _number(row["of_published_facts"]),
                row["reason"] or _number(row["factsim"]),
                *((_number(row["published"]),) if published else ()),
            )
            for row in rows.iter_rows(named=True)
        ],
        (model,),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
