"""The judge's training loop: full fine-tuning of the embedded NLI model from labelled pairs.

The quantised difference to the backbone is kept: the adapter. The amount of work is a number of
samples, never a time; the same phase, data, thread count and machine give the same bytes. A phase
that was stopped goes on from its one checkpoint, and a finished one is left as it is.

Accuracy counts the largest of the three logits, also on sets that use two labels only (MED, MoNLI,
the sentiment set). Calibration is one temperature (Guo et al. 2017,
https://arxiv.org/abs/1706.04599): it changes no label.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, distributed, multiprocessing, nn
from transformers import BertTokenizer

from claimscore import minilm
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    apply_adapter,
    read_adapter,
)
from scripts.judge.calibration import best_temperature, expected_calibration_error
from scripts.judge.examples import (
    LABEL2ID,
    NOT_ENTAILED_ID,
    NLIBatch,
    NLIExamples,
    make_batch,
    read_pairs,
    sample_plan,
    tokenize,
    training_files,
)
from scripts.judge.model import (
    EmbeddedNLI,
    load_backbone,
    load_embedded_nli,
    make_adapter,
    write_adapter,
)

#: The sets that the temperature is fitted on, and the length of the texts there.
CALIBRATION_SETS = ("dev_snli", "dev_mnli_matched")
MAX_LENGTH = 512

#: Padded tokens that are computed at a time in a step: bounds its memory.
PIECE_TOKENS = 2048


@dataclasses.dataclass(frozen=True)
class Phase:
    """Everything that determines an adapter, and where things lie.

    ``data`` are Parquet files, or folders whose ``train*.parquet`` are taken. A source weight of
    2.0 shows that source's pairs twice a pass, 0.5 every other pass; names are prefixes of the
    ``source`` column, the first match counts, others weigh 1, and 0 leaves a source out.

    The learning rate falls slowly, as if to reach 0 at ``horizon`` times ``samples``, and over the
    last ``cooldown`` share of them straight to 0. ``start`` is the adapter to go on from.
    ``workers`` processes of one thread each share the pairs of a step: two cores do twice the work
    of one process with two threads.
    """

    data: tuple[Path, ...]
    out: Path
    start: Path | None = None
    backbone: Path | None = None
    samples: int = 282_000
    horizon: float = 1.3
    seed: int = 0
    batch_size: int = 64
    max_length: int = 128
    encoder_lr: float = 1.5e-4
    head_lr: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    cooldown: float = 0.3
    dropout: float = 0.1
    frozen_layers: int = 1
    margin: float = 2.0
    ranking: float = 0.3
    source_weights: tuple[tuple[str, float], ...] = ()
    checkpoint_every: int = 500
    workers: int = 1

    @property
    def steps(self) -> int:
        """Number of optimiser steps."""
        return math.ceil(self.samples / self.batch_size)

    @property
    def horizon_steps(self) -> int:
        """Number of steps that the slow part of the learning rate is laid out for."""
        return max(self.steps, math.ceil(self.horizon * self.samples / self.batch_size))

    def rate(self, step: int) -> float:
        """The share of the peak learning rate at a step: up, slowly down, then down to 0."""
        warm = max(1, round(self.warmup * self.horizon_steps))
        turn = round(self.steps * (1.0 - self.cooldown))
        if step < warm:
            return (step + 1) / warm
        slow = (self.horizon_steps - min(step, turn)) / max(1, self.horizon_steps - warm)
        return slow if step < turn else slow * (self.steps - step) / (self.steps - turn)

    def recipe(self) -> dict[str, Any]:
        """The settings that determine the result, without paths, for the adapter file."""
        paths = {"data", "out", "backbone", "start", "checkpoint_every"}
        settings = {k: value for k, value in dataclasses.asdict(self).items() if k not in paths}
        start = hashlib.sha256(self.start.read_bytes()).hexdigest() if self.start else None
        return settings | {"start_sha256": start}


def train(phase: Phase) -> Path:
    """Train the adapter of a phase, write it to ``phase.out`` and return that path."""
    if phase.workers == 1:
        _work(0, phase, "")
    else:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(_work, (phase, f"{folder}/store"), nprocs=phase.workers)
    return phase.out


def _work(rank: int, phase: Phase, store: str) -> None:
    """Take one worker's part in a phase; the first one writes. ``store`` is where workers meet."""
    model, tokenizer = new_model(phase)
    examples = tokenize(read_pairs(training_files(phase.data)), tokenizer, phase.max_length)
    identity = _identity(phase, examples)
    if phase.out.is_file() and read_adapter(phase.out).metadata.get("identity") == identity:
        return
    if store:
        torch.set_num_threads(1)
        distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=phase.workers
        )
    plan = sample_plan(  # laid out for the horizon: a longer phase takes the same steps first
        examples,
        phase.source_weights,
        batch_size=phase.batch_size,
        batches=phase.horizon_steps,
        seed=phase.seed,
    )
    optimizer = _optimizer(model, phase)
    checkpoint = phase.out.with_name(f"{phase.out.name}.checkpoint")
    begin = _restore(checkpoint, identity, model, optimizer)
    if store:
        distributed.barrier()  # nobody writes the checkpoint before all have read it
    model.train()
    for step in range(begin, phase.steps):
        # A generator that is seeded by the step draws the same dropout in a resumed phase.
        torch.manual_seed(phase.seed * 1_000_003 + step + 1 + rank * 7919)
        for group in optimizer.param_groups:
            group["lr"] = phase.encoder_lr * group["base_lr"] * phase.rate(step)
        optimizer.zero_grad(set_to_none=False)
        mean = 0.0
        for indices in pieces(shared(plan[step], examples.groups, rank, phase), examples.lengths):
            batch = make_batch(examples, indices, tokenizer, phase.max_length)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            loss = pair_loss(logits.float(), batch, phase.margin, phase.ranking)
            loss = loss * (len(indices) / len(plan[step]))
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            mean += float(loss.detach())
        if store:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank > 0:
            continue
        if (step + 1) % 50 == 0:
            loss_here = f"loss of {len(plan[step])} pairs" if not store else "loss of its part"
            print(f"{phase.out.name}: step {step + 1} of {phase.steps}, {loss_here} {mean:.4f}")
        if (step + 1) % phase.checkpoint_every == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            part = checkpoint.with_suffix(".part")
            torch.save({"identity": identity, "step": step + 1, **states}, part)
            part.replace(checkpoint)
    if rank == 0:
        metadata = {
            "temperature": "1.0",
            "labels": json.dumps(list(ID2LABEL.values())),
            "recipe": json.dumps(phase.recipe(), sort_keys=True),
            "identity": identity,
        }
        backbone, _ = load_backbone(minilm.find(phase.backbone))
        write_adapter(
            phase.out, make_adapter(model.eval(), dict(backbone.named_parameters())), metadata
        )
        checkpoint.unlink(missing_ok=True)
    if store:
        distributed.destroy_process_group()


