"""Make the BERTScore baseline of the embedded token encoder: what unrelated texts score.

As bert-score does (Zhang et al. 2020, section "Rescaling BERTScore"): the mean precision, recall
and F1 of many random pairs of sentences, for each layer. Here the encoder is all-MiniLM-L6-v2 as
published, without the NLI adapter. Texts come from the columns of Parquet files, drawn with a
seed, so the file can be made again:

    python scripts/make_bertscore_baseline.py shared/data/nli/dev_*.parquet
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertModel, BertTokenizer

from claimscore import minilm

OUT = Path("claimscore/pipeline/encoders/data/bertscore_baseline.json")
COLUMNS = ("premise", "hypothesis")
DEFAULT_LAYER = 6
BATCH = 50
MAX_LENGTH = 256


def main() -> None:
    """Write the baseline file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="Parquet files with texts")
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS))
    parser.add_argument("--backbone", type=Path, help="folder with all-MiniLM-L6-v2")
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    folder = minilm.find(options.backbone)
    bert = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
    tokenizer = BertTokenizer.from_pretrained(folder)
    texts = distinct_texts(options.files, options.columns)
    pairs = random_pairs(texts, options.pairs, options.seed)
    means = layer_means(bert, tokenizer, pairs)
    content = {
        "model": minilm.HUB_ID,
        "weights_sha256": minilm.SHA256,
        "method": "mean precision, recall, F1 over random pairs of distinct texts; one layer's "
        "unit token embeddings; special tokens have no weight but can be matched; no idf",
        "default_layer": DEFAULT_LAYER,
        "pairs": len(pairs),
        "seed": options.seed,
        "texts": {
            "files": sorted(file.name for file in options.files),
            "columns": options.columns,
            "distinct": len(texts),
        },
        "layers": {
            str(layer): dict(zip(("precision", "recall", "f1"), row, strict=True))
            for layer, row in enumerate(means.tolist(), start=1)
        },
    }
    options.out.write_text(json.dumps(rounded(content), indent=2) + "\n", encoding="utf-8")


def distinct_texts(files: list[Path], columns: list[str]) -> list[str]:
    """Return the distinct texts of some columns sorted, so the order of files is no matter."""
    frames = [pl.read_parquet(file, columns=columns) for file in files]
    found = {text.strip() for frame in frames for column in columns for text in frame[column]}
    return sorted(found - {""})


def random_pairs(texts: list[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of two different texts drawn at random: unrelated but for rare accidents."""
    rng = random.Random(seed)
    return [tuple(rng.sample(texts, 2)) for _ in range(count)]  # type: ignore[misc]  # two drawn


@torch.inference_mode()
def layer_means(bert: BertModel, tokenizer: BertTokenizer, pairs: list[tuple[str, str]]) -> Tensor:
    """Return ``[layers, 3]``: mean precision, recall and F1 of the pairs at each layer."""
    totals = torch.zeros(int(bert.config.num_hidden_layers), 3, dtype=torch.float64)
    for batch in batches(pairs):
        candidates, references = (
            encode(bert, tokenizer, list(side)) for side in zip(*batch, strict=True)
        )
        for layer, total in enumerate(totals):
            total += scores(
                candidates[0][layer], candidates[1], references[0][layer], references[1]
            ).sum(dim=0)
    return totals / len(pairs)


def batches(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs in groups of like length."""
    ordered = sorted(pairs, key=lambda pair: max(map(len, pair)))
    for begin in range(0, len(ordered), BATCH):
        yield ordered[begin : begin + BATCH]


def encode(
    bert: BertModel, tokenizer: BertTokenizer, texts: list[str]
) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
    """Return unit token embeddings of each layer, and the masks of all and of weighted tokens."""
    encoded = tokenizer(
        texts,
        padding=True,
        truncation=True,
        max_length=MAX_LENGTH,
        return_tensors="pt",
        return_special_tokens_mask=True,
    )
    special = encoded.pop("special_tokens_mask")
    states = bert(**encoded, output_hidden_states=True).hidden_states[1:]
    mask = encoded["attention_mask"]
    return [F.normalize(state, dim=-1) for state in states], (mask, mask * (1 - special))


def scores(
    candidate: Tensor,
    candidate_masks: tuple[Tensor, Tensor],
    reference: Tensor,
    reference_masks: tuple[Tensor, Tensor],
) -> Tensor:
    """Return ``[pairs, 3]``: precision, recall, F1."""
    similarity = candidate @ reference.transpose(1, 2)
    allowed = candidate_masks[0][:, :, None] * reference_masks[0][:, None, :]
    similarity = similarity.masked_fill(allowed == 0, -1.0)
    precision = weighted_mean(similarity.amax(dim=2), candidate_masks[1])
    recall = weighted_mean(similarity.amax(dim=1), reference_masks[1])
    f1 = 2 * precision * recall / (precision + recall)
    return torch.stack([precision, recall, f1], dim=1).double()


def weighted_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens that have weight."""
    return (values * mask).sum(dim=1) / mask.sum(dim=1)


def rounded(content: dict[str, object]) -> dict[str, object]:
    """Round the numbers to eight digits, which is more than the draw of the pairs determines."""
    return json.loads(json.dumps(content), parse_float=lambda text: round(float(text), 8))  # type: ignore[no-any-return]  # json is untyped


if __name__ == "__main__":
    main()
