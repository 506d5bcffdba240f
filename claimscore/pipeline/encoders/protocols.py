"""The interfaces of models for the passes, and the labels of NLI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from claimscore.errors import ConfigError, RejectedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Order of the columns of `PairClassifier.classify`.
NLI_LABELS = ("entailment", "neutral", "contradiction")

#: How models spell the three labels, in lower case.
LABEL_NAMES = {
    "entailment": "entailment",
    "entail": "entailment",
    "entails": "entailment",
    "entailed": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    "contradict": "contradiction",
    "contradicts": "contradiction",
    "contradictory": "contradiction",
}

#: Hears how many items of a call are done.
OnBatch = Callable[[int], None]


class ModelInfo(NamedTuple):
    """A model as tables record it: its name as asked for, exact version, and arithmetic."""

    model: str
    revision: str
    dtype: str


class Model(Protocol):
    """Any model of a run, whatever it does; its role decides the rest.

    It may have ``truncates(items)``, which gives ``[n]`` booleans without a forward pass: whether
    an item, a text or a pair as its own method takes it, is read in part only.
    """

    @property
    def info(self) -> ModelInfo: ...


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


class Verifier(PairClassifier, Protocol):
    """Judges claims: of each (text, claim) the probabilities that the text supports the claim,
    does not mention it, and contradicts it, in the place of the labels of NLI.

    ``kind`` is ``nli`` (three labels) or ``binary`` (supported or not): there the third column is
    NaN, for such a model claims no contradiction. ``threshold`` is the probability from which on a
    claim is supported, where the model comes with one; ``limit`` the most tokens of a pair, None
    where it does not say. It may have ``text_lengths(texts)``, the tokens of each without special
    ones; else they are estimated.
    """

    kind: str
    threshold: float | None

    @property
    def limit(self) -> int | None: ...


class Verifiers(NamedTuple):
    """Several verifiers, of which each is asked by itself."""

    members: tuple[Verifier, ...]

    @property
    def info(self) -> ModelInfo:
        """Those of all, each part joined."""
        return ModelInfo(*map("+".join, zip(*(one.info for one in self.members), strict=True)))


class TokenLayers(NamedTuple):
    """One text's own tokens (no special ones): unit-length ``layers`` ``[L, tokens, d]``,
    what each token reads in the text, and the number of the word that it belongs to."""

    layers: NDArray[np.float32]
    pieces: list[str]
    words: NDArray[np.int64]


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

    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """Return the embeddings of each text's tokens in the last ``n_layers`` layers."""
        ...


class Embedder(Protocol):
    """Gives each text one vector (sentence embedding)."""

    info: ModelInfo

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts.

        A blank text has no vector: `ValueError`. ``on_batch`` as in `PairClassifier`.
        """
        ...


class RejectedItemsError(RejectedError):
    """Some items cannot be scored by this model; `indices` are their places in the call.

    Why a class of its own: the caller writes failure rows for these items and calls again with
    the others. ``kind`` is ``out_of_memory`` or ``no_tokens``; of a model behind a server that of
    its refusal (``rejected``, ``too_large``), or ``server_error``.
    """

    def __init__(self, message: str, kind: str, indices: tuple[int, ...]) -> None:
        super().__init__(message, kind=kind)
        self.indices = indices


def label_columns(model: str, id2label: Mapping[Any, str]) -> tuple[int, int, int]:
    """Return the model's columns of entailment, neutral and contradiction.

    Raises `ConfigError` for a model whose labels are not exactly the three, such as LABEL_0:
    guessing an order would turn every score round.
    """
    named = {LABEL_NAMES.get(str(name).strip().lower()): int(i) for i, name in id2label.items()}
    if len(id2label) != 3 or set(named) != set(NLI_LABELS):
        shown = ", ".join(str(name) for name in list(id2label.values())[:6])
        raise ConfigError(
            f"{model} is not an NLI model: its labels are {shown}; it needs "
            "entailment, neutral and contradiction in its config's id2label"
        )
    return named["entailment"], named["neutral"], named["contradiction"]
