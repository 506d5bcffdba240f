"""The five comparisons of the CASPR paper: do scores follow the contrast of two summaries?

Paper: Ananthamurugan et al. 2024, *CASPR: Automated Evaluation Metric for Contrastive
Summarization*, https://arxiv.org/abs/2404.15565, Tables 2, 3 and 5.

Data: a record a pair of entities: `id`, `entity_a_summary` (two texts or more, one an annotator),
`entity_b_summary`. `papers.readers` makes it of CoCoTrip, with the authors' `syn_low_contrast`,
`syn_high_contrast`, `paraphrase_a` and `paraphrase_b`; `--llm` makes those that a record lacks.

Time: twenty minutes on a core for the paper's 240 pairs and the models that claimscore brings.

    python -m papers.readers cocotrip FOLDER --out cocotrip.jsonl
    python -m papers.caspr cocotrip.jsonl --out runs/caspr
    python -m papers.caspr mine.jsonl --out runs/mine --llm openai:gpt-4.1-mini --max-cost 2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import claimscore
from claimscore.stats.agreement import correlation, correlation_draws
from claimscore.stats.bootstrap import mean_interval, percentile_bounds
from papers.command import one_line_errors, parser, read, settings, show

#: Comparison -> its two texts (Table 3): four by the contrast that is wanted, one in other words.
COMPARISONS = {
    "synthetic low": ("a", "syn_low_contrast"),
    "reference similar": ("a", "a_other"),
    "reference contrastive": ("a", "b"),
    "synthetic high": ("a", "syn_high_contrast"),
    "synthetic contrast": ("paraphrase_a", "paraphrase_b"),
}
ORDER = tuple(COMPARISONS)[:4]
REPHRASED = ("reference contrastive", "synthetic contrast")

#: Task -> the texts that it makes: `paraphrase_b` of B's first summary, the others of A's.
MADE = {
    "paraphrase": ("syn_low_contrast", "paraphrase_a", "paraphrase_b"),
    "negate": ("syn_high_contrast",),
}

#: Metric -> the column of Tables 2 and 5: means in the order of COMPARISONS, then ρ; by
#: roberta-large-mnli over claims of GPT-3.5 (the model of its BS⁻¹ is not named).
PUBLISHED = {
    "caspr": ("", "", "84.3 ± 3.8", "98.1 ± 0.8", "83.7 ± 3.6", "0.66"),
    "ds": ("", "", "73.6 ± 0.9", "44.5 ± 1.6", "74.1 ± 0.8", "0.51"),
    "bs-inverse": ("", "", "72.5 ± 1.4", "50.6 ± 1.7", "73.4 ± 1.3", "0.86"),
}


def texts_of(records: pl.DataFrame) -> dict[str, dict[str, str]]:
    """The texts of each pair of entities, by name."""
    texts: dict[str, dict[str, str]] = {}
    for row in records.iter_rows(named=True):
        a, b = row.get("entity_a_summary"), row.get("entity_b_summary")
        if not (isinstance(a, list) and isinstance(b, list) and len(a) > 1 and b):
            raise ValueError(f"record {row.get('id')}: needs two texts of A and one of B, in lists")
        brought = {name: row[name] for names in MADE.values() for name in names if row.get(name)}
        texts[str(row["id"])] = {"a": a[0], "a_other": a[1], "b": b[0], **brought}
    return texts


def make_texts(texts: dict[str, dict[str, str]], out: Path, **options: Any) -> int:
    """Add the texts that records lack, made sentence by sentence (section 3.2); return how many.

    A text with a sentence that failed is left out, and its pair with it.
    """
    n_made = 0
    for task, names in MADE.items():
        rows = [
            {"id": f"{id_}/{name}", "summary": named["b" if name == "paraphrase_b" else "a"]}
            for id_, named in texts.items()
            for name in names
            if name not in named
        ]
        if not rows:
            continue
        result = claimscore.evaluate(rows, "", tasks=task, out=out / task, **options)
        made = result.table("paraphrases" if task == "paraphrase" else "negations")
        if task == "negate":  # claim by claim, and those of a sentence joined again
            made = made.filter(level="sentence")
        made = made.join(result.table("failures"), on="id", how="anti").sort("sentence_index")
        for key, text in made.group_by("id").agg(pl.col("text").str.join(" ")).iter_rows():
            id_, _, name = key.rpartition("/")
            texts[id_][name] = text
            n_made += 1
    return n_made


def pairs(texts: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """The records to score: a pair of texts for each comparison that has both."""
    return [
        {"id": f"{comparison}/{id_}", "summary_a": named[a], "summary_b": named[b]}
        for comparison, (a, b) in COMPARISONS.items()
        for id_, named in texts.items()
        if a in named and b in named
    ]


def column(scores: pl.DataFrame, metric: str) -> list[str]:
    """Means and ρ with intervals and published values, then whether the order is as wanted."""
    cells, means, of = list[str](), {}, {}
    for comparison in COMPARISONS:
        rows = scores.filter(pl.col("id").str.starts_with(f"{comparison}/")).drop_nulls(metric)
        of[comparison] = rows.select(pl.col("id").str.strip_prefix(f"{comparison}/"), metric)
        cells.append("no score")
        if rows.height:
            means[comparison], half_width, *_ = mean_interval(rows[metric].to_numpy())
            cells[-1] = f"{means[comparison]:.2f} ± {half_width:.2f}"
    both = of[REPHRASED[0]].join(of[REPHRASED[1]], on="id", maintain_order="left")
    x, y = both[metric].to_numpy(), both[f"{metric}_right"].to_numpy()
    rho = correlation("spearman", x, y, level="pooled").value if len(x) > 1 else None
    cells.append("not defined")
    if rho is not None:
        pairs = x[:, None], y[:, None]
        draws = correlation_draws("spearman", *pairs, level="pooled", samples=10_000, seed=0)
        low, high = percentile_bounds(draws)
        cells[-1] = f"{rho:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")
    published = PUBLISHED.get(metric, ("",) * len(cells))
    cells = [f"{a} ({b})" if b else a for a, b in zip(cells, published, strict=True)]
    ranked = sorted((name for name in ORDER if name in means), key=means.__getitem__)
    return [*cells, "yes" if tuple(ranked) == ORDER else "no"]


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Make the texts that are missing, score the pairs, and print the table."""
    options = parser(__doc__, metrics="caspr,ds,bs-inverse")
    options.add_argument("--units", default="claims", choices=("claims", "sentences"))
    given = options.parse_args(arguments)
    texts = texts_of(read(given.input))
    n_made = make_texts(texts, given.out, **settings(given))
    scored = claimscore.evaluate(
        pairs(texts), given.metrics, out=given.out / "run", units=given.units, **settings(given)
    )
    rows = {"comparison": [*COMPARISONS, "ρ of the last and the third", "order as wanted"]}
    show(
        given.out / "caspr.md",
        f"The five comparisons of the CASPR paper, {len(texts)} pairs each",
        pl.DataFrame(rows | {name: column(scored.scores, name) for name in scored.metrics}),
        "Published values in round brackets, intervals of 95 %.",
        f"Texts made by {given.llm}: {n_made}. Pairs without a score: "
        f"{scored.scores['reason'].count()} of {scored.scores.height}.",
    )


if __name__ == "__main__":
    main()
