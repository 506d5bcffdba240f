"""Train the adapter of the embedded NLI model from labelled sentence pairs.

Why it is here: what claimscore ships can be made again by anyone from the same files. The recipe
is full fine-tuning of the encoder's upper layers (embeddings and the lowest layers stay as they
are) and a segment head; what is kept is the quantised difference to the backbone.

Guarantees: the amount of work is a number of samples, never a time; the same configuration, data,
thread count and machine give the same bytes; a run that was interrupted goes on from its last
checkpoint to the same result. Checkpoints and results are safetensors, nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import BertTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    EmbeddedNLI,
    apply_adapter,
    file_sha256,
    find_backbone,
    load_backbone,
    make_adapter,
    read_adapter,
    write_adapter,
)
from claimscore.training.monotone import monotone_pairs
from claimscore.training.nli_data import (
    Batch,
    Examples,
    make_batch,
    pair_lengths,
    read_pairs,
    sample_plan,
    tokenize,
    training_files,
)

FIRST_PHASE = 192 / 282  # the first phase's share of the samples
FIRST_WEIGHTS = (
    ("joci_", 0.0),
    ("mpe_", 0.0),
    ("synthetic_review", 0.6),
    ("help_", 2.0),
    ("monli_", 3.0),
    ("fw_negation", 2.0),
)
SECOND_WEIGHTS = (
    ("joci_", 0.0),
    ("mpe_", 0.0),
    ("synthetic_review", 0.4),
    ("help_", 1.5),
    ("monli_", 3.0),
    ("fw_negation", 2.0),
)


@dataclass(frozen=True)
class NLITrainingConfig:
    """Everything that determines an adapter, and where things lie.

    ``data`` are Parquet files, or folders whose ``train*.parquet`` are taken. A source weight of
    2.0 shows that source's pairs twice a pass, 0.5 every other pass; names are prefixes of the
    ``source`` column, the first match counts, others weigh 1, and 0 leaves a source out.

    The learning rate falls slowly, as if to reach 0 at ``horizon`` samples, and over the last
    ``cooldown`` share of ``samples`` straight to 0. ``start`` is an adapter to go on from: a second
    phase of training. ``monotone_pairs`` of the rule-made kind (``training/monotone.py``) are added
    to the data.
    """

    data: tuple[Path, ...]
    out: Path
    backbone: Path | None = None
    start: Path | None = None
    monotone_pairs: int = 0
    samples: int = 282_000
    horizon: int = 360_000
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
    bf16: bool = True
    checkpoint_every: int = 500
    source_weights: tuple[tuple[str, float], ...] = FIRST_WEIGHTS

    def __post_init__(self) -> None:
        if min(self.samples, self.batch_size, self.checkpoint_every) < 1:
            raise ConfigError("samples, batch_size and checkpoint_every must be positive")
        if not (0.0 <= self.warmup < 1.0 and 0.0 <= self.cooldown <= 1.0):
            raise ConfigError("warmup and cooldown are shares of the steps, at most 1")

    @property
    def steps(self) -> int:
        """Number of optimiser steps."""
        return math.ceil(self.samples / self.batch_size)

    @property
    def horizon_steps(self) -> int:
        """Number of steps that the slow part of the learning rate is laid out for."""
        return max(self.steps, math.ceil(self.horizon / self.batch_size))

    def recipe(self) -> dict[str, object]:
        """Return the settings that determine the result, without paths, for the adapter file."""
        paths = {"data", "out", "backbone", "start", "checkpoint_every"}
        settings = {name: value for name, value in asdict(self).items() if name not in paths}
        return settings | {"start_sha256": file_sha256(self.start) if self.start else None}


def two_phases(config: NLITrainingConfig) -> tuple[NLITrainingConfig, NLITrainingConfig]:
    """Return the two phases that made the shipped adapter, scaled to ``config.samples``.

    The first learns from the files alone. The second starts from it with rule-made pairs on
    narrower and wider phrases, which the files hold too few of, while the learning rate falls
    from half its peak to 0.
    """
    middle = config.out.with_name(f"{config.out.stem}.phase1.safetensors")
    first = max(1, round(config.samples * FIRST_PHASE))
    learn = replace(config, out=middle, samples=first, horizon=round(first * 1.875), cooldown=0.0)
    settle = replace(
        config,
        start=middle,
        samples=max(1, config.samples - first),
        horizon=1,
        cooldown=1.0,
        warmup=0.03,
        encoder_lr=config.encoder_lr / 2,
        head_lr=config.head_lr / 2,
        monotone_pairs=24_000,
        seed=config.seed + 1,
        source_weights=SECOND_WEIGHTS,
    )
    return learn, settle


class Progress(NamedTuple):
    """Where the training is: finished steps of how many, and the last step's mean loss."""

    step: int
    steps: int
    loss: float


