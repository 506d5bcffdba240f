"""What an encoder offers to the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from claimscore.errors import RejectedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Order of the columns of `PairClassifier.classify`.
NLI_LABELS = ("entailment", "neutral", "contradiction")

OnBatch = Callable[[int], None]


class ModelInfo(NamedTuple):
    """What a table records of a model: its name as asked for, exact version, and arithmetic."""

    model: str
    revision: str
    dtype: str


class PairClassifier(Protocol):
    """Gives each (premise, hypothesis) its probabilities of entailment, neutral, contradiction."""

    info: ModelInfo

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities in the order of the pairs, columns as `NLI_LABELS`.

        ``on_batch`` hears the number of pairs done after each batch and may raise to stop.
        """
        ...


class TokenEncoder(Protocol):
    """Compares texts by the similarity of their token embeddings (BERTScore)."""

    info: ModelInfo
    layer: int
    baseline: tuple[float, float, float] | None

    def bertscore(
        self,
        candidates: Sequence[str],
        references: Sequence[str],
        *,
        on_batch: OnBatch | None = None,
    ) -> NDArray[np.float64]:
        """Return ``[n, 3]`` raw precision, recall and F1 in the order of the texts.

        An empty text has no score: `ValueError`. ``on_batch`` as in `PairClassifier`.
        """
        ...


class RejectedItemsError(RejectedError):
    """Some items cannot be scored by this model; `indices` are their places in the call.

    Why a class of its own: the caller writes failure rows for these items and calls again with
    the others. ``kind`` is ``out_of_memory`` or ``no_tokens``.
    """

    def __init__(self, message: str, kind: str, indices: tuple[int, ...]) -> None:
        super().__init__(message, kind=kind)
        self.indices = indices
