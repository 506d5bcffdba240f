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
from dataclasses import dataclass, replace
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
from claimscore.training.claim_pairs import PASSAGE_KINDS, claim_pairs
from claimscore.training.loop import (
    OnTraining,
    TrainingCheckpoint,
    TrainingProgress,
    silent,
    trained,
)
from claimscore.training.monotone import monotone_pairs
from claimscore.training.nli_examples import (
    LABEL2ID,
    NLIExamples,
    make_batch,
    read_pairs,
    sample_plan,
    tokenize,
    training_files,
)
from claimscore.training.recipes import FIRST_WEIGHTS, NLITrainingConfig

FIRST_PHASE = 192 / 282  # the first phase's share of the samples
CLAIM_PHASE = 131.2 / 282  # what the phase on claims adds to them
PASSAGE_PHASE = 160 / 282  # what the phase on passages adds to them
SECOND_WEIGHTS = tuple(dict(FIRST_WEIGHTS, synthetic_review=0.4, help_=1.5).items())
CLAIM_WEIGHTS = tuple(
    {
        **dict.fromkeys(("joci_", "mpe_"), 0.0),
        **dict.fromkeys(("synthetic_review", "monotone"), 0.3),
        **dict.fromkeys(("help_", "conjnli"), 0.5),
        **dict.fromkeys(("monli_", "fw_negation", "tenp_paragraph", "claim_adjunct"), 2.0),
        **{"cad_": 1.2, "tenp_": 0.5, "mnli_": 0.8, "dnc_": 0.6},
        **dict.fromkeys(("claim_turned", "claim_name"), 3.0),
        **dict.fromkeys(("claim_number", "claim_word"), 2.5),
        **dict.fromkeys(("claim_addition", "claim_kind"), 1.5),
        **{"claim_roles": 0.6, "claim_paragraph": 0.8},
        **dict.fromkeys((f"claim_{kind}" for kind in PASSAGE_KINDS), 0.0),
    }.items()
)
PASSAGE_WEIGHTS = tuple(
    {
        **dict.fromkeys(("joci_", "mpe_"), 0.0),
        **{"synthetic_review": 0.15, "monotone": 0.8, "conjnli": 0.4, "dnc_": 0.5},
        **dict.fromkeys(("monli_", "fw_negation", "tenp_paragraph"), 2.0),
        "tenp_": 0.5,
        **dict.fromkeys(("claim_turned", "claim_exchanged"), 3.0),
        **dict.fromkeys(("claim_name", "claim_number", "claim_word", "claim_adjunct"), 2.0),
        **dict.fromkeys(("claim_said", "claim_misread", "claim_kind"), 1.5),
        "claim_identity": 1.2,
        **dict.fromkeys(("claim_replaced", "claim_reworded", "claim_among"), 0.8),
        **dict.fromkeys(("claim_lexical", "claim_roles"), 0.7),
        **dict.fromkeys(("claim_scrambled", "claim_unrelated", "claim_unsaid"), 0.5),
        **{"claim_denied": 0.6, "claim_kept": 0.4},
    }.items()
)

#: The sets that the temperature is fitted on, and the length of the texts there.
CALIBRATION_SETS = ("dev_snli", "dev_mnli_matched")
MAX_LENGTH = 512

#: Padded tokens that are computed at a time in a step: bounds its memory.
PIECE_TOKENS = 8192

#: So many pairs about claims the threshold is fitted on, at most.
THRESHOLD_PAIRS = 4000

#: So many pairs are predicted at a time.
PREDICTED = 64