def train(config: NLITrainingConfig, progress: Callable[[Progress], None] = lambda _: None) -> Path:
    """Train an adapter, write it to ``config.out`` and return that path.

    Checkpoints lie beside it and are removed at the end; calling again with the same
    configuration after an interruption goes on from the last one, and an adapter that this very
    configuration and data have made already is left as it is.
    """
    model, tokenizer = new_model(config)
    examples = tokenize(training_pairs(config), tokenizer, config.max_length)
    identity = run_identity(config, examples)
    if is_made(config.out, identity):
        return config.out
    plan = training_plan(examples, config)
    optimizer = make_optimizer(model, config)
    checkpoint = config.out.with_name(config.out.name + ".checkpoint")
    start = load_checkpoint(checkpoint, identity, model, optimizer)
    model.train()
    for step in range(start, config.steps):
        indices = plan[step]
        batch = make_batch(examples, indices, tokenizer, config.max_length)
        loss = training_step(model, optimizer, batch, config, step)
        progress(Progress(step + 1, config.steps, loss))
        if (step + 1) % config.checkpoint_every == 0:
            save_checkpoint(checkpoint, identity, step + 1, model, optimizer)
    config.out.parent.mkdir(parents=True, exist_ok=True)
    metadata = {
        "temperature": "1.0",
        "labels": json.dumps(list(ID2LABEL.values())),
        "recipe": json.dumps(config.recipe(), sort_keys=True),
        "identity": identity,
    }
    backbone, _ = load_backbone(find_backbone(config.backbone))
    tensors = make_adapter(model.eval(), dict(backbone.named_parameters()))
    write_adapter(config.out, tensors, metadata)
    checkpoint.unlink(missing_ok=True)
    return config.out


def new_model(config: NLITrainingConfig) -> tuple[EmbeddedNLI, BertTokenizer]:
    """Return the model to start from: a freshly drawn head, or the adapter ``config.start``.

    Dropout acts in the head alone: two passes over the data do not overfit the encoder, and its
    own dropout would cost time. Plain attention is used because the backward pass of the fused
    kernel takes a third of a step on a CPU.
    """
    bert, tokenizer = load_backbone(find_backbone(config.backbone))
    bert.set_attn_implementation("eager")
    torch.manual_seed(config.seed)
    model = EmbeddedNLI(bert)
    if config.start:
        apply_adapter(model, read_adapter(config.start))
    model.head.drop.p = config.dropout
    for module in bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    bert.config.attention_probs_dropout_prob = 0.0
    frozen = [bert.embeddings, *list(bert.encoder.layer)[: config.frozen_layers]]
    for module in frozen:
        module.requires_grad_(False)
    return model, tokenizer


def training_pairs(config: NLITrainingConfig) -> pl.DataFrame:
    """Return the pairs of the training files and the rule-made ones that are asked for."""
    pairs = read_pairs(training_files(config.data))
    if not config.monotone_pairs:
        return pairs
    return pl.concat([pairs, monotone_pairs(config.monotone_pairs, config.seed)])


