"""Several verifiers: their votes on a claim, and a second one that is asked about unsure claims."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from claimscore.config import EncoderConfig
from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import ModelInfo, Verifiers
from claimscore.pipeline.passes.model_pass import PassInput, count_items
from claimscore.pipeline.passes.support import pass_of
from claimscore.tables import OPINIONS
from tests.support.pass_doubles import claims
from tests.unit.pipeline.passes.test_support import ONE, TWO, Model, of

COPY = "The pool is warm."
SOURCE = f"{COPY} {ONE} {TWO}"
NEED = PassRequirement("support", ("source.model.best", "summary"))


class Named(Model):
    """A verifier with a name, which has an opinion on each claim, whatever the premise."""

    def __init__(self, name: str, by_claim: dict[str, tuple[float, float]], **options: Any) -> None:
        super().__init__(of({}), **options)
        self.info = ModelInfo(name, "r1", "float32")
        self.by_claim = by_claim

    def classify(self, pairs: Any, *, on_batch: Any) -> Any:
        self.asked += pairs
        on_batch(len(pairs))
        import numpy as np

        both = np.array([self.by_claim[claim] for _, claim in pairs], dtype=np.float32)
        both = both.reshape(-1, 2)
        third = both[:, 1] if self.kind == "nli" else np.full(len(both), np.nan, np.float32)
        return np.stack([both[:, 0], 1 - both.sum(axis=1), third], axis=1)


def judged(
    encoders: EncoderConfig, model: Any, *texts: str, opinions: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, list[int]]:
    """The rows of the claims of a summary, and how many pairs were heard of."""
    heard: list[int] = []
    tables = {"claims": claims(r_a=texts).with_columns(side=pl.lit("summary"))}
    tables["opinions"] = OPINIONS.empty() if opinions is None else opinions
    records = pl.DataFrame({"id": ["r"], "sources": [[SOURCE]], "summary": ["."]})
    given = PassInput(model, NEED, records, tables.__getitem__, frozenset(), lambda n: heard.append)
    (rows,) = pass_of(encoders).compute(given).rows.values()
    return rows, heard


def opinion(place: int, p: float, c: float = 0.0, **other: Any) -> dict[str, Any]:
    """What a language model said of a claim."""
    row = {"id": "r", "side": "summary", "claim_position": place, "source_side": "source"}
    row |= {"source_index": 0, "read": "model.best", "verbatim": False, "truncated": False}
    row |= {
        "verdict": "supported" if p >= 0.5 else "unmentioned",
        "uncertainty": 1 - abs(2 * p - 1),
    }
    row |= {
        "probability": p,
        "contradiction": c,
        "verifier": "llm",
        "model": "gpt",
        "threshold": 0.5,
    }
    return row | {"request_key": f"k{place}", "prompt": "verify"} | other


def test_the_mean_of_the_votes_decides_and_the_surest_of_those_for_it_has_the_evidence() -> None:
    one = Named("one", {"a": (0.4, 0.1), "b": (0.9, 0.0), "c": (0.6, 0.0)}, threshold=0.6)
    two = Named("two", {"a": (0.9, 0.0), "b": (0.0, 0.0), "c": (0.6, 0.0)}, kind="binary")
    encoders = EncoderConfig(nli="one", verifier="nli,two")
    rows, heard = judged(encoders, Verifiers((one, two)), "a", "b", "c", COPY)
    shown = rows.select("verdict", "model", "verifier", pl.col("probability").round(2))
    assert shown.rows() == [
        ("supported", "two", "binary", pytest.approx(0.65)),  # the mean of thresholds is .55
        ("unmentioned", "two", "binary", pytest.approx(0.45)),
        ("supported", "one", "nli", pytest.approx(0.6)),  # equally sure: the first
        ("supported", "one", "nli", 1.0),
    ]
    assert rows["uncertainty"].to_list() == pytest.approx([0.7, 0.9, 0.8, 0.0])
    assert rows["contradiction"].to_list() == pytest.approx([0.1, 0.0, 0.0, 0.0])
    votes = rows["votes"].to_list()
    assert votes[3] is None, "a copy is no question"
    assert [vote | {"probability": round(vote["probability"], 2)} for vote in votes[1]] == [
        {"verifier": "one", "verdict": "supported", "probability": 0.9, "contradiction": 0.0},
        {"verifier": "two", "verdict": "unmentioned", "probability": 0.0, "contradiction": None},
    ]
    assert heard == [len(one.asked), len(one.asked) + len(two.asked)], "one count of both"


def test_a_second_verifier_is_asked_about_the_unsure_claims_of_the_first() -> None:
    first = {"a": (0.1, 0.8), "b": (0.3, 0.0), "c": (0.75, 0.0), "d": (0.9, 0.0)}
    one, two = Named("one", first), Named("two", dict.fromkeys("bc", (1.0, 0.0)))
    encoders = EncoderConfig(nli="one", verifier="nli,two", second_opinion="unsure")
    rows, _ = judged(encoders, Verifiers((one, two)), *"abcd", COPY)
    assert {claim for _, claim in two.asked} == {"b", "c"}
    assert rows["verdict"].to_list() == ["contradicted", *["supported"] * 4]
    assert rows["probability"].to_list() == pytest.approx([0.1, 0.65, 0.875, 0.9, 1.0])
    assert [votes is None for votes in rows["votes"].to_list()] == [True, False, False, True, True]


@pytest.mark.parametrize(("second_opinion", "asked"), [("all", "ab"), ("unsure", "a")])
def test_a_language_model_that_was_asked_first_has_its_vote(
    second_opinion: Any, asked: str
) -> None:
    """Its request stays with the row, whoever has the evidence."""
    said = OPINIONS.frame([opinion(0, 0.6), opinion(1, 0.9, evidence="It is.")])
    one = Named("one", {"a": (0.8, 0.0), "b": (0.7, 0.0)})
    encoders = EncoderConfig(nli="one", verifier="llm,nli", second_opinion=second_opinion)
    rows, _ = judged(encoders, one, "a", "b", opinions=said)
    assert "".join(dict.fromkeys(claim for _, claim in one.asked)) == asked
    assert rows["probability"].to_list() == pytest.approx([0.7, 0.8 if "b" in asked else 0.9])
    assert rows.select("model", "request_key", "prompt").rows() == [
        ("one", "k0", "verify"),
        ("gpt", "k1", "verify"),
    ]
    assert [vote["verifier"] for vote in rows["votes"][0].to_list()] == ["gpt", "one"]


def test_a_vote_without_evidence_leaves_the_row_to_one_with_it() -> None:
    """A surer language model whose quotation is not in the source; it keeps its vote."""
    said = OPINIONS.frame([opinion(0, 0.9), opinion(1, 0.9)])
    one = Named("one", {"a": (0.7, 0.0), "b": (0.3, 0.0)})
    encoders = EncoderConfig(nli="one", verifier="llm,nli")
    rows, _ = judged(encoders, one, "a", "b", opinions=said)
    assert rows.select("verdict", "verifier", "evidence", "request_key").rows() == [
        ("supported", "nli", COPY, "k0"),
        ("supported", "llm", None, "k1"),  # no other vote says so
    ]


def test_pairs_are_counted_without_models() -> None:
    """Those of the first verifier."""
    encoders = EncoderConfig(verifier="nli,two", second_opinion="unsure")
    tables = {"claims": claims(r_a=["a"]).with_columns(side=pl.lit("summary"))}
    records = pl.DataFrame({"id": ["r"], "sources": [[SOURCE]]})
    assert count_items(pass_of(encoders), NEED, records, tables.__getitem__) == 4