def phases(config: NLITrainingConfig) -> tuple[NLITrainingConfig, ...]:
    """Return the phases that made the shipped adapter, scaled to ``config.samples``.

    The first learns from the files alone. The second starts from it with rule-made pairs on
    narrower and wider phrases, which the files hold too few of, while the learning rate falls
    from half its peak to 0. The third, with ``human_claims``, trains every layer on longer texts
    and pairs about claims beside fewer of the others; the fourth adds pairs about passages.
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
    if not config.human_claims:
        return learn, settle
    settle = replace(settle, out=config.out.with_name(f"{config.out.stem}.phase2.safetensors"))
    samples = max(1, round(config.samples * CLAIM_PHASE))
    judge = replace(
        config,
        start=settle.out,
        out=config.out.with_name(f"{config.out.stem}.phase3.safetensors"),
        samples=samples,
        horizon=round(samples * 260 / 131.2),
        cooldown=0.35,
        warmup=0.02,
        encoder_lr=config.encoder_lr * 0.8,
        head_lr=config.head_lr * 0.4,
        frozen_layers=0,
        max_length=512,
        monotone_pairs=12_000,
        seed=config.seed + 2,
        source_weights=CLAIM_WEIGHTS,
    )
    samples = max(1, round(config.samples * PASSAGE_PHASE))
    passages = replace(
        judge,
        start=judge.out,
        out=config.out,
        samples=samples,
        horizon=round(samples * 460.8 / 160),
        cooldown=0.4,
        monotone_pairs=24_000,
        seed=config.seed + 3,
        source_weights=PASSAGE_WEIGHTS,
    )
    return *(replace(phase, human_claims=None) for phase in (learn, settle)), judge, passages


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
    threshold: float | None
    dev: tuple[DevResult, ...]


def train_nli(config: NLITrainingConfig, progress: OnTraining = silent) -> NLITrainingResult:
    """Train in phases, fit the temperature and evaluate.

    The sets are the ``dev_*.parquet`` in the data folders; where the calibration sets are not
    among them, the temperature stays 1. Called again after an interruption it goes on from the
    last checkpoint. The first phase's adapter stays beside the result.
    """
    for phase in phases(config):
        train(phase, progress)
    folders = [path for path in config.data if path.is_dir()]
    files = sorted(file for path in folders for file in path.glob("dev_*.parquet"))
    calibration = [file for file in files if file.stem in CALIBRATION_SETS]
    temperature = calibrate(config.out, calibration, config.backbone) if calibration else 1.0
    threshold = fit_threshold(config) if config.human_claims else None
    model, tokenizer = load_embedded_nli(config.backbone, adapter=config.out)
    results = []
    for file in files:
        logits, labels = predict_logits(model, tokenizer, read_pairs([file]))
        results.append(measure(file.stem, logits, labels))
    return NLITrainingResult(config.out, temperature, threshold, tuple(results))


def train(config: NLITrainingConfig, progress: OnTraining = silent) -> Path:
    """Train an adapter, write it to ``config.out`` and return that path.

    Checkpoints lie beside it and are removed at the end; calling again with the same
    configuration after an interruption goes on from the last one, and an adapter that this very
    configuration and data have made already is left as it is.
    """
    model, tokenizer = new_model(config)
    examples = tokenize(training_pairs(config), tokenizer, config.max_length)
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


def training_pairs(config: NLITrainingConfig) -> pl.DataFrame:
    """Return the pairs of the training files and the rule-made ones that are asked for."""
    pairs = read_pairs(training_files(config.data))
    made = []
    if config.monotone_pairs:
        made.append(monotone_pairs(config.monotone_pairs, config.seed))
    if config.human_claims:
        made.append(claim_pairs(config.human_claims, pairs))
    return pl.concat([pairs, *made])


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


def fit_threshold(config: NLITrainingConfig) -> float:
    """Fit on the pairs about claims for development, write it into the adapter, return it.

    It is the probability of entailment from which on a text carries a claim: that of the highest
    balanced accuracy, to two digits, the middle one of several.
    """
    if config.human_claims is None:
        raise ConfigError("a threshold is fitted on human claims")
    known = read_pairs(training_files(config.data))
    pairs = claim_pairs(config.human_claims, known, development=True)
    pairs = pairs.sample(min(THRESHOLD_PAIRS, len(pairs)), seed=1)
    model, tokenizer = load_embedded_nli(config.backbone, adapter=config.out)
    logits, labels = predict_logits(model, tokenizer, pairs)
    entailed = _probabilities(logits)[:, LABEL2ID["entailment"]]
    holds = labels.numpy() == LABEL2ID["entailment"]
    steps = [round(0.01 * step, 2) for step in range(1, 100)]
    said = [entailed >= step for step in steps]
    right = [(found[holds].mean() + (~found[~holds]).mean()) / 2 for found in said]
    best = [step for step, share in zip(steps, right, strict=True) if share == max(right)]
    threshold = best[len(best) // 2]
    content = read_adapter(config.out)
    write_adapter(config.out, content.tensors, {**content.metadata, "threshold": repr(threshold)})
    return threshold


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature of least negative log-likelihood, to four digits; 1 without one."""
    found = best_temperature(_probabilities(logits), labels.numpy())
    return 1.0 if found is None else round(found, 4)


def _probabilities(logits: Tensor) -> np.ndarray:
    probabilities: np.ndarray = logits.double().softmax(dim=-1).numpy()
    return probabilities
