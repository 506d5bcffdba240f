"""Support of claims by texts: what is read of them, and what a row says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.passes import pair_nli
from tests.support.pass_doubles import claims, run_pass

#: Entailment and contradiction of a premise, whatever the claim.
Judge = Callable[[str], tuple[float, float]]


class Model:
    """Judges premises; `asked` are the pairs in order."""

    info = ModelInfo("fake", "r1", "float32")

    def __init__(
        self,
        judge: Judge,
        limit: int | None = None,
        threshold: float | None = None,
        kind: str = "nli",
    ):
        self.judge, self.limit, self.threshold, self.kind = judge, limit, threshold, kind
        self.asked: list[tuple[str, str]] = []

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch
    ) -> NDArray[np.float32]:
        self.asked += pairs
        on_batch(len(pairs))
        both = np.array([self.judge(premise) for premise, _ in pairs], dtype=np.float32)
        return np.stack([both[:, 0], 1 - both.sum(axis=1), both[:, 1]], axis=1)

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        return np.array([len(premise) > 200 for premise, _ in pairs])


def of(values: Mapping[str, tuple[float, float]]) -> Judge:
    return lambda premise: values.get(premise, (0.0, 0.0))


ONE, TWO = "It was warm.", "Rain fell later."


def support(
    model: Model, *sources: str, read: str = "both", table: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The claims of side `a` in these sources."""
    records = pl.DataFrame([{"id": "r", "sources": list(sources)}])
    table = claims(r_a=["x"]) if table is None else table
    return run_pass("support", model, records, over=(f"source.{read}", "a"), claims=table).rows[
        "support"
    ]


@pytest.mark.parametrize(
    ("read", "kind", "premises"),
    [
        ("sentence", "binary", [ONE, TWO]),
        ("window", "nli", [f"{ONE} {TWO}"]),
        ("both", "binary", [ONE, TWO, f"{ONE} {TWO}"]),
        ("model", "nli", [ONE, TWO, f"{ONE} {TWO}"]),
        ("model", "binary", [f"{ONE} {TWO}"]),
    ],
)
def test_what_is_read(read: str, kind: str, premises: list[str]) -> None:
    model = Model(of({}), kind=kind)
    rows = support(model, f"{ONE} {TWO}", read=read)
    assert model.asked == [(premise, "x") for premise in premises]
    (row,) = rows.rows(named=True)
    assert (row["read"], row["verifier"]) == (read, kind)
    assert (row["verdict"], row["truncated"]) == ("unmentioned", False)


def test_every_word_of_a_long_text_is_read() -> None:
    """Also of a sentence that is longer than a window: in parts. No window is longer."""
    long = " ".join(f"w{i}" for i in range(40)) + "."
    text = f"{ONE} {long} {TWO}"
    model = Model(of({}), limit=20)  # twelve words
    support(model, text, read="window")
    windows = [premise for premise, _ in model.asked]
    assert " ".join(windows) == text
    assert max(len(window.split()) for window in windows) <= 12


@pytest.mark.parametrize(
    ("values", "verdict", "probability", "evidence"),
    [
        pytest.param({ONE: (0.2, 0.9), TWO: (0.8, 0)}, "supported", 0.8, TWO, id="a sentence"),
        pytest.param(
            {ONE: (0.1, 0), TWO: (0.3, 0.2), f"{ONE} {TWO}": (0.7, 0)}, "supported", 0.7, TWO,
            id="a window: its best sentence",
        ),
        pytest.param({ONE: (0.3, 0.6)}, "contradicted", 0.3, ONE, id="contradicted"),
        pytest.param(
            {ONE: (0.1, 0.9), TWO: (0.3, 0.1)}, "unmentioned", 0.3, TWO,
            id="an unrelated sentence does not contradict",
        ),
    ],
)  # fmt: skip
def test_verdict_and_evidence(
    values: dict[str, tuple[float, float]], verdict: str, probability: float, evidence: str
) -> None:
    rows = support(Model(of(values)), f"{ONE} {TWO}")
    (row,) = rows.rows(named=True)
    assert (row["verdict"], row["probability"]) == (verdict, pytest.approx(probability))
    assert (row["evidence"], row["evidence_index"]) == (evidence, [ONE, TWO].index(evidence))


@pytest.mark.parametrize(
    ("claim", "verdict", "evidence"),
    [
        pytest.param("Snow fell.", "unmentioned", TWO, id="its words"),
        pytest.param("It was never warm.", "contradicted", ONE, id="what denies it"),
        pytest.param("Pigs fly.", "unmentioned", TWO, id="no word of it: the most support"),
    ],
)
def test_evidence_of_a_claim_without_support_shares_its_words(
    claim: str, verdict: str, evidence: str
) -> None:
    model = Model(of({ONE: (0.1, 0.9), TWO: (0.2, 0.1)}))
    rows = support(model, f"{ONE} {TWO}", table=claims(r_a=[claim]))
    assert rows.select("claim", "verdict", "evidence").rows() == [(claim, verdict, evidence)]


def test_the_threshold_of_the_model_decides() -> None:
    for threshold, verdict in ((None, "unmentioned"), (0.2, "supported")):
        rows = support(Model(of({ONE: (0.3, 0.0)}), threshold=threshold), ONE)
        assert rows["verdict"].to_list() == [verdict]


def test_each_source_has_a_row_for_each_claim_whatever_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blank sources have none, and count as a place."""
    given = [ONE, " ", f"{ONE} {TWO}"]
    table = claims(r_a=["x", "y"], r_b=["z"])
    whole = support(Model(of({TWO: (0.9, 0)})), *given, table=table)
    assert whole.select("source_index", "claim_position", "verdict").rows() == [
        (0, 0, "unmentioned"),
        (0, 1, "unmentioned"),
        (2, 0, "supported"),
        (2, 1, "supported"),
    ]
    monkeypatch.setattr(pair_nli, "PAIRS_AT_ONCE", 3)
    assert support(Model(of({TWO: (0.9, 0)})), *given, table=table).equals(whole)


def test_a_cut_premise_is_marked() -> None:
    rows: Any = support(Model(of({})), "w" * 300, ONE)
    assert rows["truncated"].to_list() == [True, False]
