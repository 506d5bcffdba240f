"""`claimscore train summac-conv`: SummaC-Conv from labelled documents and summaries.

Laban et al. 2022, SummaC, and `train_summac.py` of its authors: Adam, learning rate 1e-2, batches
of 32, cross-entropy of the two logits, no class weights. The same table, settings and NLI model
give the same weights on the same machine.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import InputError
from claimscore.evaluation.result import EvaluationResult, OnCount, Section, fixed, silent
from claimscore.metrics.base import ChunkTables, PassRequirement
from claimscore.metrics.summac import (
    CUT_VALUES,
    Values,
    cut_pass,
    read_pair_matrices,
)
from claimscore.metrics.summac_convolution import (
    AGGREGATES,
    LABEL_SETS,
    VARIANTS,
    ConvWeights,
    Counts,
    as_weights,
    bin_edges,
    histograms,
)
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.protocols import PairClassifier
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.pair_nli import BLOCK_NLI_PASS
from claimscore.tables import TABLES
from claimscore.training.recipes import SummaCTrainingConfig, read_texts

logger = logging.getLogger("claimscore")

#: Records whose NLI is computed at a time.
PART_RECORDS = 64

#: The settings of the weights, which their file keeps: those of the paper.
SETTINGS = {
    **{name: values[0] for name, values in CUT_VALUES.items()},
    **{"bins": "even50", "labels": LABEL_SETS[0], "aggregate": AGGREGATES[0]},
    "variant": VARIANTS[0],
}


class ConvModel(nn.Module):
    """The two linear layers, with the parameter names of the published checkpoint."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Linear(width, 1)
        self.layer_final = nn.Linear(3, 2)

    def forward(self, counts: Tensor, used: Tensor) -> Tensor:
        """Logits `[N, 2]` of counts `[N, R, H]`, of which the rows `used` `[N, R]` are real."""
        values = self.mlp(counts).squeeze(-1)
        mean = values.masked_fill(~used, 0.0).sum(dim=1) / used.sum(dim=1)
        logits: Tensor = self.layer_final(torch.stack([mean] * 3, dim=1))
        return logits


def train_summac_conv(
    config: SummaCTrainingConfig,
    progress: OnCount = silent,
    classifier: PairClassifier | None = None,
) -> EvaluationResult:
    """Compute the NLI of every record, train, and write the weights of the best epoch: the one with
    the lowest held-out loss. Losses are cross-entropies, a mean each; `skipped` are records without
    text on a side.

    `progress` hears of how many records there is NLI; results of the NLI model are stored as those
    of runs. `InputError` for a table that cannot be read, has one label only, or no text.
    """
    records = read_texts(config.tables, labelled=True)
    _check_labels(config, records["label"].to_list())
    store = open_store(None)
    model: Any = store.around(classifier or load_model("nli", config.encoders))
    matrices = _matrices(records, cut_pass(SETTINGS), model, progress)
    edges = bin_edges(SETTINGS["bins"])
    labels = [
        (histograms(matrices[record], edges, SETTINGS["labels"]), label)
        for record, label in records.select("id", "label").iter_rows()
        if record in matrices
    ]
    order = np.random.default_rng(config.seed).permutation(len(labels))
    first = round(config.holdout * len(labels))
    held_out, training = ([labels[i] for i in sorted(part)] for part in np.split(order, [first]))
    _check_labels(config, [label for _, label in training])
    best = fit(config, training, held_out)
    best.weights.save(config.out, {**SETTINGS, "nli": f"{model.info.model}@{model.info.revision}"})
    facts = {
        "weights": str(config.out),
        "examples": len(training),
        "consistent": sum(label for _, label in training),
        "held_out": len(held_out),
        "skipped": records.height - len(labels),
        "epoch": best.number,
        "train_loss": best.train_loss,
        "held_out_loss": best.held_out_loss,
    }
    lines = (
        "{examples:,} summaries, {consistent:,} consistent; {held_out:,} held out; {skipped:,} "
        "without text to compare",
        "weights: {weights}   epoch {epoch}",
        f"cross-entropy: {best.train_loss:.4f}, held out {fixed(best.held_out_loss, 4, 'none')}",
    )
    section = Section("SummaC-Conv", notes=tuple(line.format(**facts) for line in lines))
    return EvaluationResult("summac-conv", "SummaC-Conv", config, {}, facts, [section])


