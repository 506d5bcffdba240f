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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import BertTokenizerFast

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    EmbeddedNLI,
    find_backbone,
    load_backbone,
    make_adapter,
    write_adapter,
)

LABEL2ID = {label: index for index, label in ID2LABEL.items()}
COLUMNS = ("premise", "hypothesis", "label", "source")


@dataclass(frozen=True)
class NLITrainingConfig:
    """Everything that determines an adapter, and where things lie.

    ``data`` are Parquet files, or folders whose ``train*.parquet`` are taken. A source weight of
    2.0 shows that source's pairs twice a pass, 0.5 every other pass; names are prefixes of the
    ``source`` column, the first match counts, others weigh 1, and 0 leaves a source out.

    The learning rate falls slowly, as if to reach 0 at ``horizon`` samples, and over the last
    ``cooldown`` share of ``samples`` straight to 0. So runs of different length share their
    beginning, and the length can be chosen late.
    """

    data: tuple[Path, ...]
    out: Path
    backbone: Path | None = None
    samples: int = 240_000
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
    source_weights: tuple[tuple[str, float], ...] = (
        ("joci_", 0.0),
        ("mpe_", 0.0),
        ("synthetic_review", 0.6),
        ("help_", 2.0),
        ("monli_", 3.0),
        ("fw_negation", 2.0),
    )

    def __post_init__(self) -> None:
        if min(self.samples, self.batch_size, self.checkpoint_every) < 1:
            raise ConfigError("samples, batch_size and checkpoint_every must be positive")
        if not (0.0 <= self.warmup < 1.0 and 0.0 < self.cooldown <= 1.0):
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
        paths = {"data", "out", "backbone", "checkpoint_every"}
        return {name: value for name, value in asdict(self).items() if name not in paths}


class Progress(NamedTuple):
    """Where the training is: finished steps of how many, and the last step's mean loss."""

    step: int
    steps: int
    loss: float


class Examples(NamedTuple):
    """Tokenised pairs: ids of each side without special tokens, and the label's number."""

    premises: list[list[int]]
    hypotheses: list[list[int]]
    labels: np.ndarray
    sources: list[str]


