"""A model of every role that is a function of its texts, and the passes over one chunk with it."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import (
    ModelInfo,
    OnBatch,
    RejectedItemsError,
    TokenLayers,
)
from claimscore.pipeline.passes import PASSES, PassInput, PassResult
from claimscore.tables import CLAIMS, FACTS


class FakeModel:
    """Numbers from lengths; items with `huge` do not fit; `calls` are what it was asked."""

    info = ModelInfo("fake", "r1", "float32")
    layer, baseline, kind = 3, (0.1, 0.2, 0.3), "nli"

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def _ask(self, items: Sequence[Any], on_batch: OnBatch | None) -> None:
        self.calls.append(list(items))
        huge = tuple(i for i, item in enumerate(items) if "huge" in str(item))
        if huge:
            raise RejectedItemsError("a text does not fit", "out_of_memory", huge)
        if on_batch is not None:
            on_batch(len(items))

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Entailment is the length of the premise over 100."""
        self._ask(pairs, on_batch)
        entailment = np.array([len(premise) / 100 for premise, _ in pairs], dtype=np.float32)
        return np.stack([entailment, 1 - entailment, np.zeros_like(entailment)], axis=1)

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Length and number of vowels."""
        self._ask(texts, on_batch)
        rows = [[len(text), sum(text.count(vowel) for vowel in "aeiou")] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 2)

    def bertscore(
        self,
        candidates: Sequence[str],
        references: Sequence[str],
        *,
        on_batch: OnBatch | None = None,
    ) -> NDArray[np.float64]:
        """1 for equal texts, else 0.5."""
        self._ask(list(zip(candidates, references, strict=True)), on_batch)
        same = [1.0 if c == r else 0.5 for c, r in zip(candidates, references, strict=True)]
        return np.array([[x, x, x] for x in same]).reshape(-1, 3)

    def log_likelihoods(
        self, *columns: Sequence[str], on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """A token a character, each of probability 1/e."""
        self._ask(list(zip(*columns, strict=True)), on_batch)
        return np.array([(-len(text), len(text)) for text in columns[-1]], float).reshape(-1, 2)

    def help_counts(
        self, *columns: Sequence[str], on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """One masked token a text, and none that is predicted."""
        self._ask(list(zip(*columns, strict=True)), on_batch)
        return np.array([[1.0, 0, 0, 0]] * len(columns[0])).reshape(-1, 4)

    tune_counts = help_counts

    def scores(
        self, sources: Sequence[str], targets: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        pairs = list(zip(sources, targets, strict=True))
        self._ask(pairs, on_batch)
        rows = [(-len(t), -len(t) - 1, len(s) / 10, len(t), 0) for s, t in pairs]
        return np.array(rows, dtype=np.float64).reshape(-1, 5)

    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """A token a character, a word a white space; vowels, consonants and the rest are at right
        angles."""
        self._ask(texts, on_batch)
        layers_of = []
        for text in texts:
            pieces = [(word, letter) for word, part in enumerate(text.split()) for letter in part]
            kinds = [0 if x in "aeiou" else 1 if x.isalpha() else 2 for _, x in pieces]
            layers = np.stack([np.eye(3, dtype=np.float32)[kinds]] * n_layers)
            words = np.array([word for word, _ in pieces])
            layers_of.append(TokenLayers(layers, [piece for _, piece in pieces], words))
        return layers_of


class FunctionClassifier:
    """An NLI model that is a function of a pair; remembers what it was asked. It can be stored."""

    facts: ClassVar[dict[str, str]] = {"limit": "512"}

    def __init__(self, judge: Callable[[str, str], Sequence[float]], name: str = "fake") -> None:
        self.info = ModelInfo(name, "r1", "float32")
        self.asked: list[tuple[str, str]] = []
        self._judge = judge

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        self.asked += pairs
        if on_batch is not None:
            on_batch(len(pairs))
        judged = [self._judge(*pair) for pair in pairs]
        return np.array(judged, dtype=np.float32).reshape(-1, 3)

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        return np.zeros(len(pairs), dtype=bool)


def claims(**of_sides: Sequence[str]) -> pl.DataFrame:
    """`r1_a=[...]`: the claims of a record's side."""
    return CLAIMS.frame(
        {"id": name[:-2], "side": name[-1], "claim_index": 0, "sentence_index": i, "text": text}
        for name, texts in of_sides.items()
        for i, text in enumerate(texts)
    )


def facts(**of_sides: Sequence[str]) -> pl.DataFrame:
    """`r1_source=["car fast"]`: the facts of a record's side."""
    rows = []
    for name, of_side in of_sides.items():
        record, _, side = name.partition("_")
        for i, fact in enumerate(of_side):
            subject, description = fact.split()
            row = {"id": record, "side": side, "index": i}
            rows.append(row | {"subject": subject, "description": description})
    return FACTS.frame(rows)


def run_pass(
    kind: str,
    model: object,
    records: pl.DataFrame,
    *,
    broken: frozenset[str] = frozenset(),
    over: tuple[str, ...] = ("a", "b"),
    listen: Any = lambda _n: lambda _done: None,
    **tables: pl.DataFrame,
) -> PassResult:
    """The pass of that kind over one chunk."""
    need = PassRequirement(kind, over)
    return PASSES[kind].compute(PassInput(model, need, records, tables.__getitem__, broken, listen))


def run_nli(
    table: pl.DataFrame, ids: Sequence[str], model: Any = None, **options: Any
) -> tuple[PassResult, FakeModel]:
    """NLI of these records' claims."""
    model = model or FakeModel()
    return run_pass("nli", model, pl.DataFrame({"id": ids}), claims=table, **options), model
