"""Planted errors: does a score fall where a true summary is made false, and only there?

    python -m benchmarks.planted_errors make FOLDER planted.jsonl [--count 50]
    claimscore run planted.jsonl --metrics faithfulness:score=probability --out runs/planted
    python -m benchmarks.planted_errors measure runs/planted

``FOLDER`` has ``claim_support/bump.parquet``: articles with summaries that people take as faithful.
One error is planted into each of ``--count`` of them: a number or a name in the place of one of the
article's, a negated verb, or at the end a sentence of another summary. Its twin is the clean
summary. In a true change a sentence of the article with another number or name stands in the place
of one with a number or name: a score that falls there takes the change for an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.text import content_words, split_sentences
from scripts.judge.edits import Edit, entity_edits, negation_edits, number_edits

Edits = Callable[[str, str], list[Edit]]
CHANGED: dict[str, Edits] = {"number": number_edits, "name": entity_edits}
TRUE = "true change of a "

#: A true change that costs so much or less is no fall.
MARGIN = 0.05

#: The words of a sentence that can stand by itself.
WORDS = range(6, 36)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def any_of(texts: Iterable[str]) -> str | None:
    """One of the texts, always the same one."""
    return min(texts, key=digest, default=None)


def share(text: str, other: str) -> bool:
    return bool(content_words(text).keys() & content_words(other).keys())


def alone(text: str) -> list[str]:
    return [s for s in split_sentences(text) if len(s.split()) in WORDS]


def false_edits(make: Edits, summary: str, article: str, other: str) -> list[str]:
    """The summary with something of the article changed into what only the other article has."""
    return [
        edit.apply(summary)
        for edit in make(summary, other)
        if summary[edit.start : edit.end] in article and not share(edit.new, article)
    ]


def true_changes(make: Edits, summary: str, article: str) -> list[str]:
    return [
        summary.replace(own, sentence, 1)
        for own in split_sentences(summary)
        for sentence in alone(article)
        if sentence not in summary and make(own, sentence)
    ]


def planted(summary: str, article: str, other: str, strange: str) -> dict[str, str | None]:
    """By kind the changed summary, None where none can be made; each from the texts alone."""
    made = {
        "negation": any_of(edit.apply(summary) for edit in negation_edits(summary, "")),
        "invented sentence": any_of(f"{summary} {sentence}" for sentence in alone(strange)),
    }
    for kind, edits in CHANGED.items():
        made[kind] = any_of(false_edits(edits, summary, article, other))
        made[TRUE + kind] = any_of(true_changes(edits, summary, article))
    return made


def planted_records(folder: Path, count: int) -> list[dict[str, Any]]:
    """Clean summaries, each followed by what was made of it; at most so many of a kind."""
    table = pl.read_parquet(folder / "claim_support" / "bump.parquet")
    pairs = table.select("reference_summary", "article").unique().rows()
    pairs.sort(key=lambda pair: digest(pair[0]))
    rows: list[dict[str, Any]] = []
    n_of: dict[str, int] = {}
    for place, (summary, article) in enumerate(pairs):
        strange, other = pairs[place - 1]
        made = planted(summary, article, other, strange)
        kept = {kind: text for kind, text in made.items() if text and n_of.get(kind, 0) < count}
        for kind, text in {"": summary, **kept}.items() if kept else ():
            n_of[kind] = n_of.get(kind, 0) + 1
            row = {"id": f"{place}-{kind}".rstrip("-"), "source": article, "summary": text}
            twin = {"twin": str(place), "kind": kind} if kind else {}
            rows.append({**row, "case": str(place), "label": int(TRUE in kind or not kind), **twin})
    return rows


def make(folder: Path, out: Path, count: int) -> None:
    rows = planted_records(folder, count)
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for kind, n in Counter(row.get("kind", "clean summaries") for row in rows).items():
        print(f"{n:4} {kind}")


def measure(run: Path) -> None:
    """By score and kind: n, the share that is lower than its twin (a true change: by MARGIN)."""
    scores = pl.read_parquet(run / "scores.parquet").select("id", "metric", "value")
    records = pl.read_parquet(run / "records" / "*.parquet").select("id", "kind", "twin")
    found = (
        records.drop_nulls("twin")
        .join(scores, on="id")
        .join(scores.rename({"id": "twin", "value": "clean"}), on=["twin", "metric"])
        .with_columns(fall=pl.col("clean") - pl.col("value"))
        .with_columns(
            beyond=pl.when(pl.col("kind").str.starts_with(TRUE)).then(MARGIN).otherwise(0.0)
        )
        .group_by("metric", "kind", maintain_order=True)
        .agg(
            n=pl.len(),
            falls=(pl.col("fall") > pl.col("beyond")).mean(),
            ties=(pl.col("fall") == 0).mean(),
            mean_fall=pl.col("fall").mean(),
        )
        .sort("metric", "kind")
    )
    for metric, kind, n, falls, ties, mean in found.iter_rows():
        print(f"{metric:40} {kind:24} {n:4} falls {falls:6.1%}  ties {ties:6.1%}  by {mean:+.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = parser.add_subparsers(dest="what", required=True)
    one = parts.add_parser("make", help="write the records")
    one.add_argument("folder", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--count", type=int, default=50)
    two = parts.add_parser("measure", help="print the shares of a finished run")
    two.add_argument("run", type=Path)
    given = parser.parse_args(arguments)
    if given.what == "make":
        make(given.folder, given.out, given.count)
    else:
        measure(given.run)


if __name__ == "__main__":
    main()
