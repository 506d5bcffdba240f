"""BERTScore of token embeddings, and how many pairs are held for it at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Similarity(NamedTuple):
    """BERTScore of a candidate against a reference."""

    precision: float
    recall: float
    f1: float


def bertscore_from_embeddings(
    candidate: Tensor, reference: Tensor, candidate_weights: Tensor, reference_weights: Tensor
) -> Similarity:
    """Return P, R and F1 for unit-length embeddings ``[tokens, dim]`` and their weights.

    P is the weighted mean over candidate tokens of the largest cosine with any reference token, R
    the same with the roles exchanged; F1 is their harmonic mean, 0 where both are 0. A token of
    weight 0 can still be another's best match. Averages are taken in float64.
    """
    cosine = candidate @ reference.T
    precision = _weighted_mean(cosine.amax(dim=1), candidate_weights)
    recall = _weighted_mean(cosine.amax(dim=0), reference_weights)
    total = precision + recall
    return Similarity(precision, recall, 2 * precision * recall / total if total else 0.0)


def _weighted_mean(values: Tensor, weights: Tensor) -> float:
    weights = weights.double()
    total = float(weights.sum())
    if not total > 0:
        raise ValueError("a text without tokens of its own has no BERTScore")
    return float((values.double() * weights).sum()) / total


def windows(
    sides: NDArray[np.int64], lengths: NDArray[np.int64], most_tokens: int
) -> Iterator[range]:
    """Cut pairs into ranges whose distinct texts have at most ``most_tokens`` tokens.

    A single pair of more tokens is a range of its own.
    """
    start, tokens, seen = 0, 0, set[int]()
    for pair, texts in enumerate(sides.tolist()):
        new = set(texts) - seen
        tokens += sum(int(lengths[text]) for text in new)
        if tokens > most_tokens and pair > start:
            yield range(start, pair)
            start, seen = pair, set(texts)
            tokens = sum(int(lengths[text]) for text in seen)
        else:
            seen |= new
    if start < len(sides):
        yield range(start, len(sides))
