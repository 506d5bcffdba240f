"""FactSim: the paper's tuples and figures, and its correlation with people on OpinSummEval.

Papers: Anghinoni and Sanchez 2026, *FactSim: Fact-Checking for Opinion Summarization*,
https://arxiv.org/abs/2602.08709; Shen and Wan 2023, *OpinSummEval*,
https://arxiv.org/abs/2310.18122.

Data: a JSON file of the paper's examples, each part of which may be missing:

    {"table1": [{"sentence": "The car is bad, it is slow", "tuples": [["car", "bad"], ...]}],
     "table2": [{"claim": "The car is fast", "tuples": [["car", "fast"]], "factsim": 1.0}],
     "figure4": {"reviews": ["..."], "summary": "...", "references": ["..."]}}

or the rated records (JSONL) that `papers.readers` makes of OpinSummEval.

Time: seconds; for the 1,400 summaries of OpinSummEval half an hour on two cores.

    python -m papers.factsim examples.json --out runs/examples
    python -m papers.readers opinsummeval FOLDER --out opinsummeval.jsonl
    python -m papers.factsim opinsummeval.jsonl --out runs/opinsummeval
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import claimscore
from claimscore.metrics import FactSim, factsim
from claimscore.stats.agreement import LEVELS, correlation
from papers.command import one_line_errors, parser, read, settings, show

#: Part of a file of examples -> the key of its texts; the product has none.
PARTS = {"table1": "sentence", "table2": "claim", "figure4": "", "figure3": ""}

DIMENSIONS = ("asp_rel", "self_coh", "sent_con", "readblty")

#: Kendall's τ-b at the level of systems and of summaries, by dimension: OpinSummEval's SUPERT (of
#: bert-large) and BLANC, and the FactSim paper's (facts by GPT-4).
PUBLISHED = {
    "supert": ("0.54 / 0.17", "0.56 / 0.14", "0.60 / 0.18", "0.40 / 0.12"),
    "factsim": ("0.56 / 0.26", "0.58 / 0.21", "0.62 / 0.27", "0.42 / 0.16"),
    "blanc": ("0.49 / 0.14", "0.47 / 0.10", "0.55 / 0.19", "0.31 / 0.09"),
}


class Facts:
    """The facts that a language model finds in texts, and their vectors."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._llm = {"llm": given.llm, "max_cost": given.max_cost}
        self._embedder = {"model": given.embedder, "dtype": given.dtype}

    def of(self, texts: Sequence[str]) -> list[list[str]]:
        """The facts of each text, subject and description in one."""
        facts: list[list[str]] = [[] for _ in texts]
        for row in claimscore.extract_facts(texts, **self._llm).iter_rows(named=True):
            if row["error"]:
                raise ValueError(f"no facts of {texts[row['text']]!r}: {row['error']}")
            facts[row["text"]].append(f"{row['subject']} {row['description']}")
        return facts

    def compare(self, source: Sequence[str], summary: Sequence[str]) -> FactSim:
        """FactSim of two lists of facts."""
        return factsim(*(claimscore.embed(facts, **self._embedder) for facts in (source, summary)))


def number(value: float | None) -> str:
    """A score with two digits, or that there is none."""
    return "none" if value is None else f"{value:.2f}"


def tuples(facts: Facts, rows: Sequence[dict[str, Any]], text: str) -> pl.DataFrame:
    """Each text of Table 1 or 2 compared with the first one, by the paper's facts and by ours."""
    texts = [row[text] for row in rows]
    papers = [[" ".join(fact) for fact in row["tuples"]] for row in rows]
    ours = facts.of(texts)
    scores = [[number(facts.compare(of[0], one).score) for one in of] for of in (papers, ours)]
    joined = [["; ".join(one) for one in of] for of in (papers, ours)]
    columns = {text: texts, "facts, paper": joined[0], "facts": joined[1]}
    columns |= {"FactSim of the paper's": scores[0], "FactSim": scores[1]}
    published = [number(row["factsim"]) for row in rows if "factsim" in row]
    return pl.DataFrame(columns | ({"published": published} if published else {}))


def product(facts: Facts, reviews: Sequence[str], texts: dict[str, str]) -> pl.DataFrame:
    """Texts about a product compared with its reviews."""
    source = [fact for one in facts.of(reviews) for fact in one]
    rows = [
        (name, f"{len(summary)} of {len(source)}", *map(number, facts.compare(source, summary)))
        for name, summary in zip(texts, facts.of(list(texts.values())), strict=True)
    ]
    header = ["text", "facts, of the reviews'", "coverage", "consistency", "FactSim"]
    return pl.DataFrame(rows, schema=header, orient="row")


def examples(path: Path, out: Path, facts: Facts) -> None:
    """The tables of a file of examples."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not content.keys() & PARTS.keys():
        raise ValueError(f"{path}: none of {', '.join(PARTS)} is there")
    for name, key in PARTS.items():
        if key and content.get(name):
            title = f"Table {name[-1]}: FactSim with its first text"
            show(out / f"{name}.md", title, tuples(facts, content[name], key))
        elif name in content:
            of = content[name]
            texts = {key: text for key, text in of.items() if "summary" in key}
            texts |= {f"reference {n}": text for n, text in enumerate(of.get("references", ()), 1)}
            table = product(facts, of["reviews"], texts)
            show(out / "product.md", "A product's reviews and texts about them", table)


def correlations(rows: pl.DataFrame, scores: pl.DataFrame, metric: str) -> list[str]:
    """Kendall's τ-b with the mean rating of each dimension, of systems / of summaries."""
    rows = rows.join(scores, on="id").sort("case", "system")
    rows = rows.filter(pl.col(metric).is_not_null().all().over("case"))  # whole cases
    shape = rows["case"].n_unique(), -1
    values = rows[metric].to_numpy().reshape(shape)
    cells = []
    for dimension in DIMENSIONS:
        ratings = rows["ratings"].struct.field(dimension).to_numpy().reshape(shape)
        of = {level: correlation("kendall", values, ratings, level=level).value for level in LEVELS}
        cells.append(f"{number(of['system'])} / {number(of['summary'])}")
    return cells


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Print the tables of examples, or the correlations of rated records."""
    given = parser(__doc__, metrics="supert,factsim").parse_args(arguments)
    if given.input[0].suffix == ".json":
        examples(given.input[0], given.out, Facts(given))
        return
    rows = read(given.input)
    scored = claimscore.evaluate(rows, given.metrics, out=given.out / "run", **settings(given))
    lines = [(name, *correlations(rows, scored.scores, name)) for name in scored.metrics]
    lines += [(f"{name}, published", *cells) for name, cells in PUBLISHED.items()]
    title = f"Kendall's τ-b of {rows.height} summaries, system / summary level"
    table = pl.DataFrame(lines, schema=["metric", *DIMENSIONS], orient="row")
    note = f"Summaries without a score: {scored.scores['reason'].count()}."
    show(given.out / "factsim.md", title, table, note)


if __name__ == "__main__":
    main()
