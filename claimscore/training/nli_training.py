"""`claimscore train nli`: the adapter of the embedded NLI model, from labelled sentence pairs.

Why it is here: the adapter that claimscore ships can be made again from the same files.
The recipe is full fine-tuning of the encoder's upper layers (embeddings and the lowest layers stay
as they are) and a segment head; the quantised difference to the backbone is kept.

Guarantees: the amount of work is a number of samples, never a time; the same configuration, data,
thread count and machine give the same bytes; a run that was interrupted goes on from its last
checkpoint to the same result. Checkpoints and results are safetensors, nothing is pickled.

Accuracy counts the largest of the three logits, also on sets that use two labels only (MED, MoNLI,
the sentiment set), so that numbers of different models compare. Calibration is one temperature,
the standard remedy of Guo et al. 2017 (https://arxiv.org/abs/1706.04599): it changes no label.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    EmbeddedNLI,
    apply_adapter,
    find_backbone,
    load_backbone,
    load_embedded_nli,
    make_adapter,
    read_adapter,
    write_adapter,
)
from claimscore.stats.calibration import best_temperature, expected_calibration_error
from claimscore.stats.classification import confusion_matrix
from claimscore.training.loop import (
    OnTraining,
    TrainingCheckpoint,
    TrainingProgress,
    silent,
    trained,
)
from claimscore.training.nli_examples import (
    NLIExamples,
    make_batch,
    read_pairs,
    sample_plan,
    tokenize,
    training_files,
)
from claimscore.training.recipes import NLITrainingConfig

#: The sets that the temperature is fitted on, and the length of the texts there.
CALIBRATION_SETS = ("dev_snli", "dev_mnli_matched")
MAX_LENGTH = 512

#: Padded tokens that are computed at a time in a step: bounds its memory.
PIECE_TOKENS = 8192

#: So many pairs are predicted at a time.
PREDICTED = 64


@dataclass(frozen=True)
class DevResult:
    """How a model does on one set; ``confusion`` rows are true labels, columns predicted ones."""

    name: str
    pairs: int
    accuracy: float
    ece: float
    nll: float
    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NLITrainingResult:
    """The result of ``train_nli``: the adapter, what was fitted, and its figures on each set."""

    adapter: Path
    temperature: float
    dev: tuple[DevResult, ...]


def train_nli(config: NLITrainingConfig, progress: OnTraining = silent) -> NLITrainingResult:
    """Train, fit the temperature and evaluate.

    The sets are the ``dev_*.parquet`` in the data folders; where the calibration sets are not
    among them, the temperature stays 1. Called again after an interruption it goes on from the
    last checkpoint.
    """
    train(config, progress)
    folders = [path for path in config.data if path.is_dir()]
    files = sorted(file for path in folders for file in path.glob("dev_*.parquet"))
    calibration = [file for file in files if file.stem in CALIBRATION_SETS]
    temperature = calibrate(config.out, calibration, config.backbone) if calibration else 1.0
    model, tokenizer = load_embedded_nli(config.backbone, adapter=config.out)
    results = []
    for file in files:
        logits, labels = predict_logits(model, tokenizer, read_pairs([file]))
        results.append(measure(file.stem, logits, labels))
    return NLITrainingResult(config.out, temperature, tuple(results))


def train(config: NLITrainingConfig, progress: OnTraining = silent) -> Path:
    """Train an adapter, write it to ``config.out`` and return that path.

    Checkpoints lie beside it and are removed at the end; calling again with the same
    configuration after an interruption goes on from the last one, and an adapter that this very
    configuration and data have made already is left as it is.
    """
    model, tokenizer = new_model(config)
    examples = tokenize(read_pairs(training_files(config.data)), tokenizer, config.max_length)
    identity = _identity(config, examples)
    if config.out.is_file() and read_adapter(config.out).metadata.get("identity") == identity:
        return config.out
    # The plan is laid out for the horizon, so a longer run takes the same steps first.
    plan = sample_plan(
        examples,
        config.source_weights,
        batch_size=config.batch_size,
        batches=config.horizon_steps,
        seed=config.seed,
    )
    checkpoint = TrainingCheckpoint(config.out.with_name(config.out.name + ".checkpoint"), identity)
    parameters = trained(model)
    saved = checkpoint.load(parameters, lambda facts: _optimizer(model, config))
    optimizer = saved[1] if saved else _optimizer(model, config)
    model.train()
    for step in range(saved[0].facts["step"] if saved else 0, config.steps):
        # A generator that is seeded by the step draws the same dropout in a resumed run.
        torch.manual_seed(config.seed * 1_000_003 + step + 1)
        for group in optimizer.param_groups:
            group["lr"] = config.encoder_lr * group["base_lr"] * schedule(step, config)
        optimizer.zero_grad(set_to_none=True)
        value = 0.0
        for indices in pieces(plan[step], examples.lengths):
            batch = make_batch(examples, indices, tokenizer, config.max_length)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.bf16):
                logits = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            loss = F.cross_entropy(logits.float(), batch.labels) * (len(indices) / len(plan[step]))
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            value += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress(TrainingProgress("step", step + 1, config.steps, value))
        if (step + 1) % config.checkpoint_every == 0:
            checkpoint.save({"step": step + 1}, parameters, optimizer)
    metadata = {
        "temperature": "1.0",
        "labels": json.dumps(list(ID2LABEL.values())),
        "recipe": json.dumps(config.recipe(), sort_keys=True),
        "identity": identity,
    }
    backbone, _ = load_backbone(find_backbone(config.backbone))
    tensors = make_adapter(model.eval(), dict(backbone.named_parameters()))
    config.out.parent.mkdir(parents=True, exist_ok=True)
    write_adapter(config.out, tensors, metadata)
    checkpoint.remove()
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
        apply_adapter(read_adapter(config.start), dict(bert.named_parameters()), model.head)
    model.head.drop.p = config.dropout
    for module in bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    bert.config.attention_probs_dropout_prob = 0.0
    frozen = [bert.embeddings, *list(bert.encoder.layer)[: config.frozen_layers]]
    for module in frozen:
        module.requires_grad_(False)
    return model, tokenizer


def _optimizer(model: EmbeddedNLI, config: NLITrainingConfig) -> torch.optim.AdamW:
    """AdamW with one group for the encoder and one for the head, which learns faster."""
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


def pieces(indices: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """A step's examples in as many batches as keep each within ``PIECE_TOKENS`` padded tokens."""
    padded = len(indices) * int(lengths[indices].max())
    return np.array_split(indices, -(-padded // PIECE_TOKENS))


def _identity(config: NLITrainingConfig, examples: NLIExamples) -> str:
    """A digest of recipe and data: a checkpoint of another run is not continued."""
    content = hashlib.sha256(json.dumps(config.recipe(), sort_keys=True).encode())
    content.update(examples.labels.tobytes())
    content.update(examples.lengths.tobytes())
    return content.hexdigest()


@torch.inference_mode()
def predict_logits(
    model: EmbeddedNLI, tokenizer: BertTokenizer, pairs: pl.DataFrame
) -> tuple[Tensor, Tensor]:
    """Return the logits ``[n, 3]`` in float32 and the labels of labelled pairs.

    Pairs of like lengths are computed together.
    """
    examples = tokenize(pairs, tokenizer, MAX_LENGTH)
    model.eval()
    order = np.argsort(examples.lengths, kind="stable")
    logits = torch.zeros(len(order), len(ID2LABEL))
    for begin in range(0, len(order), PREDICTED):
        for indices in pieces(order[begin : begin + PREDICTED], examples.lengths):
            batch = make_batch(examples, indices, tokenizer, MAX_LENGTH)
            rows = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            logits[torch.from_numpy(indices)] = rows.float()
    return logits, torch.from_numpy(examples.labels)


def measure(name: str, logits: Tensor, labels: Tensor) -> DevResult:
    """Return accuracy, calibration error and confusion of some logits; no pairs are an error."""
    if not len(labels):
        raise ConfigError(f"the evaluation set {name} is empty")
    predicted = logits.argmax(dim=-1)
    confusion = confusion_matrix(labels.numpy(), predicted.numpy(), len(ID2LABEL))
    return DevResult(
        name=name,
        pairs=len(labels),
        accuracy=float((predicted == labels).double().mean()),
        ece=expected_calibration_error(_probabilities(logits), labels.numpy()),
        nll=float(F.cross_entropy(logits, labels)),
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def calibrate(adapter: Path, files: Sequence[Path], backbone: Path | None = None) -> float:
    """Fit the temperature on the pairs of ``files``, write it into the adapter, return it."""
    model, tokenizer = load_embedded_nli(backbone, adapter=adapter)
    logits, labels = predict_logits(model, tokenizer, read_pairs(files))
    temperature = fit_temperature(logits * model.temperature, labels)
    content = read_adapter(adapter)
    write_adapter(adapter, content.tensors, {**content.metadata, "temperature": repr(temperature)})
    return temperature


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature of least negative log-likelihood, to four digits; 1 without one."""
    found = best_temperature(_probabilities(logits), labels.numpy())
    return 1.0 if found is None else round(found, 4)


def _probabilities(logits: Tensor) -> np.ndarray:
    probabilities: np.ndarray = logits.double().softmax(dim=-1).numpy()
    return probabilities
