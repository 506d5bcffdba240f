"""Train LS_Score: good summaries above their damaged copies, by a ranking loss.

Wu et al. 2020 (contrastive learning), and whl97/LS-Score c8a57a2. No rating and no
label is used but that the given summaries are good.

Guarantees: the same configuration, data, thread count and machine give the same bytes; after an
interruption the same call goes on from its last epoch to the same result; nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import InputError
from claimscore.pipeline.encoders.batching import longest_first, pad, plan_batches
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.loading import EMBEDDED, LoadedModel
from claimscore.pipeline.encoders.ls_model import (
    HERE,
    Head,
    LinearHead,
    LinguisticHead,
    LSSettings,
    load_backbone,
    new_head,
    write_checkpoint,
)
from claimscore.training.loop import (
    OnTraining,
    TrainingCheckpoint,
    TrainingProgress,
    copies,
    put_values,
    silent,
    take_step,
    trained,
)
from claimscore.training.ls_candidates import (
    LINGUISTIC,
    SEMANTIC,
    CandidateMaker,
    Candidates,
    DrawnRecords,
    draw_records,
    read_pairs,
)
from claimscore.training.recipes import LSTrainingConfig

Loss = Literal["paper", "code", "code-unpadded"]

#: Token positions, padded ones included, that go through the backbone together in training.
GROUP_TOKENS = 1024


class KindShares(NamedTuple):
    """Of the held-out negatives of one kind, the shares that score below their good summary.

    By the whole score, by L alone and by S alone; equal scores do not count as below.
    """

    kind: str
    negatives: int
    score: float
    linguistic: float | None
    semantic: float | None


class HeldOutRanking(NamedTuple):
    """Mean loss, share of records whose good summary is first, and shares by kind."""

    loss: float
    first_share: float
    kinds: tuple[KindShares, ...] = ()


class LSEpoch(NamedTuple):
    """One epoch: mean losses, the share of held-out records whose good summary is first, and
    how it ranks each kind of negative."""

    epoch: int
    train_loss: float | None
    validation_loss: float
    first_share: float
    kinds: tuple[KindShares, ...] = ()


@dataclass(frozen=True)
class LSTrainingResult:
    """The result: the folder, the records used, and each epoch; epoch 0 is the untrained."""

    checkpoint: Path
    records: int
    validation_records: int
    skipped: int
    best_epoch: int
    epochs: tuple[LSEpoch, ...] = field(default_factory=tuple)


@dataclass
class _History:
    """Finished epochs, the best of them, and the factor of the learning rate."""

    epochs: list[LSEpoch]
    best_epoch: int = 0
    factor: float = 1.0
    worse_in_a_row: int = 0

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> _History:
        rows = facts.pop("epochs")
        epochs = [
            LSEpoch._make((*row, tuple(KindShares(*k) for k in kinds))) for *row, kinds in rows
        ]
        return cls(epochs, **facts)

    def ended(self, config: LSTrainingConfig) -> bool:
        return len(self.epochs) > config.epochs or self.worse_in_a_row >= config.patience

    def record(self, found: LSEpoch) -> bool:
        """Take note of an epoch; whether it ranks worse than the best trained one before it."""
        best_share = max((epoch.first_share for epoch in self.epochs[1:]), default=0.0)
        best = self.epochs[self.best_epoch]
        better = (found.first_share, -found.validation_loss) > (
            best.first_share,
            -best.validation_loss,
        )
        if self.best_epoch == 0 or better:
            self.best_epoch = found.epoch
        self.epochs.append(found)
        worse = found.first_share < best_share
        self.worse_in_a_row = self.worse_in_a_row + 1 if worse else 0
        if worse:
            self.factor *= 0.1
        return worse


def train(config: LSTrainingConfig, progress: OnTraining = silent) -> LSTrainingResult:
    """Train, write the epoch that ranks best on the held-out records, and return what was made.

    Best is the largest share of held-out records whose good summary scores above all its
    negatives, then the smallest loss; the untrained model only where ``epochs`` is 0. After an
    epoch with a smaller share than the best, the learning rate is a tenth; after ``patience`` of
    them in a row it ends (as the published code). `InputError` where too little can be used.
    """
    device = resolve_device(config.device)
    backbone = load_backbone(config.backbone, offline=config.offline, device=device)
    limit = min(config.max_tokens, backbone.limit)
    learning, held_out, skipped = _records(config, backbone, limit)
    ranker = Ranker(backbone, new_head(config.head, backbone.model, config.seed), config, limit)
    identity = _identity(config, backbone, (*learning, *held_out))
    checkpoint = TrainingCheckpoint(config.out / "training.safetensors", identity)
    parameters = trained(ranker)
    saved = checkpoint.load(parameters, lambda facts: ranker.optimizer(facts["factor"]))
    if saved:
        (facts, best), optimizer = saved
        history = _History.of_facts(facts)
    else:
        history = _History([LSEpoch(0, None, *ranker.validate(held_out))])
        best, optimizer = copies(parameters), ranker.optimizer(1.0)
    while not history.ended(config):
        number = len(history.epochs)
        loss = ranker.train_epoch(learning, optimizer, number, progress)
        if history.record(LSEpoch(number, loss, *ranker.validate(held_out))):
            optimizer = ranker.optimizer(history.factor)
        if history.best_epoch == number:
            best = copies(parameters)
        checkpoint.save(dataclasses.asdict(history), parameters, optimizer, best)
    put_values(parameters, best)
    write_model(config, ranker, backbone, limit)
    checkpoint.remove()
    counts = (len(learning), len(held_out), skipped)
    return LSTrainingResult(config.out, *counts, history.best_epoch, tuple(history.epochs))


class RankedRecord(NamedTuple):
    """One record's loss and ``[1 + negatives]`` scores, the good summary's first.

    ``linguistic`` and ``semantic`` are the score's parts as they stand in it; a linear head has
    none. ``kinds`` names the negatives.
    """

    kinds: tuple[str, ...]
    loss: Tensor
    scores: Tensor
    linguistic: Tensor | None = None
    semantic: Tensor | None = None


def ranking_loss(linguistic: Tensor, semantic: Tensor, kinds: Sequence[str], loss: Loss) -> Tensor:
    """The loss of one record; ``[1 + negatives]`` scores as they stand in LS, the good one first.

    Paper: Σ over negatives of max(0, 1 − (LS_good − LS_bad)). Code: the same hinge on
    L for the deleted and the disordered, plus on S for the deleted and the one with an addition.
    """
    if loss == "paper":
        return hinges(linguistic + semantic)
    parts = ((linguistic, LINGUISTIC), (semantic, SEMANTIC))
    chosen = [
        scores[[0, *(i for i, kind in enumerate(kinds, 1) if kind in trains)]]
        for scores, trains in parts
    ]
    return torch.stack([hinges(scores) for scores in chosen]).sum()


def hinges(scores: Tensor) -> Tensor:
    """Σ over the others of max(0, 1 − (first − other))."""
    return F.relu(1 - (scores[0] - scores[1:])).sum()


def summarise(results: Sequence[RankedRecord]) -> HeldOutRanking:
    """Put the results of held-out records together; kinds in the order they are met in."""
    below: dict[str, list[tuple[bool | None, ...]]] = defaultdict(list)
    for result in results:
        parts = [
            [None] * len(result.kinds) if scores is None else (scores[0] > scores[1:]).tolist()
            for scores in (result.scores, result.linguistic, result.semantic)
        ]
        for kind, *row in zip(result.kinds, *parts, strict=True):
            below[kind].append(tuple(row))
    first = [bool((result.scores[0] > result.scores[1:]).all()) for result in results]
    kinds = []
    for kind, rows in below.items():
        shares = [
            None if None in part else float(np.mean(part)) for part in zip(*rows, strict=True)
        ]
        kinds.append(KindShares(kind, len(rows), *shares))  # type: ignore[arg-type]  # a score is there
    loss = float(np.mean([float(result.loss) for result in results]))
    return HeldOutRanking(loss, float(np.mean(first)), tuple(kinds))


class Ranker(nn.Module):
    """Backbone and head with the scores, the loss, and one pass over the records."""

    def __init__(
        self, backbone: LoadedModel, head: Head, config: LSTrainingConfig, limit: int
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone.model
        self.head = head.to(backbone.model.device)
        self._pad_id = int(backbone.tokenizer.pad_token_id)
        self._width = limit if config.loss == "code" and config.head == "ls" else None
        for name, module in self.backbone.named_modules():
            if isinstance(module, nn.Dropout) and ".attention.self" not in name:
                module.p = config.dropout
        if config.trained == "head":
            self.backbone.requires_grad_(False)
        for name, parameter in self.backbone.named_parameters():
            if "pooler" in name:
                parameter.requires_grad_(False)

    def optimizer(self, factor: float) -> torch.optim.Adam:
        """Adam with one group for the backbone and one for the head."""
        config = self.config
        groups = [
            {"params": [p for p in module.parameters() if p.requires_grad], "lr": rate * factor}
            for module, rate in ((self.backbone, config.lr), (self.head, config.head_lr))
        ]
        kept = [group for group in groups if group["params"]]
        return torch.optim.Adam(kept, weight_decay=config.weight_decay, fused=True)

    def train_epoch(
        self,
        records: Sequence[Candidates],
        optimizer: torch.optim.Adam,
        epoch: int,
        progress: OnTraining,
    ) -> float:
        """Take one step a batch, records in an order drawn for the epoch; return the mean loss."""
        self.train()
        if self.config.trained == "head":
            self.backbone.eval()
        order = np.random.default_rng((self.config.seed, epoch)).permutation(len(records)).tolist()
        size, total = self.config.batch_size, 0.0
        steps = -(-len(records) // size)
        for step in range(steps):
            batch = [records[i] for i in order[step * size : (step + 1) * size]]
            torch.manual_seed((self.config.seed * 1_009 + epoch) * 1_000_003 + step)
            mean = take_step(torch.stack([one.loss for one in self(batch)]).mean(), optimizer)
            total += mean * len(batch)
            done = (epoch - 1) * steps + step + 1
            progress(TrainingProgress("step", done, self.config.epochs * steps, mean))
        return total / len(records)

    @torch.no_grad()
    def validate(self, records: Sequence[Candidates]) -> HeldOutRanking:
        """Return the mean loss, and how often the good summary scores above the others."""
        self.eval()
        size = self.config.batch_size
        batches = [records[i : i + size] for i in range(0, len(records), size)]
        return summarise([result for batch in batches for result in self(batch)])

    def forward(self, batch: Sequence[Candidates]) -> list[RankedRecord]:
        """Return the loss and the scores of the candidates of each record."""
        documents = self.read([record.document for record in batch])[0]
        sizes = [len(record.summaries) for record in batch]
        rows = [row for record in batch for row in record.summaries]
        summaries, linguistic = self.read(rows, self._width, likelihood=True)
        left = documents.repeat_interleave(torch.tensor(sizes, device=documents.device), dim=0)
        if isinstance(self.head, LinearHead):
            scores = torch.split(self.head(left, summaries), sizes)
            both = zip(batch, scores, strict=True)
            return [RankedRecord(record.kinds, hinges(score), score) for record, score in both]
        semantic = F.cosine_similarity(left, summaries, dim=1, eps=1e-6)
        parts = (torch.split(linguistic, sizes), torch.split(semantic, sizes))
        return [
            RankedRecord(
                record.kinds,
                ranking_loss(own, close, record.kinds, self.config.loss),
                own + close,
                own,
                close,
            )
            for record, own, close in zip(batch, *parts, strict=True)
        ]

    def read(
        self, rows: Sequence[list[int]], width: int | None = None, *, likelihood: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The [CLS] states of the rows and, with ``likelihood``, their L (else nothing).

        Rows of like lengths go through the backbone together, so that little is padding.
        """
        order = longest_first([len(row) for row in rows])
        widths = [width or len(rows[i]) for i in order]
        states: list[Tensor] = []
        values: list[Tensor] = []
        for batch in plan_batches(widths, 0, GROUP_TOKENS, padded=True):
            group = [rows[i] for i in order[batch.start : batch.stop]]
            found = self._states(group, width)
            states.append(found[:, 0])
            if likelihood and isinstance(self.head, LinguisticHead):
                values.append(self._linguistic(group, found))
        back = torch.from_numpy(np.argsort(order)).to(self.backbone.device)
        return torch.cat(states)[back], torch.cat(values)[back] if values else torch.zeros(0)

    def _linguistic(self, rows: Sequence[list[int]], states: Tensor) -> Tensor:
        """L of each row as it stands in LS: 0.01·mean, or (sum/n + 200)/100 as in the code."""
        ids = self._tensor(rows, self._width, self._pad_id)
        lengths = torch.tensor([len(row) for row in rows], device=ids.device)
        counted = torch.full_like(lengths, self._width) if self._width else lengths
        kept = torch.arange(ids.shape[1], device=ids.device) < counted.unsqueeze(1)
        owner = torch.arange(len(rows), device=ids.device).repeat_interleave(counted)
        values = self.head(states[kept], ids[kept])
        sums = torch.zeros(len(rows), device=ids.device).index_add(0, owner, values)
        shift = 0.0 if self.config.loss == "paper" else 2.0
        return 0.01 * sums / lengths + shift

    def _states(self, rows: Sequence[list[int]], width: int | None = None) -> Tensor:
        ids = self._tensor(rows, width, self._pad_id)
        mask = self._tensor([[1] * len(row) for row in rows], width, 0)
        states: Tensor = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        return states

    def _tensor(self, rows: Sequence[Sequence[int]], width: int | None, value: int) -> Tensor:
        padded = pad(rows, width or max(map(len, rows)), value, left=False)
        return torch.from_numpy(padded).to(self.backbone.device)


