"""Train LS_Score: good summaries above their damaged copies, by a ranking loss.

Wu et al. 2020 (contrastive learning), and whl97/LS-Score c8a57a2. No rating and no label is used
but that the given summaries are good. The same configuration, data, thread count and machine give
the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import InputError
from claimscore.metrics.linguistic_semantic import ALPHA
from claimscore.pipeline.encoders.batching import longest_first, pad, plan_batches
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.loading import LoadedModel
from claimscore.pipeline.encoders.ls_model import (
    LinguisticHead,
    LSSettings,
    load_backbone,
    new_head,
    write_checkpoint,
)
from claimscore.training.ls_candidates import CandidateMaker, Candidates, draw_records
from claimscore.training.recipes import LSTrainingConfig, OnTraining, TrainingProgress, silent
from claimscore.training.texts import read_texts

#: Token positions, padded ones included, that go through the backbone together in training.
GROUP_TOKENS = 1024


class LSEpoch(NamedTuple):
    """Mean losses, and the share of held-out records whose good summary scores above the others."""

    epoch: int
    train_loss: float | None
    held_out_loss: float
    first_share: float


@dataclass(frozen=True)
class LSTrainingResult:
    """The folder, the numbers of records, and each epoch; epoch 0 is the untrained model."""

    model: Path
    records: int
    held_out: int
    skipped: int
    best_epoch: int
    epochs: tuple[LSEpoch, ...]


class Ranker(nn.Module):
    """Backbone and head with the scores, the loss, and one pass over the records.

    A subclass may have another `loss`, sum L over `padded` positions too, up to the most tokens,
    and put another mark between sentences where one was `joined`.
    """

    padded = False
    joined = " "

    def __init__(self, backbone: LoadedModel, config: LSTrainingConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone.model
        self.head: LinguisticHead = new_head(backbone.model, config.seed).to(backbone.model.device)
        self._pad_id = int(backbone.tokenizer.pad_token_id)
        self._width = min(config.max_tokens, backbone.limit) if self.padded else None
        for name, module in self.backbone.named_modules():
            if isinstance(module, nn.Dropout) and ".attention.self" not in name:
                module.p = config.dropout
        for name, parameter in self.backbone.named_parameters():
            if "pooler" in name:
                parameter.requires_grad_(False)

    def loss(self, linguistic: Tensor, semantic: Tensor, kinds: Sequence[str]) -> Tensor:
        """Σ over the negatives of max(0, 1 − (LS_good − LS_bad)), LS = 0.01·L + S.

        ``linguistic`` is 0.01·L, ``[1 + negatives]``, the good summary first; ``kinds`` names the
        negatives.
        """
        return hinges(linguistic + semantic)

    def optimizer(self, factor: float) -> torch.optim.Adam:
        """Adam with one group for the backbone and one for the head, rates times ``factor``."""
        groups = [
            {"params": [p for p in module.parameters() if p.requires_grad], "lr": rate * factor}
            for module, rate in ((self.backbone, self.config.lr), (self.head, self.config.head_lr))
        ]
        return torch.optim.Adam(groups, weight_decay=self.config.weight_decay, fused=True)

    def train_epoch(
        self,
        records: Sequence[Candidates],
        optimizer: torch.optim.Adam,
        epoch: int,
        progress: OnTraining,
    ) -> float:
        """Take one step a batch, records in an order drawn for the epoch; return the mean loss."""
        self.train()
        order = np.random.default_rng((self.config.seed, epoch)).permutation(len(records)).tolist()
        size, total = self.config.batch_size, 0.0
        steps = -(-len(records) // size)
        for step in range(steps):
            batch = [records[i] for i in order[step * size : (step + 1) * size]]
            torch.manual_seed((self.config.seed * 1_009 + epoch) * 1_000_003 + step)
            loss = torch.stack([self.loss(*row) for row in self(batch)]).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
            optimizer.step()
            mean = float(loss.detach())
            total += mean * len(batch)
            done = (epoch - 1) * steps + step + 1
            progress(TrainingProgress("steps", done, self.config.epochs * steps, mean))
        return total / len(records)

    @torch.no_grad()
    def measure(self, records: Sequence[Candidates]) -> tuple[float, float]:
        """The mean loss, and how often the good summary scores above all others."""
        self.eval()
        size = self.config.batch_size
        batches = [records[i : i + size] for i in range(0, len(records), size)]
        rows = [row for batch in batches for row in self(batch)]
        scores = [linguistic + semantic for linguistic, semantic, _ in rows]
        first = [bool((score[0] > score[1:]).all()) for score in scores]
        return float(np.mean([float(self.loss(*row)) for row in rows])), float(np.mean(first))

    def forward(self, batch: Sequence[Candidates]) -> list[tuple[Tensor, Tensor, tuple[str, ...]]]:
        """Of each record 0.01·L and S, ``[1 + negatives]`` each, and the kinds of negatives."""
        documents, _ = self._read([record.document for record in batch])
        sizes = [len(record.summaries) for record in batch]
        rows = [row for record in batch for row in record.summaries]
        summaries, linguistic = self._read(rows, self._width, likelihood=True)
        left = documents.repeat_interleave(torch.tensor(sizes, device=documents.device), dim=0)
        semantic = F.cosine_similarity(left, summaries, dim=1, eps=1e-6)
        parts = (torch.split(linguistic, sizes), torch.split(semantic, sizes))
        kinds = [record.kinds for record in batch]
        return list(zip(*parts, kinds, strict=True))

    def _read(
        self, rows: Sequence[list[int]], width: int | None = None, *, likelihood: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The [CLS] states of the rows and, with ``likelihood``, their 0.01·L (else nothing).

        Rows of like lengths go through the backbone together.
        """
        order = longest_first([len(row) for row in rows])
        widths = [width or len(rows[i]) for i in order]
        states: list[Tensor] = []
        values: list[Tensor] = []
        for batch in plan_batches(widths, 0, GROUP_TOKENS, padded=True):
            group = [rows[i] for i in order[batch.start : batch.stop]]
            ids = self._tensor(group, width, self._pad_id)
            mask = self._tensor([[1] * len(row) for row in group], width, 0)
            hidden = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
            states.append(hidden[:, 0])
            if likelihood:
                counted = torch.ones_like(mask).bool() if width else mask.bool()
                logs = torch.zeros(ids.shape, device=ids.device)
                logs[counted] = self.head(hidden[counted], ids[counted])
                values.append(ALPHA * logs.sum(dim=1) / mask.sum(dim=1))
        back = torch.from_numpy(np.argsort(order)).to(self.backbone.device)
        return torch.cat(states)[back], torch.cat(values)[back] if values else torch.zeros(0)

    def _tensor(self, rows: Sequence[Sequence[int]], width: int | None, value: int) -> Tensor:
        padded = pad(rows, width or max(map(len, rows)), value, left=False)
        return torch.from_numpy(padded).to(self.backbone.device)