def shared(batch: np.ndarray, groups: np.ndarray, rank: int, phase: Phase) -> np.ndarray:
    """A worker's part of a step's pairs: every so manieth group, so that lengths are alike."""
    _, numbers = np.unique(groups[batch], return_inverse=True)
    return batch[numbers % phase.workers == rank]


def pair_loss(logits: Tensor, batch: NLIBatch, margin: float, ranking: float) -> Tensor:
    """The mean loss of a batch: of labels, and ``ranking`` times that of twins.

    Cross-entropy; where the label is `NOT_ENTAILED`, that of the sum of the other two
    probabilities. For each true and each false twin of one group in the batch the log-odds of
    entailment of the first should be above those of the second by ``margin`` (a hinge).
    """
    logs = logits.log_softmax(dim=-1)
    against = logs[:, :2].logsumexp(dim=-1)
    unnamed = batch.labels == NOT_ENTAILED_ID
    named = batch.labels.clamp(max=NOT_ENTAILED_ID - 1)
    of_labels = torch.where(unnamed, -against, -logs.gather(1, named[:, None])[:, 0]).mean()
    entailed = batch.labels == LABEL2ID["entailment"]
    twins = (batch.groups[:, None] == batch.groups) & entailed[:, None] & ~entailed
    odds = logs[:, LABEL2ID["entailment"]] - against
    short = (margin - odds[:, None] + odds).clamp(min=0.0)
    of_twins = (short * twins).sum() / len(odds)
    return of_labels + ranking * of_twins


def _restore(
    checkpoint: Path, identity: str, model: EmbeddedNLI, optimizer: torch.optim.Optimizer
) -> int:
    """The number of steps that a checkpoint of this very phase has done, its state put back."""
    if not checkpoint.is_file():
        return 0
    states = torch.load(checkpoint, weights_only=True)
    if states["identity"] != identity:
        raise SystemExit(f"{checkpoint} is of other settings or data: remove it")
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    return int(states["step"])