class Batch(NamedTuple):
    """One padded batch, in the layout of ``EmbeddedNLI.forward``, with its labels."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor


def train(
    config: NLITrainingConfig, progress: Callable[[Progress], None] = lambda _: None
) -> Path:
    """Train an adapter, write it to ``config.out`` and return that path.

    Checkpoints lie beside it and are removed at the end; calling again with the same
    configuration after an interruption goes on from the last one.
    """
    model, tokenizer = new_model(config)
    backbone = {name: value.detach().clone() for name, value in model.bert.named_parameters()}
    examples = tokenize(read_pairs(training_files(config.data)), tokenizer, config.max_length)
    plan = sample_plan(examples, config)
    optimizer = make_optimizer(model, config)
    checkpoint = config.out.with_name(config.out.name + ".checkpoint")
    identity = run_identity(config, examples)
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
    }
    write_adapter(config.out, make_adapter(model.eval(), backbone), metadata)
    checkpoint.unlink(missing_ok=True)
    return config.out


def new_model(config: NLITrainingConfig) -> tuple[EmbeddedNLI, BertTokenizerFast]:
    """Return the backbone with a freshly drawn head; only trained parameters need gradients.

    Dropout acts in the head alone: two passes over the data do not overfit the encoder, and its
    own dropout would cost time. Plain attention is used because the backward pass of the fused
    kernel takes a third of a step on a CPU.
    """
    bert, tokenizer = load_backbone(find_backbone(config.backbone))
    bert.set_attn_implementation("eager")
    torch.manual_seed(config.seed)
    model = EmbeddedNLI(bert)
    model.head.drop.p = config.dropout
    for module in bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    bert.config.attention_probs_dropout_prob = 0.0
    frozen = [bert.embeddings, *list(bert.encoder.layer)[: config.frozen_layers]]
    for module in frozen:
        module.requires_grad_(False)
    return model, tokenizer


def training_files(data: Sequence[Path]) -> list[Path]:
    """Return the Parquet files that ``data`` names, folders replaced by their training files."""
    files: list[Path] = []
    for path in data:
        files += sorted(path.glob("train*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"no train*.parquet found in {', '.join(map(str, data))}")
    return files


def read_pairs(files: Sequence[Path]) -> pl.DataFrame:
    """Return the labelled pairs of some Parquet files, in the order of files and rows."""
    try:
        pairs = pl.concat([pl.read_parquet(file, columns=list(COLUMNS)) for file in files])
    except (pl.exceptions.PolarsError, OSError) as exc:
        raise ConfigError(f"cannot read NLI pairs ({', '.join(COLUMNS)}): {exc}") from exc
    unknown = set(pairs["label"].unique().to_list()) - set(LABEL2ID)
    if unknown:
        raise ConfigError(f"unknown NLI labels {sorted(map(str, unknown))} in {files}")
    return pairs


def tokenize(pairs: pl.DataFrame, tokenizer: BertTokenizerFast, max_length: int) -> Examples:
    """Tokenise each distinct text once and cut pairs that are too long, longer side first."""
    texts = list(dict.fromkeys(pairs["premise"].to_list() + pairs["hypothesis"].to_list()))
    encoded = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=max_length)
    ids = dict(zip(texts, encoded["input_ids"], strict=True))
    cut = [
        truncate(ids[premise], ids[hypothesis], max_length - 3)
        for premise, hypothesis in zip(pairs["premise"], pairs["hypothesis"], strict=True)
    ]
    labels = np.array([LABEL2ID[label] for label in pairs["label"]], dtype=np.int64)
    return Examples([p for p, _ in cut], [h for _, h in cut], labels, pairs["source"].to_list())


def truncate(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Cut the longer side until both fit in ``room`` tokens, as ``longest_first`` does."""
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    keep = min(len(second), max(room // 2, room - len(first)))
    return first[: room - keep], second[:keep]


def sample_plan(examples: Examples, config: NLITrainingConfig) -> list[np.ndarray]:
    """Return each step's example numbers: seeded, weighted by source, similar lengths together.

    Windows of 50 batches are sorted by length and cut into batches, whose order is drawn again,
    so padding is small and the order stays random. The plan is laid out for the horizon: a longer
    run takes the same steps first.
    """
    rng = np.random.default_rng(config.seed)
    weights = np.array([source_weight(name, config.source_weights) for name in examples.sources])
    lengths = pair_lengths(examples)
    samples = config.horizon_steps * config.batch_size
    order = np.concatenate(list(_passes(weights, samples, rng)))[:samples]
    plan: list[np.ndarray] = []
    window = 50 * config.batch_size
    for begin in range(0, len(order), window):
        part = order[begin : begin + window]
        part = part[np.argsort(lengths[part], kind="stable")]
        cuts = range(0, len(part), config.batch_size)
        batches = [part[cut : cut + config.batch_size] for cut in cuts]
        plan += [batches[number] for number in rng.permutation(len(batches))]
    return plan[: config.steps]


def _passes(weights: np.ndarray, samples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield shuffled passes over the data until there are enough samples."""
    if not (weights > 0).any():
        raise ConfigError("every source of the training data has weight 0")
    drawn = 0
    while drawn < samples:
        repeats = np.floor(weights + rng.random(len(weights))).astype(np.int64)
        numbers = rng.permutation(np.repeat(np.arange(len(weights)), repeats))
        drawn += len(numbers)
        yield numbers


def source_weight(source: str, weights: Sequence[tuple[str, float]]) -> float:
    """Return the weight of the first prefix that ``source`` starts with, else 1."""
    return next((weight for prefix, weight in weights if source.startswith(prefix)), 1.0)


def pair_lengths(examples: Examples) -> np.ndarray:
    """Return the number of tokens of each pair, special tokens included."""
    sides = zip(examples.premises, examples.hypotheses, strict=True)
    return np.array([len(first) + len(second) + 3 for first, second in sides], dtype=np.int64)


def make_batch(
    examples: Examples, indices: np.ndarray, tokenizer: BertTokenizerFast, max_length: int
) -> Batch:
    """Return ``[CLS] premise [SEP] hypothesis [SEP]``, padded to the batch's longest pair."""
    cls, sep, pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    firsts = [[cls, *examples.premises[i], sep] for i in indices]
    seconds = [[*examples.hypotheses[i], sep] for i in indices]
    lengths = [len(a) + len(b) for a, b in zip(firsts, seconds, strict=True)]
    width = min(max(lengths), max_length)
    ids = torch.full((len(indices), width), pad, dtype=torch.long)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        ids[row, : lengths[row]] = torch.tensor(first + second)
        mask[row, : lengths[row]] = 1
        types[row, len(first) : lengths[row]] = 1
    return Batch(ids, mask, types, torch.from_numpy(examples.labels[indices]))


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
