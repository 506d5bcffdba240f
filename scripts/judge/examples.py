"""Labelled pairs as the training needs them: read, tokenised, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor
from transformers import BertTokenizer

from claimscore.pipeline.encoders.embedded import ID2LABEL

LABEL2ID = {label: index for index, label in ID2LABEL.items()}

#: The label of pairs that are neutral or contradictory, nobody said which.
NOT_ENTAILED = "not entailed"
NOT_ENTAILED_ID = len(LABEL2ID)

PAIR_COLUMNS = ("premise", "hypothesis", "label", "source")


class NLIExamples(NamedTuple):
    """Tokenised pairs: ids of each side without special tokens, and the label's number.

    ``groups`` has one number for the twins of a group, and another for each other pair;
    ``lengths`` are the numbers of tokens, special tokens included.
    """

    premises: list[list[int]]
    hypotheses: list[list[int]]
    labels: np.ndarray
    sources: list[str]
    groups: np.ndarray
    lengths: np.ndarray


class NLIBatch(NamedTuple):
    """One padded batch, in the layout of ``EmbeddedNLI.forward``, with its labels."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor
    groups: Tensor


def training_files(data: Sequence[Path]) -> list[Path]:
    """Return the Parquet files that ``data`` names, folders replaced by their training files."""
    files: list[Path] = []
    for path in data:
        files += sorted(path.glob("train*.parquet")) if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"no train*.parquet found in {', '.join(map(str, data))}")
    return files


def read_pairs(files: Sequence[Path]) -> pl.DataFrame:
    """Return the labelled pairs of some Parquet files, in the order of files and rows.

    Their columns are `PAIR_COLUMNS` and ``twin``: the name of a group, or null.
    """
    pairs = pl.concat(
        [
            pl.read_parquet(file).select(
                *PAIR_COLUMNS,
                pl.col("twin")
                if "twin" in pl.read_parquet_schema(file)
                else pl.lit(None, pl.String).alias("twin"),
            )
            for file in files
        ]
    )
    unknown = set(pairs["label"].unique().to_list()) - {*LABEL2ID, NOT_ENTAILED}
    if unknown:
        raise SystemExit(f"unknown NLI labels {sorted(map(str, unknown))} in {files}")
    return pairs


def tokenize(pairs: pl.DataFrame, tokenizer: BertTokenizer, max_length: int) -> NLIExamples:
    """Tokenise each distinct text once and cut pairs that are too long, longer side first."""
    texts = list(dict.fromkeys(pairs["premise"].to_list() + pairs["hypothesis"].to_list()))
    encoded = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=max_length)
    ids = dict(zip(texts, encoded["input_ids"], strict=True))
    cut = [
        truncate(ids[premise], ids[hypothesis], max_length - 3)
        for premise, hypothesis in zip(pairs["premise"], pairs["hypothesis"], strict=True)
    ]
    numbers = LABEL2ID | {NOT_ENTAILED: NOT_ENTAILED_ID}
    labels = np.array([numbers[label] for label in pairs["label"]], dtype=np.int64)
    alone = pl.format("alone {}", pl.int_range(pl.len()))
    names = pairs.select(pl.coalesce("twin", alone) if "twin" in pairs.columns else alone)
    groups = names.to_series().rank("dense").to_numpy().astype(np.int64)
    lengths = np.array([len(first) + len(second) + 3 for first, second in cut], dtype=np.int64)
    sides = [p for p, _ in cut], [h for _, h in cut]
    return NLIExamples(*sides, labels, pairs["source"].to_list(), groups, lengths)


def truncate(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Cut the longer side until both fit in ``room`` tokens, as ``longest_first`` does."""
    if len(first) + len(second) <= room:
        return first, second
    keep = min(len(second), max(room // 2, room - len(first)))
    return first[: room - keep], second[:keep]


def make_batch(
    examples: NLIExamples, indices: np.ndarray, tokenizer: BertTokenizer, max_length: int
) -> NLIBatch:
    """Return ``[CLS] premise [SEP] hypothesis [SEP]``, padded to the batch's longest pair."""
    cls, sep, pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    firsts = [[cls, *examples.premises[i], sep] for i in indices]
    seconds = [[*examples.hypotheses[i], sep] for i in indices]
    width = min(max(len(a) + len(b) for a, b in zip(firsts, seconds, strict=True)), max_length)
    ids = torch.full((len(indices), width), pad, dtype=torch.long)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        length = len(first) + len(second)
        ids[row, :length] = torch.tensor(first + second)
        mask[row, :length] = 1
        types[row, len(first) : length] = 1
    of_pairs = (torch.from_numpy(part[indices]) for part in (examples.labels, examples.groups))
    return NLIBatch(ids, mask, types, *of_pairs)


def sample_plan(
    examples: NLIExamples,
    weights: Sequence[tuple[str, float]],
    *,
    batch_size: int,
    batches: int,
    seed: int,
) -> list[np.ndarray]:
    """Return each step's example numbers: seeded, weighted by source, similar lengths together.

    Windows of 50 batches are sorted by length and cut into batches, whose order is drawn again,
    so padding is small and the order stays random. Twins stay together.
    """
    rng = np.random.default_rng(seed)
    by_example = np.array([source_weight(name, weights) for name in examples.sources])
    longest = np.zeros(int(examples.groups.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(longest, examples.groups, examples.lengths)
    lengths = longest[examples.groups]
    samples = batches * batch_size
    passes = _passes(by_example, examples.groups, samples, rng)
    order = np.concatenate(list(passes))[:samples]
    plan: list[np.ndarray] = []
    window = 50 * batch_size
    for begin in range(0, len(order), window):
        part = order[begin : begin + window]
        part = part[np.lexsort((examples.groups[part], lengths[part]))]
        chunks = [part[cut : cut + batch_size] for cut in range(0, len(part), batch_size)]
        plan += [chunks[number] for number in rng.permutation(len(chunks))]
    return plan


def _passes(
    weights: np.ndarray, groups: np.ndarray, samples: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield shuffled passes over the data, group by group, until there are enough samples."""
    if not (weights > 0).any():
        raise SystemExit("every source of the training data has weight 0")
    drawn = 0
    while drawn < samples:
        draws = rng.random(int(groups.max()) + 1)[groups]
        repeats = np.floor(weights + draws).astype(np.int64)
        numbers = np.repeat(np.arange(len(weights)), repeats)
        numbers = numbers[np.argsort(rng.random(int(groups.max()) + 1)[groups[numbers]])]
        drawn += len(numbers)
        yield numbers


def source_weight(source: str, weights: Sequence[tuple[str, float]]) -> float:
    """Return the weight of the first prefix that ``source`` starts with, else 1."""
    return next((weight for prefix, weight in weights if source.startswith(prefix)), 1.0)
