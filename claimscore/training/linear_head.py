"""BERT with a linear head as a regression on people's ratings, cross-validated over documents.

The supervised baseline of Wu et al. 2020 (LS_Score). Their code has neither this head nor its
folds, so they are fixed here: ridge regression on the [CLS] vectors of document and summary, the
encoder as it is. All summaries of a document are in one fold.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from claimscore.atomic import write_text
from claimscore.errors import InputError
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.loading import LoadedModel
from claimscore.pipeline.encoders.ls_model import LinearHead, load_backbone, new_head
from claimscore.stats.bootstrap import Array
from claimscore.stats.regression import best_penalty, cross_validated, regression
from claimscore.training.labelled_records import joined_text, read_rows
from claimscore.training.ls_candidates import CandidateMaker
from claimscore.training.ls_score import Ranker, write_model
from claimscore.training.recipes import LSTrainingConfig

#: The held-out scores, in the folder of the model.
SCORES = "scores.jsonl"


@dataclasses.dataclass(frozen=True)
class LinearResult:
    """The folder of the model, the file of the held-out scores, and what they were made from."""

    checkpoint: Path
    scores: Path
    columns: tuple[str, ...]
    records: int
    documents: int
    folds: int


class RatedRecords(NamedTuple):
    """Rows as they were read, documents, summaries, and ratings ``[n, ratings]``."""

    rows: list[Mapping[str, Any]]
    documents: list[str]
    summaries: list[str]
    ratings: Array


def train_linear(config: LSTrainingConfig) -> LinearResult:
    """Write held-out scores of every record by each rating, and a model of all records.

    The score of a record comes from a head that has seen no record of its fold, nor has the choice
    of its penalty. The model gives the mean of the ratings. `InputError` where a text or rating is
    missing, or there are fewer documents than folds.
    """
    records = read_rated(config)
    folds = document_folds(records.documents, config.folds, config.seed)
    device = resolve_device(config.device)
    backbone = load_backbone(config.backbone, offline=config.offline, device=device)
    limit = min(config.max_tokens, backbone.limit)
    head = new_head("bert-linear", backbone.model)
    assert isinstance(head, LinearHead)
    ranker = Ranker(backbone, head, config, limit)
    vectors = _vectors(ranker, backbone, records, limit)
    found = cross_validated(vectors, records.ratings, folds)
    of_all = records.ratings.mean(axis=1, keepdims=True)
    weights, intercept = regression(vectors, of_all)(best_penalty(vectors, of_all, folds))
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(weights.T))
        head.linear.bias.copy_(torch.from_numpy(intercept))
    write_model(config, ranker, backbone, limit)
    columns = tuple(f"predicted_{name}" for name in config.ratings)
    lines = (
        {
            **{name: value for name, value in row.items() if name not in config.columns},
            **dict(zip(config.ratings, rated, strict=True)),
            **dict(zip(columns, predicted, strict=True)),
            "fold": fold,
        }
        for row, rated, predicted, fold in zip(
            records.rows, records.ratings.tolist(), found.tolist(), folds.tolist(), strict=True
        )
    )
    scores = config.out / SCORES
    write_text(
        scores, "".join(json.dumps(line, ensure_ascii=False, default=str) + "\n" for line in lines)
    )
    n_documents = len(set(records.documents))
    return LinearResult(config.out, scores, columns, len(folds), n_documents, config.folds)


def read_rated(config: LSTrainingConfig) -> RatedRecords:
    """The rows of the tables; a rating is a column, else a field of `ratings`."""
    rows: list[Mapping[str, Any]] = []
    texts: list[list[str]] = []
    ratings: list[list[float]] = []
    names = [config.document, config.summary]
    for where, row in read_rows(config.tables, names):
        texts.append([joined_text(row[name], f"{where}: {name}") for name in names])
        for name, text in zip(names, texts[-1], strict=True):
            if not text.strip():
                raise InputError(f"{where}: {name} is empty")
        ratings.append([_rating(row, name, where) for name in config.ratings])
        rows.append({"id": str(len(ratings)), **row})
    if not rows:
        raise InputError(f"{', '.join(config.tables)}: no row to train on")
    documents, summaries = map(list, zip(*texts, strict=True))
    return RatedRecords(rows, documents, summaries, np.array(ratings))


def _rating(row: Mapping[str, Any], name: str, where: str) -> float:
    given = row if name in row else row.get("ratings")
    value = given.get(name) if isinstance(given, Mapping) else None
    try:
        number = float(value)  # type: ignore[arg-type]  # None is no number either
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: the rating {name} is no number: {value!r}")
    return number


def document_folds(documents: Sequence[str], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each record: its document's place in an order drawn with `seed`, modulo folds."""
    distinct = list(dict.fromkeys(documents))
    if len(distinct) < folds:
        raise InputError(
            f"{len(distinct)} documents are too few for {folds} folds; --folds names fewer"
        )
    order = np.random.default_rng(seed).permutation(len(distinct)).tolist()
    of_document = {distinct[own]: place % folds for place, own in enumerate(order)}
    return np.array([of_document[document] for document in documents])


@torch.no_grad()
def _vectors(ranker: Ranker, backbone: LoadedModel, records: RatedRecords, limit: int) -> Array:
    """The [CLS] vectors of document and summary side by side, ``[n, 2·hidden]``."""
    ids = CandidateMaker(backbone.tokenizer, (), seed=0, max_tokens=limit).ids
    texts = list(dict.fromkeys((*records.documents, *records.summaries)))
    found = ranker.eval().read([ids(text) for text in texts])[0].double().cpu().numpy()
    place = {text: at for at, text in enumerate(texts)}
    sides = records.documents, records.summaries
    return np.concatenate([found[[place[text] for text in side]] for side in sides], axis=1)
