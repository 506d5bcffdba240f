"""Support of claims by texts: what is read of them, and what a row says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.passes import pair_nli
from claimscore.pipeline.passes.model_pass import count_items
from claimscore.pipeline.passes.support import SUPPORT_PASS
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
        self.text_lengths: Callable[[Sequence[str]], list[int]] | None = None
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
    model: Model, *sources: str, read: str = "both.all", table: pl.DataFrame | None = None
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
    assert (row["read"], row["verifier"]) == (f"{read}.best", kind)
    assert (row["verdict"], row["truncated"]) == ("unmentioned", False)


@pytest.mark.parametrize("counts", [True, False])
def test_every_word_of_a_long_text_is_read(counts: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Also of a sentence that is longer than a window: in parts, and said once. No window is
    longer, whether the verifier counts its tokens or not, and a long claim has room beside it."""
    long = " ".join(f"w{i}" for i in range(70)) + "."
    text = f"{ONE} {long} {TWO} {long}"
    model = Model(of({}), limit=40)
    if counts:  # two tokens a word
        model.text_lengths = lambda texts: [2 * len(text.split()) for text in texts]
    for claim, most in (("x", 40 - 8 - 10), ("x " * 8, 40 - 8 - 16 if counts else 40 - 8 - 11)):
        model.asked.clear()
        support(model, text, read="window.all", table=claims(r_a=[claim]))
        windows = [premise for premise, _ in model.asked]
        assert " ".join(windows) == text
        sizes = [(2 if counts else 4 / 3) * len(window.split()) for window in windows]
        assert most / 3 < max(sizes) <= most
    (said,) = caplog.messages
    assert "record r: sentence 2 of text 1 has" in said
    assert "such sentences are read in parts" in said


def test_a_text_without_spaces_is_read_whole() -> None:
    text = "雨" * 300 + "。"
    model = Model(of({}), limit=40)
    support(model, text, read="window.all")
    assert "".join(premise for premise, _ in model.asked) == text
    assert max(len(premise) for premise, _ in model.asked) <= 22


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
def test_evidence_without_support_shares_its_words(claim: str, verdict: str, evidence: str) -> None:
    model = Model(of({ONE: (0.1, 0.9), TWO: (0.2, 0.1)}))
    rows = support(model, f"{ONE} {TWO}", table=claims(r_a=[claim]))
    assert rows.select("claim", "verdict", "evidence").rows() == [(claim, verdict, evidence)]


#: Six sentences about Ann, one of which names her dog.
LONG = "Ann is tall. Ann sings. Ann has a dog, Rex. Ann is old. Ann swims. Rex is old. Ann ran."


@pytest.mark.parametrize(
    ("read", "premises"),
    [
        (
            "sentence",
            ["Ann is tall.", "Ann sings.", "Ann has a dog, Rex.", "Ann is old.", "Rex is old."],
        ),
        ("window", [LONG]),
    ],
)
def test_each_claim_is_judged_by_what_shares_its_words(read: str, premises: list[str]) -> None:
    """The best sentences by words, of equal ones the first, in the order of the text."""
    model = Model(of({}))
    support(model, LONG, read=f"{read}.best", table=claims(r_a=["Ann's dog Rex is old"]))
    assert [premise for premise, _ in model.asked] == premises
    joined = "Ann is tall. Ann sings. Ann has a dog, Rex. Ann is old. Rex is old."
    if read == "sentence":
        model.asked.clear()
        support(model, LONG, read="both.best", table=claims(r_a=["Ann's dog Rex is old"]))
        assert [premise for premise, _ in model.asked] == [*premises, joined]