def _records(config: LSTrainingConfig, backbone: LoadedModel, limit: int) -> DrawnRecords:
    make = CandidateMaker(
        backbone.tokenizer,
        config.negatives,
        seed=config.seed,
        max_tokens=min(limit, config.train_tokens),
        joined=" " if config.loss == "paper" else "",
    )
    pairs = read_pairs(config.tables, config.columns)
    records = draw_records(pairs, make, config.max_records, config.validation, config.seed)
    if not records.learning:
        raise InputError(
            f"{', '.join(config.tables)}: too little to train on; it takes two documents that "
            f"have more sentences than their summaries ({records.skipped} pairs were left out)"
        )
    return records


def _identity(
    config: LSTrainingConfig, backbone: LoadedModel, records: Sequence[Candidates]
) -> str:
    """A digest of recipe, backbone and data: the state of another run is not continued."""
    content = hashlib.sha256(json.dumps(config.recipe(), sort_keys=True).encode())
    content.update(f"{backbone.info.model} {backbone.info.revision}".encode())
    for record in records:
        content.update(json.dumps(record).encode())
    return content.hexdigest()


def write_model(
    config: LSTrainingConfig, ranker: Ranker, backbone: LoadedModel, limit: int
) -> None:
    """Write head, settings and, where it was trained, the backbone into the folder of `config`."""
    from_folder = Path(config.backbone).expanduser().is_dir()
    named = config.backbone == EMBEDDED or not from_folder
    reference = config.backbone.partition("@")[0]
    if named and config.backbone != EMBEDDED:
        reference = f"{reference}@{backbone.info.revision}"
    settings = LSSettings(
        backbone=reference if named else HERE,
        revision=backbone.info.revision,
        head=config.head,
        max_tokens=limit,
        recipe=config.recipe(),
    )
    changed = config.trained == "all" and config.epochs > 0 and not config.ratings
    write_checkpoint(config.out, settings, ranker.head, backbone, changed)
