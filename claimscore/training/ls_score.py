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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import ConfigError, InputError
from claimscore.pipeline.encoders.batching import longest_first, next_batch, pad
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.loading import EMBEDDED, LoadedModel
from claimscore.pipeline.encoders.ls_checkpoint import (
    HERE,
    Head,
    HeadKind,
    LinearHead,
    LinguisticHead,
    LSSettings,
    load_backbone,
    new_head,
    write_checkpoint,
)
from claimscore.training.ls_data import (
    CandidateMaker,
    Candidates,
    Columns,
    Records,
    draw_records,
    read_pairs,
)
from claimscore.training.ls_negatives import NEGATIVES
from claimscore.training.ls_ranking import (
    LOSSES,
    KindShares,
    Loss,
    Ranked,
    Validation,
    hinges,
    rank,
    summarise,
)
from claimscore.training.ls_state import TrainingState, load_state, save_state
from claimscore.training.nli import Progress

#: Token positions, padded ones included, that go through the backbone together in training.
GROUP_TOKENS = 1024


@dataclass(frozen=True)
class LSTrainingConfig:
    """Everything that determines a checkpoint, and where things lie.

    ``loss``: `paper` is one hinge on LS for every negative; `code` the published program's hinges
    on L (deleted, disordered) and on S (deleted, added), with L over all ``max_tokens`` positions
    of the padded summary; `code-unpadded` the same over the summary's own tokens. ``trained`` is
    `all`, or `head` to leave the backbone as it is. ``train_tokens`` cuts texts in training alone.
    """

    tables: tuple[str, ...]
    out: Path
    columns: Columns = field(default_factory=Columns)
    backbone: str = EMBEDDED
    head: HeadKind = "ls"
    loss: Loss = "paper"
    negatives: tuple[str, ...] = NEGATIVES
    trained: Literal["all", "head"] = "all"
    epochs: int = 3
    patience: int = 3
    lr: float = 2e-5
    head_lr: float = 1e-3
    weight_decay: float = 0.0
    dropout: float = 0.1
    batch_size: int = 4
    max_records: int = 800
    validation: float = 0.1
    max_tokens: int = 512
    train_tokens: int = 128
    seed: int = 40
    device: str = "auto"
    offline: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.negatives if name not in NEGATIVES]
        if unknown or not self.negatives:
            raise ConfigError(f"unknown negative {unknown}; known: {', '.join(NEGATIVES)}")
        if self.out.resolve() == Path(self.backbone).expanduser().resolve():
            raise ConfigError(f"{self.out} holds the backbone; name another --out")
        if self.loss not in LOSSES:
            raise ConfigError(f"the loss is one of {', '.join(LOSSES)}, not {self.loss!r}")
        if min(self.batch_size, self.patience) < 1 or self.epochs < 0 or self.max_records < 2:
            raise ConfigError("batch_size and patience are at least 1, max_records 2, epochs 0")
        if not 0 < self.validation < 1 or not 0 <= self.dropout < 1:
            raise ConfigError("validation and dropout are shares, between 0 and 1")

    def recipe(self) -> dict[str, Any]:
        """The settings that determine the result, without paths, for the checkpoint."""
        paths = ("tables", "out", "columns", "backbone", "device", "offline")
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in paths}


class Epoch(NamedTuple):
    """One epoch: mean losses, the share of validation records whose good summary is first, and
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
    epochs: tuple[Epoch, ...] = field(default_factory=tuple)


def train(
    config: LSTrainingConfig, progress: Callable[[Progress], None] = lambda _: None
) -> LSTrainingResult:
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
    state_path = config.out / "training.safetensors"
    parameters = dict(ranker.named_parameters())
    state = load_state(state_path, identity, parameters)
    if state is None:
        state = TrainingState.start(parameters)
        state.history.append((0, None, *ranker.validate(held_out)))
    optimizer = ranker.optimizer(state.factor)
    while not state.ended(config.epochs, config.patience):
        epoch = len(state.history)
        state.restore_optimizer(optimizer, parameters)
        loss = ranker.train_epoch(learning, optimizer, epoch, progress)
        worse = state.record(epoch, loss, *ranker.validate(held_out), parameters)
        if worse:
            optimizer = ranker.optimizer(state.factor)
        state.keep_optimizer(optimizer, parameters)
        save_state(state_path, identity, state, parameters)
    state.restore_best(parameters)
    _write(config, ranker, backbone, limit)
    state_path.unlink(missing_ok=True)
    epochs = tuple(Epoch(*row[:4], tuple(KindShares(*k) for k in row[4])) for row in state.history)
    counts = (len(learning), len(held_out), skipped)
    return LSTrainingResult(config.out, *counts, state.best_epoch, epochs)


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
        progress: Callable[[Progress], None],
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
            losses = torch.stack([ranked.loss for ranked in self(batch)])
            optimizer.zero_grad(set_to_none=True)
            losses.mean().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            mean = float(losses.detach().mean())
            total += mean * len(batch)
            done = (epoch - 1) * steps + step + 1
            progress(Progress(done, self.config.epochs * steps, mean))
        return total / len(records)

    @torch.no_grad()
    def validate(self, records: Sequence[Candidates]) -> Validation:
        """Return the mean loss, and how often the good summary scores above the others."""
        self.eval()
        size = self.config.batch_size
        batches = [records[i : i + size] for i in range(0, len(records), size)]
        return summarise([result for batch in batches for result in self(batch)])

    def forward(self, batch: Sequence[Candidates]) -> list[Ranked]:
        """Return the loss and the scores of the candidates of each record."""
        documents = self._read([record.document for record in batch])[0]
        sizes = [len(record.summaries) for record in batch]
        rows = [row for record in batch for row in record.summaries]
        summaries, linguistic = self._read(rows, self._width, likelihood=True)
        left = documents.repeat_interleave(torch.tensor(sizes, device=documents.device), dim=0)
        if isinstance(self.head, LinearHead):
            scores = torch.split(self.head(left, summaries), sizes)
            both = zip(batch, scores, strict=True)
            return [Ranked(record.kinds, hinges(score), score) for record, score in both]
        semantic = F.cosine_similarity(left, summaries, dim=1, eps=1e-6)
        halves = zip(torch.split(linguistic, sizes), torch.split(semantic, sizes), strict=True)
        return [
            rank(record.kinds, own, close, self.config.loss)
            for record, (own, close) in zip(batch, halves, strict=True)
        ]

    def _read(
        self, rows: Sequence[list[int]], width: int | None = None, *, likelihood: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The [CLS] states of the rows and, with ``likelihood``, their L (else nothing).

        Rows of like lengths go through the backbone together, so that little is padding.
        """
        order = longest_first([len(row) for row in rows])
        widths = [width or len(rows[i]) for i in order]
        states: list[Tensor] = []
        values: list[Tensor] = []
        start = 0
        while start < len(order):
            stop = next_batch(widths, start, GROUP_TOKENS, padded=True).stop
            group = [rows[i] for i in order[start:stop]]
            found = self._states(group, width)
            states.append(found[:, 0])
            if likelihood and isinstance(self.head, LinguisticHead):
                values.append(self._linguistic(group, found))
            start = stop
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


def _records(config: LSTrainingConfig, backbone: LoadedModel, limit: int) -> Records:
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


def _write(config: LSTrainingConfig, ranker: Ranker, backbone: LoadedModel, limit: int) -> None:
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
    changed = config.trained == "all" and config.epochs > 0
    write_checkpoint(config.out, settings, ranker.head, backbone, changed)