def training_plan(examples: Examples, config: NLITrainingConfig) -> list[np.ndarray]:
    """Return the example numbers of each step.

    The plan is laid out for the horizon, so a longer run takes the same steps first.
    """
    plan = sample_plan(
        examples,
        config.source_weights,
        batch_size=config.batch_size,
        batches=config.horizon_steps,
        seed=config.seed,
    )
    return plan[: config.steps]


def make_optimizer(model: EmbeddedNLI, config: NLITrainingConfig) -> torch.optim.AdamW:
    """Return AdamW with one group for the encoder and one for the head, which learns faster."""
    groups = [
        {"params": [p for p in model.bert.parameters() if p.requires_grad], "base_lr": 1.0},
        {"params": list(model.head.parameters()), "base_lr": config.head_lr / config.encoder_lr},
    ]
    return torch.optim.AdamW(
        groups, lr=config.encoder_lr, weight_decay=config.weight_decay, fused=True
    )


def schedule(step: int, config: NLITrainingConfig) -> float:
    """Return the share of the peak learning rate at a step: up, slowly down, then down to 0."""
    horizon = config.horizon_steps
    warm = max(1, round(config.warmup * horizon))
    turn = round(config.steps * (1.0 - config.cooldown))
    if step < warm:
        return (step + 1) / warm
    slow = (horizon - min(step, turn)) / max(1, horizon - warm)
    return slow if step < turn else slow * (config.steps - step) / (config.steps - turn)


def training_step(
    model: EmbeddedNLI,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    config: NLITrainingConfig,
    step: int,
) -> float:
    """Take one optimiser step and return its loss.

    The generator is seeded by the step, so a resumed run draws the dropout it would have drawn.
    """
    torch.manual_seed(config.seed * 1_000_003 + step + 1)
    for group in optimizer.param_groups:
        group["lr"] = config.encoder_lr * group["base_lr"] * schedule(step, config)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.bf16):
        logits = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    loss = F.cross_entropy(logits.float(), batch.labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def run_identity(config: NLITrainingConfig, examples: Examples) -> str:
    """Return a digest of recipe and data: a checkpoint of another run is not continued."""
    content = hashlib.sha256(json.dumps(config.recipe(), sort_keys=True).encode())
    content.update(examples.labels.tobytes())
    content.update(pair_lengths(examples).tobytes())
    return content.hexdigest()


def is_made(path: Path, identity: str) -> bool:
    """Say whether ``path`` is the finished adapter of the run with this identity."""
    return path.is_file() and read_adapter(path).metadata.get("identity") == identity


def save_checkpoint(
    path: Path, identity: str, step: int, model: EmbeddedNLI, optimizer: torch.optim.AdamW
) -> None:
    """Write trained parameters and optimiser state after ``step`` steps, through a rename."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained(model):
        tensors[f"value.{name}"] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            tensors[f"{key}.{name}"] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    save_file(tensors, temporary, metadata={"identity": identity, "step": str(step)})
    temporary.replace(path)


def load_checkpoint(
    path: Path, identity: str, model: EmbeddedNLI, optimizer: torch.optim.AdamW
) -> int:
    """Restore a checkpoint of this very run and return its step; 0 if there is none."""
    if not path.is_file():
        return 0
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        if metadata.get("identity") != identity:
            raise ConfigError(f"{path} belongs to a run with other settings or data; remove it")
        for name, parameter in trained(model):
            with torch.no_grad():
                parameter.copy_(file.get_tensor(f"value.{name}"))
            keys = ("step", "exp_avg", "exp_avg_sq")
            optimizer.state[parameter] = {k: file.get_tensor(f"{k}.{name}") for k in keys}
    return int(metadata["step"])


def trained(model: EmbeddedNLI) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the parameters that training changes, by name."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)
