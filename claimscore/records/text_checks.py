"""What is odd about the texts of records: another language than English, HTML, nothing to read.

Prompts, embedded models and word lists are made for English prose. None of the checks fails a run
or changes a score; they are one pass of polars over the texts, some 20 µs a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import polars as pl

from claimscore.records.columns import LIST_COLUMNS, TEXT_COLUMNS
from claimscore.types import JSON

#: The columns that hold texts, in the order of what is said about them.
TEXTS = ("source", *LIST_COLUMNS, *TEXT_COLUMNS)

#: A text is judged by so many characters of its beginning, and if it has so many words, by function
#: words: one in ten words beyond those. Fewer have 0.1 % of 26,846 English claims, summaries and
#: articles that long, and 72 to 85 % of the paragraphs of manual pages in 18 other languages.
_READ, _LEAST_WORDS, _LEAST_SHARE = 500, 12, 0.1

#: Letters of other scripts than the Latin one make a text another language from this share of its
#: characters on: vowels of Hindi and spaces are no letters.
_OTHER_LETTERS = 0.3

#: English words of structure that no other large language writes often.
_FUNCTION_WORDS = (
    "the and that of to is was were are for with from this it be been have has not but by they "
    "their there his her he she which who would will we our you your what when than then into "
    "about after its on at as in said says"
).replace(" ", "|")

#: Summaries are suspected to be the sources where so large a share is so many times as long.
_NEARLY_ALL, _TIMES = 0.9, 2

_TAGS = (
    "a|abbr|address|article|b|blockquote|body|br|center|code|dd|div|dl|dt|em|figure|font|footer|"
    "form|h[1-6]|head|header|hr|html|i|img|li|link|main|mark|meta|nav|ol|p|pre|q|s|script|section|"
    "small|span|strong|style|sub|sup|table|tbody|td|tfoot|th|thead|title|tr|u|ul"
)
_HTML = (
    rf"(?i)</?(?:{_TAGS})(?:\s[^<>]*)?/?>"
    "|&(?:nbsp|amp|quot|lt|gt|apos|#[0-9]{1,7}|#x[0-9a-f]{1,6});"
)


class TextCheck(NamedTuple):
    """What a check finds, as an expression over a column of texts, and in words."""

    holds: pl.Expr
    says: str
    advice: str


def _is_foreign(text: pl.Expr) -> pl.Expr:
    start = text.str.head(_READ)
    n_other = start.str.count_matches(r"[\p{L}--\p{Latin}]")
    n_words = start.str.count_matches(r"\p{L}[\p{L}\p{N}']*")
    n_function = start.str.count_matches(rf"(?i)(?-u:\b)(?:{_FUNCTION_WORDS})(?-u:\b)")
    return (n_other > _OTHER_LETTERS * start.str.len_chars()) | (
        (n_words >= _LEAST_WORDS) & (n_function <= _LEAST_SHARE * (n_words - _LEAST_WORDS))
    )


CHECKS = {
    "not_english": TextCheck(
        _is_foreign(pl.col("text")),
        "probably not in English",
        "prompts, embedded models and word lists are made for English",
    ),
    "html": TextCheck(
        pl.col("text").str.contains(_HTML),
        "with HTML",
        "its tags are read as words; take them out of the input",
    ),
    "no_words": TextCheck(
        ~pl.col("text").str.contains(r"[\p{L}\p{N}]"),
        "empty or without a word (only emoji or punctuation)",
        "most metrics can give them no score",
    ),
}


def check_texts(records: pl.LazyFrame, columns: Collection[str] = TEXTS) -> list[JSON]:
    """What is found in these columns of records: of each check a dict of `check`, `columns` (how
    many `texts` each has, and `found`), the first three `ids`, and `text`, all of it in a sentence.

    Checks that find nothing are left out.
    """
    schema = records.collect_schema()
    counts = {name: _counts(records, name) for name in TEXTS if name in schema and name in columns}
    findings = [
        _finding(name, check, counts)
        for name, check in CHECKS.items()
        if any(of_column[name] for of_column in counts.values())
    ]
    return [*findings, *(_swapped(records) if {"source", "summary"}.issubset(columns) else ())]


def _swapped(records: pl.LazyFrame) -> Iterator[JSON]:
    """The finding that nearly all summaries are much longer than their sources."""
    schema = records.collect_schema()
    sources = [name for name in ("source", "sources") if name in schema]
    if not sources or "summary" not in schema:
        return
    texts = [
        pl.col(name).list.join("") if isinstance(schema[name], pl.List) else pl.col(name)
        for name in sources
    ]
    n_source = pl.concat_str(texts, ignore_nulls=True).str.len_chars()
    n_summary = pl.col("summary").str.len_chars()
    long = n_summary > _TIMES * n_source
    both = records.filter(n_source > 0, n_summary > 0).select(
        pl.len(), long.sum().alias("found"), pl.col("id").filter(long).head(3).implode()
    )
    n, n_found, ids = both.collect(engine="streaming").row(0)
    if n and n_found >= _NEARLY_ALL * n:
        text = f"a summary is more than {_TIMES} times as long as its source: {n_found:,} of {n:,}"
        advice = "if the columns are swapped: --columns source=summary,summary=source"
        columns = {"summary": {"texts": n, "found": n_found}}
        text = f"{text}; first {', '.join(ids)}; {advice}"
        yield {"check": "swapped", "columns": columns, "ids": ids, "text": text}


def _counts(records: pl.LazyFrame, column: str) -> dict[str, Any]:
    """How many texts a column has, and for each check how many it finds and the first ids."""
    texts = records.select("id", text=pl.col(column))
    if isinstance(records.collect_schema()[column], pl.List):
        texts = texts.explode("text")
    texts = texts.drop_nulls("text").with_columns(
        check.holds.alias(name) for name, check in CHECKS.items()
    )
    firsts = (pl.col("id").filter(name).head(3).implode().alias(f"{name}_ids") for name in CHECKS)
    counts = texts.select(pl.len().alias("texts"), pl.col(*CHECKS).sum(), *firsts)
    return counts.collect(engine="streaming").row(0, named=True)


def _finding(name: str, check: TextCheck, counts: dict[str, dict[str, Any]]) -> JSON:
    columns = {
        column: {"texts": count["texts"], "found": count[name]}
        for column, count in counts.items()
        if count[name]
    }
    ids = dict.fromkeys(id_ for column in columns for id_ in counts[column][f"{name}_ids"])
    shown = list(ids)[:3]
    where = ", ".join(
        f"{count['found']:,} of {count['texts']:,} in {column}" for column, count in columns.items()
    )
    text = f"{check.says}: {where}; first {', '.join(shown)}; {check.advice}"
    return {"check": name, "columns": columns, "ids": shown, "text": text}