def hinges(scores: Tensor) -> Tensor:
    """Σ over the others of max(0, 1 − (first − other))."""
    return F.relu(1 - (scores[0] - scores[1:])).sum()


def train_ls_score(
    config: LSTrainingConfig, progress: OnTraining = silent, ranker: type[Ranker] = Ranker
) -> LSTrainingResult:
    """Train, and write the epoch that ranks best on the held-out records.

    Best is the largest share of held-out records whose good summary scores above all its
    negatives, then the smallest loss; the untrained model only where ``epochs`` is 0. After an
    epoch with a smaller share than the best, the learning rate is a tenth; after ``patience`` of
    them in a row it ends (as the published code). `InputError` where too little can be used.
    """
    device = resolve_device(config.device)
    backbone = load_backbone(config.backbone, offline=config.offline, device=device)
    limit = min(config.max_tokens, backbone.limit)
    make = CandidateMaker(
        backbone.tokenizer,
        config.negatives,
        seed=config.seed,
        max_tokens=min(limit, config.train_tokens),
        joined=ranker.joined,
    )
    texts = read_texts(config.tables).select("source", "summary").unique(maintain_order=True)
    drawn = draw_records(texts.rows(), make, config.max_records, config.holdout, config.seed)
    if not drawn.learning:
        raise InputError(
            f"{', '.join(config.tables)}: too little to train on; it takes two documents that "
            f"have more sentences than their summaries ({drawn.skipped} pairs were left out)"
        )
    model = ranker(backbone, config)
    optimizer, factor, worse = model.optimizer(1.0), 1.0, 0
    epochs = [LSEpoch(0, None, *model.measure(drawn.held_out))]
    best, kept = epochs[0], None
    for number in range(1, config.epochs + 1):
        loss = model.train_epoch(drawn.learning, optimizer, number, progress)
        epoch = LSEpoch(number, loss, *model.measure(drawn.held_out))
        falls = number > 1 and epoch.first_share < best.first_share
        if kept is None or (epoch.first_share, -epoch.held_out_loss) > (
            best.first_share,
            -best.held_out_loss,
        ):
            best, kept = epoch, {k: v.detach().clone() for k, v in model.state_dict().items()}
        epochs.append(epoch)
        worse = worse + 1 if falls else 0
        if worse == config.patience:
            break
        if falls:
            factor *= 0.1
            optimizer = model.optimizer(factor)
    if kept is not None:
        model.load_state_dict(kept)
    settings = LSSettings(limit, config.recipe())
    write_checkpoint(config.out, settings, model.head, backbone)
    counts = (len(drawn.learning), len(drawn.held_out), drawn.skipped)
    return LSTrainingResult(config.out, *counts, best.epoch, tuple(epochs))
