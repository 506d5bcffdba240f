"""The model passes over a chunk, with a classifier that is a function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.passes import PASSES, PassInput, PassResult
from claimscore.tables import CLAIMS, NLI, TOKEN_SCORES


class FakeClassifier:
    """Entailment is the length of the premise over 100; texts with `huge` do not fit."""

    info = ModelInfo("fake", "r1", "float32")

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        self.calls.append(list(pairs))
        huge = tuple(i for i, pair in enumerate(pairs) if "huge" in " ".join(pair))
        if huge:
            raise RejectedItemsError("a pair does not fit", "out_of_memory", huge)
        if on_batch is not None:
            on_batch(len(pairs))
        entailment = np.array([len(premise) / 100 for premise, _ in pairs], dtype=np.float32)
        return np.stack([entailment, 1 - entailment, np.zeros_like(entailment)], axis=1)


class FakeEncoder:
    """BERTScore 1 for equal texts, else 0.5; a lone zero-width space has no tokens."""

    info = ModelInfo("fake", "r1", "float32")
    layer = 3
    baseline = (0.1, 0.2, 0.3)

    def bertscore(
        self, candidates: Sequence[str], references: Sequence[str], *, on_batch: object = None
    ) -> NDArray[np.float64]:
        empty = tuple(i for i, text in enumerate(candidates) if text == "\u200b")
        if empty:
            raise RejectedItemsError("no tokens", "no_tokens", empty)
        same = [1.0 if c == r else 0.5 for c, r in zip(candidates, references, strict=True)]
        return np.array([[x, x, x] for x in same], dtype=np.float64).reshape(-1, 3)


def claims(**texts: Sequence[str]) -> pl.DataFrame:
    """`r1_a=[...]`: the claims of a record's side."""
    return CLAIMS.frame(
        [
            {"id": name[:-2], "side": name[-1], "claim_index": 0, "sentence_index": i, "text": text}
            for name, side_texts in texts.items()
            for i, text in enumerate(side_texts)
        ]
    )


def ignore(_pairs: int) -> OnBatch:
    """A listener that does not stop."""
    return lambda _done: None


def run_nli(
    table: pl.DataFrame, ids: Sequence[str], broken: frozenset[str] = frozenset()
) -> tuple[pl.DataFrame, pl.DataFrame, FakeClassifier]:
    classifier = FakeClassifier()
    records = pl.DataFrame({"id": ids})
    result = run_pass("nli", classifier, records, broken=broken, claims=table)
    return result.rows["nli"], result.failures, classifier


def run_pass(
    kind: str,
    model: object,
    records: pl.DataFrame,
    *,
    broken: frozenset[str] = frozenset(),
    over: tuple[str, ...] = ("a", "b"),
    **tables: pl.DataFrame,
) -> PassResult:
    """The pass of that kind over one chunk."""
    given = PassInput(
        model, PassRequirement(kind, over), records, tables.__getitem__, broken, ignore
    )
    return PASSES[kind].compute(given)


def test_every_pair_has_a_row_in_both_directions() -> None:
    """Indices are positions among the side's claims; probabilities are the model's."""
    rows, failures, _ = run_nli(claims(r1_a=["x", "xx"], r1_b=["yyy"]), ["r1"])
    assert failures.is_empty()
    assert rows.schema == pl.Schema(NLI.schema)
    found = rows.select("direction", "premise_index", "hypothesis_index", "entailment").rows()
    assert [(d, p, h, round(e, 2)) for d, p, h, e in found] == [
        ("a_to_b", 0, 0, 0.01),
        ("a_to_b", 1, 0, 0.02),
        ("b_to_a", 0, 0, 0.03),
        ("b_to_a", 0, 1, 0.03),
    ]


def test_a_side_without_claims_has_no_rows() -> None:
    """There is nothing to compare; the metric says so."""
    rows, failures, _ = run_nli(claims(r1_a=["x"]), ["r1"])
    assert rows.is_empty()
    assert failures.is_empty()


def test_records_whose_claims_are_broken_cost_no_model_time() -> None:
    """Their metrics are null whatever the model says."""
    table = claims(r1_a=["x"], r1_b=["y"], r2_a=["x"], r2_b=["y"])
    rows, _, classifier = run_nli(table, ["r1", "r2"], broken=frozenset({"r1"}))
    assert rows["id"].unique().to_list() == ["r2"]
    assert [len(call) for call in classifier.calls] == [2]


def test_a_pair_that_does_not_fit_costs_its_record_alone() -> None:
    """A failure row with the reason; the other records have their rows."""
    table = claims(r1_a=["huge"], r1_b=["y"], r2_a=["x"], r2_b=["y"])
    rows, failures, _ = run_nli(table, ["r1", "r2"])
    assert rows["id"].unique().to_list() == ["r2"]
    assert failures.select("id", "stage", "kind").rows() == [("r1", "nli", "out_of_memory")]


def test_token_scores_leave_out_empty_texts() -> None:
    """No tokens, no score: the metric gives null with the reason."""
    records = pl.DataFrame(
        {"id": ["r1", "r2", "r3"], "summary_a": ["x", " ", "\u200b"], "summary_b": ["x", "y", "y"]}
    )
    result = run_pass("token_scores", FakeEncoder(), records)
    rows = result.rows["token_scores"]
    assert rows.schema == pl.Schema(TOKEN_SCORES.schema)
    assert rows.select("id", "f1", "baseline_f1", "layer").rows() == [("r1", 1.0, 0.3, 3)]
    assert result.failures.select("id", "stage", "kind").rows() == [
        ("r3", "token_scores", "no_tokens")
    ]