def _matrices(
    records: pl.DataFrame, need: PassRequirement, model: PairClassifier, progress: OnCount
) -> dict[str, Values]:
    """The matrices of the records by the model; one with stored results is asked for new pairs."""
    frames = [TABLES["block_nli"].empty()]
    for start in range(0, records.height, PART_RECORDS):
        part = PassInput(
            model=model,
            need=need,
            records=records.slice(start, PART_RECORDS),
            read=lambda table: TABLES[table].empty(),
            broken=frozenset(),
            listen=lambda pairs: lambda done: None,
        )
        frames.append(BLOCK_NLI_PASS.compute(part).rows["block_nli"])
        progress(min(start + PART_RECORDS, records.height), records.height)
    tables = {"records": records, "block_nli": pl.concat(frames)}
    matrices = read_pair_matrices(ChunkTables(tables.__getitem__), need)
    return {record: matrix for record, matrix in matrices.items() if matrix is not None}


def _check_labels(config: SummaCTrainingConfig, labels: list[int]) -> None:
    where = ", ".join(config.tables)
    if not labels:
        raise InputError(
            f"{where}: nothing to train on: no record that is not held out has a block of text on "
            "both sides"
        )
    if len(set(labels)) == 1:
        raise InputError(
            f"{where}: every label is {labels[0]}; training needs consistent and inconsistent "
            "summaries"
        )


@dataclasses.dataclass(frozen=True)
class ConvEpoch:
    """The weights after an epoch, and their mean losses."""

    number: int
    weights: ConvWeights
    train_loss: float
    held_out_loss: float | None


Labelled = tuple[Counts, int]


def fit(
    config: SummaCTrainingConfig,
    training: Sequence[Labelled],
    held_out: Sequence[Labelled],
) -> ConvEpoch:
    """Train on histograms `[sentences, H]` with labels, from freshly drawn weights.

    Returns the epoch with the lowest loss of the held-out ones, the last where there are none.
    """
    width = len(bin_edges(SETTINGS["bins"])) - 1
    data, tested = (_padded(part, width) for part in (training, held_out))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = ConvModel(width)
    shuffle = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    best: ConvEpoch | None = None
    for number in range(1, config.epochs + 1):
        total = 0.0
        order = torch.randperm(len(training), generator=shuffle)
        for indices in torch.split(order, config.batch_size):
            loss = _loss(model, *(values[indices] for values in data))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
            optimizer.step()
            total += float(loss.detach()) * len(indices)
        mean, other = total / len(training), None
        if held_out:
            with torch.no_grad():
                other = float(_loss(model, *tested))
        if best is None or other is None or other < (best.held_out_loss or 0.0):
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            best = ConvEpoch(number, as_weights(state), mean, other)
    assert best is not None  # an epoch at least, by the config
    return best


def _loss(model: ConvModel, counts: Tensor, used: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(counts, used), labels)


def _padded(part: Sequence[Labelled], width: int) -> list[Tensor]:
    """Counts `[N, R, H]`, which rows are real `[N, R]`, and labels `[N]`."""
    kept = [counts for counts, _ in part]
    longest = max((len(counts) for counts in kept), default=0)
    padded = torch.zeros(len(kept), longest, width)
    used = torch.zeros(len(kept), longest, dtype=torch.bool)
    for row, counts in enumerate(kept):
        padded[row, : len(counts)] = torch.from_numpy(counts)
        used[row, : len(counts)] = True
    return [padded, used, torch.tensor([label for _, label in part], dtype=torch.int64)]