def test_the_best_sentences_are_joined_as_far_as_they_fit() -> None:
    """A window has no more tokens than the verifier reads beside the claim."""
    model = Model(of({}), limit=48)
    model.text_lengths = lambda texts: [10 for _ in texts]
    table = claims(r_a=["Ann's dog Rex is old", "Ann swims and swims"])
    rows = support(model, LONG, read="window.best", table=table)
    assert model.asked == [
        ("Ann has a dog, Rex. Rex is old.", "Ann's dog Rex is old"),
        ("Ann is tall. Ann swims.", "Ann swims and swims"),
    ]
    assert rows["evidence"].to_list() == ["Ann has a dog, Rex.", "Ann swims."]
    assert rows["evidence_index"].to_list() == [2, 4]
    assert rows["read"].unique().to_list() == ["window.best"]


def test_a_verifier_reads_normal_forms_and_the_table_keeps_the_texts() -> None:
    text = "It cost \u00a3 134,565 , \u201c a lot \u201d ."
    model = Model(of({'It cost \u00a3134,565, "a lot".': (0.9, 0.0)}))
    rows = support(model, text, table=claims(r_a=["It cost a lot , -LRB- really -RRB- ."]))
    assert model.asked == [('It cost \u00a3134,565, "a lot".', "It cost a lot, (really).")]
    assert rows.select("claim", "evidence", "verdict", "verbatim").row(0) == (
        *("It cost a lot , -LRB- really -RRB- .", text, "supported", False),
    )


@pytest.mark.parametrize(
    ("text", "claim", "is_copy"),
    [
        ("It cost \u00a3 134,565 .", "It cost \u00a3134,565", True),
        ("\u201cHe didn\u2019t go\u201d", "He did n't go.", True),
        ("They beat the US.", "they beat the us", True),
        ("They beat the US.", "They Beat the US.", False),
        ("They beat the US!", "They beat the UK.", False),
        ("...", "...", False),
    ],
)
def test_a_copy_is_supported_without_a_question(text: str, claim: str, is_copy: bool) -> None:
    for kind, contradiction in (("nli", 0.0), ("binary", None)):
        model = Model(of({}), kind=kind)
        rows = support(model, f"{ONE} {text}" if is_copy else text, table=claims(r_a=[claim]))
        assert rows["verbatim"].to_list() == [is_copy]
        assert bool(model.asked) != is_copy
        if is_copy:
            columns = ("verdict", "probability", "contradiction", "truncated", "evidence_index")
            assert rows.select(columns).row(0) == ("supported", 1.0, contradiction, False, 1)
            assert rows["evidence"].to_list() == [text]


def test_a_sentence_in_parts_keeps_its_place() -> None:
    long = " ".join(f"w{i}" for i in range(70)) + "."
    rows = support(Model(of({}), limit=40), f"{long} {TWO}", table=claims(r_a=["Rain fell"]))
    assert rows.select("evidence", "evidence_index").row(0) == (TWO, 1)


def test_a_verdict_is_the_less_sure_the_nearer_its_probability_is_to_a_half() -> None:
    for p, uncertainty in ((0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.9, 0.2)):
        rows = support(Model(of({ONE: (p, 0.0)})), ONE)
        assert rows["uncertainty"].to_list() == [pytest.approx(uncertainty)]
        assert rows["votes"].to_list() == [None]
    assert support(Model(of({})), ONE, table=claims(r_a=[ONE]))["uncertainty"].to_list() == [0.0]


def test_the_threshold_of_the_model_decides() -> None:
    for threshold, verdict in ((None, "unmentioned"), (0.2, "supported")):
        rows = support(Model(of({ONE: (0.3, 0.0)}), threshold=threshold), ONE)
        assert rows["verdict"].to_list() == [verdict]


def test_each_source_has_a_row_for_each_claim(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_pairs_of_a_model_are_counted_without_it() -> None:
    """Three sentences and one window."""
    records = pl.DataFrame([{"id": "r", "sources": [f"{ONE} {TWO} " + "It was very cold " * 4]}])
    table = claims(r_a=["x"])
    need = PassRequirement("support", ("source.model", "a"))
    assert count_items(SUPPORT_PASS, need, records, lambda _: table) == 3 + 1