def new_model(phase: Phase) -> tuple[EmbeddedNLI, BertTokenizer]:
    """The model to start from: a freshly drawn head, or the adapter ``phase.start``.

    Dropout acts in the head alone: two passes over the data do not overfit the encoder, and its
    own dropout would cost time. Plain attention is used because the backward pass of the fused
    kernel takes a third of a step on a CPU.
    """
    bert, tokenizer = load_backbone(minilm.find(phase.backbone))
    bert.set_attn_implementation("eager")
    torch.manual_seed(phase.seed)
    model = EmbeddedNLI(bert)
    if phase.start:
        apply_adapter(read_adapter(phase.start), dict(bert.named_parameters()), model.head)
    model.head.drop.p = phase.dropout
    for module in bert.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    bert.config.attention_probs_dropout_prob = 0.0
    for module in [bert.embeddings, *list(bert.encoder.layer)[: phase.frozen_layers]]:
        module.requires_grad_(False)
    return model, tokenizer


def _optimizer(model: EmbeddedNLI, phase: Phase) -> torch.optim.AdamW:
    """AdamW with one group for the encoder and one for the head, which learns faster."""
    groups = [
        {"params": [p for p in model.bert.parameters() if p.requires_grad], "base_lr": 1.0},
        {"params": list(model.head.parameters()), "base_lr": phase.head_lr / phase.encoder_lr},
    ]
    return torch.optim.AdamW(
        groups, lr=phase.encoder_lr, weight_decay=phase.weight_decay, fused=True
    )


def pieces(indices: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """A step's examples in as many batches as keep each within ``PIECE_TOKENS`` padded tokens."""
    padded = len(indices) * int(lengths[indices].max())
    return np.array_split(indices, -(-padded // PIECE_TOKENS))


def _identity(phase: Phase, examples: NLIExamples) -> str:
    """A digest of recipe and data."""
    content = hashlib.sha256(json.dumps(phase.recipe(), sort_keys=True).encode())
    content.update(examples.labels.tobytes())
    content.update(examples.lengths.tobytes())
    return content.hexdigest()


# What an adapter is worth


@torch.inference_mode()
def predict_logits(
    model: EmbeddedNLI, tokenizer: BertTokenizer, pairs: pl.DataFrame
) -> tuple[Tensor, Tensor]:
    """Logits ``[n, 3]`` in float32 and labels of labelled pairs; like lengths go together."""
    examples = tokenize(pairs, tokenizer, MAX_LENGTH)
    model.eval()
    order = np.argsort(examples.lengths, kind="stable")
    logits = torch.zeros(len(order), len(ID2LABEL))
    for begin in range(0, len(order), 64):
        for indices in pieces(order[begin : begin + 64], examples.lengths):
            batch = make_batch(examples, indices, tokenizer, MAX_LENGTH)
            rows = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            logits[torch.from_numpy(indices)] = rows.float()
    return logits, torch.from_numpy(examples.labels)


def calibrate(adapter: Path, files: Sequence[Path], backbone: Path | None = None) -> float:
    """Fit the temperature of least negative log-likelihood, write it into the adapter."""
    model, tokenizer = load_embedded_nli(backbone, adapter=adapter)
    logits, labels = predict_logits(model, tokenizer, read_pairs(files))
    best = best_temperature(_probabilities(logits * model.temperature), labels.numpy())
    temperature = 1.0 if best is None else round(best, 4)
    content = read_adapter(adapter)
    write_adapter(adapter, content.tensors, {**content.metadata, "temperature": repr(temperature)})
    return temperature


def evaluate(adapter: Path, folders: Sequence[Path], backbone: Path | None = None) -> pl.DataFrame:
    """Calibrate, then measure on each ``dev_*.parquet``: pairs, accuracy, ece (shares)."""
    files = sorted(file for folder in folders for file in folder.glob("dev_*.parquet"))
    if fitted := [file for file in files if file.stem in CALIBRATION_SETS]:
        calibrate(adapter, fitted, backbone)
    model, tokenizer = load_embedded_nli(backbone, adapter=adapter)
    rows = []
    for file in files:
        logits, labels = predict_logits(model, tokenizer, read_pairs([file]))
        accuracy = float((logits.argmax(dim=-1) == labels).double().mean())
        ece = expected_calibration_error(_probabilities(logits), labels.numpy())
        rows.append({"set": file.stem, "pairs": len(labels), "accuracy": accuracy, "ece": ece})
    return pl.DataFrame(rows)


def _probabilities(logits: Tensor) -> np.ndarray:
    probabilities: np.ndarray = logits.double().softmax(dim=-1).numpy()
    return probabilities
