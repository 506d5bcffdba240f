"""LS_Score on Newsroom: correlation with people's ratings, untrained, trained, and a linear head.

Paper: Wu et al. 2020, *Unsupervised Reference-Free Summary Quality Evaluation via Contrastive
Learning*, https://aclanthology.org/2020.emnlp-main.294/, Table 4; code whl97/LS-Score c8a57a2.

Data: `newsroom_human_420.jsonl` (Newsroom's human evaluation, Grusky et al. 2018); `--articles`:
`source`, `summary` and `label`, of which those of 1 are trained on.

Scores and losses are those of the paper. The published program's L counts padding in: measured
once, it correlated as the number of tokens does. The published values take
`--backbone google-bert/bert-base-uncased`. The supervised baseline is not in the code; here it is
ridge regression (Hoerl and Kennard 1970) of the ratings on the [CLS] vectors of document and
summary, in ten folds of documents, the penalty chosen within the others.
Time: a quarter of an hour on two cores with the model that claimscore brings.

    python -m papers.readers summac FOLDER --out articles.jsonl
    python -m papers.ls_score newsroom_human_420.jsonl --articles articles.jsonl --out runs/ls-score
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

import claimscore
from claimscore.pipeline.encoders.ls_model import load_backbone
from claimscore.training.ls_score import train_ls_score
from claimscore.training.recipes import LSTrainingConfig
from papers.command import one_line_errors, show
from papers.readers import newsroom

RATINGS = ("coherence", "fluency", "informativeness", "relevance")
PUBLISHED = (0.6390, 0.5933, 0.7163, 0.6563)

PENALTIES = 10.0 ** np.arange(-6, 2)
Array = NDArray[np.float64]


@torch.inference_mode()
def cls_vectors(backbone: str, texts: Sequence[str]) -> dict[str, Array]:
    """The [CLS] vector of each distinct text, cut to what the model reads."""
    model, tokenizer, limit = load_backbone(backbone)[1:]
    vectors = {}
    for text in dict.fromkeys(texts):
        ids = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
        vectors[text] = model(**ids).last_hidden_state[0, 0].double().numpy()
    return vectors


def ridge(x: Array, y: Array, new: Array) -> Array:
    """Predictions ``[penalty, n, ratings]`` of new rows; a penalty counts times σ², the largest."""
    mean, level = x.mean(axis=0), y.mean(axis=0)
    u, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    shrunk = s / (s**2 + PENALTIES[:, None] * s[0] ** 2)
    return ((new - mean) @ vt.T) @ (shrunk[:, :, None] * (u.T @ (y - level))) + level


def cross_validated(x: Array, y: Array, folds: NDArray[np.int64]) -> Array:
    """Predictions ``[n, ratings]``, each fold's by the others, which choose the penalty too."""
    predicted = np.empty_like(y)
    for fold in np.unique(folds):
        test, rest = folds == fold, folds != fold
        errors = np.zeros((len(PENALTIES), y.shape[1]))
        for inner in np.unique(folds[rest]):
            out, kept = rest & (folds == inner), rest & (folds != inner)
            errors += ((ridge(x[kept], y[kept], x[out]) - y[out]) ** 2).sum(axis=1)
        best = errors.argmin(axis=0)
        predicted[test] = ridge(x[rest], y[rest], x[test])[best, :, np.arange(y.shape[1])].T
    return predicted


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Score the summaries and print Spearman's ρ with each rating, beside the published ones."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("newsroom", type=Path)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--articles", type=Path, help="JSONL to train on.")
    options.add_argument("--backbone", default="embedded")
    given = options.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = pl.DataFrame(newsroom(given.newsroom))
    rated = rows["ratings"].struct.unnest().select(RATINGS)
    table: dict[str, Sequence[float]] = {"published (BERT)": PUBLISHED}

    def add(name: str, columns: Sequence[Any]) -> None:
        pairs = zip(columns, rated, strict=True)
        table[name] = [float(spearmanr(one, other).statistic) for one, other in pairs]

    def score(name: str, texts: pl.DataFrame, **settings: Any) -> None:
        model = given.out / name
        texts.select("source", "summary").write_ndjson(file := model.with_suffix(".jsonl"))
        config = LSTrainingConfig((str(file),), model, given.backbone, **settings)
        print(train_ls_score(config).facts)
        chosen = rows.select("id", "source", "summary")
        result = claimscore.evaluate(chosen, ["ls-score"], ls_model=str(model))
        add(name, [result.scores["ls-score"]] * len(RATINGS))
        components = result.table("scores")["components"]
        tokens = components.str.json_path_match("$.summary_tokens").cast(pl.Int64)
        add("number of tokens alone", [tokens] * len(RATINGS))

    score("untrained", rows, epochs=0)
    if given.articles:
        articles = pl.read_ndjson(given.articles, infer_schema_length=None).filter(label=1)
        score("trained", articles, lr=1e-4, epochs=1, max_records=400)
    vectors = cls_vectors(given.backbone, [*rows["source"], *rows["summary"]])
    x = np.array([[*vectors[a], *vectors[b]] for a, b in rows.select("source", "summary").rows()])
    cases = rows["case"].unique(maintain_order=True).shuffle(seed=40).to_list()
    folds = np.array([cases.index(case) % 10 for case in rows["case"]])
    add("linear head, cross-validated", cross_validated(x, rated.to_numpy(), folds).T)
    cells = [[name, *(f"{value:.3f}" for value in values)] for name, values in table.items()]
    title = f"Spearman's ρ with the ratings of {rows.height} summaries"
    show(given.out / "results.md", title, pl.DataFrame(cells, ["", *RATINGS], orient="row"))


if __name__ == "__main__":
    main()
