"""The ranking loss of LS_Score, and how well a model ranks held-out records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor, stack
from torch.nn import functional as F

from claimscore.training.ls_negatives import LINGUISTIC, SEMANTIC

Loss = Literal["paper", "code", "code-unpadded"]
LOSSES: tuple[Loss, ...] = ("paper", "code", "code-unpadded")


class Ranked(NamedTuple):
    """One record's loss and ``[1 + negatives]`` scores, the good summary's first.

    ``linguistic`` and ``semantic`` are the score's parts as they stand in it; a linear head has
    none. ``kinds`` names the negatives.
    """

    kinds: tuple[str, ...]
    loss: Tensor
    scores: Tensor
    linguistic: Tensor | None = None
    semantic: Tensor | None = None


class KindShares(NamedTuple):
    """Of the held-out negatives of one kind, the shares that score below their good summary.

    By the whole score, by L alone and by S alone; equal scores do not count as below.
    """

    kind: str
    negatives: int
    score: float
    linguistic: float | None
    semantic: float | None


class Validation(NamedTuple):
    """Mean loss, share of records whose good summary is first, and shares by kind."""

    loss: float
    first_share: float
    kinds: tuple[KindShares, ...] = ()


def rank(kinds: tuple[str, ...], linguistic: Tensor, semantic: Tensor, loss: Loss) -> Ranked:
    """Put the parts of one record's scores together, with their loss."""
    value = ranking_loss(linguistic, semantic, kinds, loss)
    return Ranked(kinds, value, linguistic + semantic, linguistic, semantic)


def ranking_loss(linguistic: Tensor, semantic: Tensor, kinds: Sequence[str], loss: Loss) -> Tensor:
    """The loss of one record; ``[1 + negatives]`` scores as they stand in LS, the good one first.

    Paper: Σ over negatives of max(0, 1 − (LS_good − LS_bad)). Code: the same hinge on
    L for the deleted and the disordered, plus on S for the deleted and the one with an addition.
    """
    if loss == "paper":
        return hinges(linguistic + semantic)
    parts = ((linguistic, LINGUISTIC), (semantic, SEMANTIC))
    chosen = [
        scores[[0, *(i for i, kind in enumerate(kinds, 1) if kind in trains)]]
        for scores, trains in parts
    ]
    return stack([hinges(scores) for scores in chosen]).sum()


def hinges(scores: Tensor) -> Tensor:
    """Σ over the others of max(0, 1 − (first − other))."""
    return F.relu(1 - (scores[0] - scores[1:])).sum()


def summarise(results: Sequence[Ranked]) -> Validation:
    """Put the results of held-out records together; kinds in the order they are met in."""
    below: dict[str, list[tuple[bool | None, ...]]] = defaultdict(list)
    for result in results:
        parts = [
            None if scores is None else (scores[0] > scores[1:]).tolist()
            for scores in (result.scores, result.linguistic, result.semantic)
        ]
        for index, kind in enumerate(result.kinds):
            below[kind].append(tuple(None if part is None else part[index] for part in parts))
    first = [bool((result.scores[0] > result.scores[1:]).all()) for result in results]
    return Validation(
        float(np.mean([float(result.loss) for result in results])),
        float(np.mean(first)),
        tuple(_shares(kind, rows) for kind, rows in below.items()),
    )


def _shares(kind: str, rows: Sequence[tuple[bool | None, ...]]) -> KindShares:
    score, linguistic, semantic = (
        None if None in column else float(np.mean(column)) for column in zip(*rows, strict=True)
    )
    assert score is not None
    return KindShares(kind, len(rows), score, linguistic, semantic)
