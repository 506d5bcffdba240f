"""`claimscore evaluate nli`: what is counted, what is fitted, and what is said of bad input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from claimscore.cli import main
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation import nli_benchmark
from claimscore.evaluation.nli_benchmark import NLIConfig, NLIResult, evaluate_nli, two_way_accuracy
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch, RejectedItemsError
from tests.support.rated_tables import write_jsonl

Row = dict[str, Any]

#: What the fake model says of a premise: entailment, neutral, contradiction.
SAYS = {
    "sure": (0.9, 0.05, 0.05),
    "likely": (0.6, 0.3, 0.1),
    "open": (0.2, 0.7, 0.1),
    "against": (0.1, 0.1, 0.8),
}


class Fake:
    """A classifier that looks its answers up."""

    info = ModelInfo("fake", "r1", "float32")

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        if any(hypothesis == "huge" for _, hypothesis in pairs):
            places = tuple(i for i, pair in enumerate(pairs) if pair[1] == "huge")
            raise RejectedItemsError("a pair does not fit", "out_of_memory", places)
        if on_batch is not None:
            on_batch(len(pairs))
        return np.array([SAYS[premise] for premise, _ in pairs], dtype=np.float32)

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        return np.arange(len(pairs)) < 3


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nli_benchmark, "load_pair_classifier", lambda _: Fake())


def pair(premise: str, label: object, **more: object) -> Row:
    return {"premise": premise, "hypothesis": "h", "label": label, **more}


FIVE = [
    pair("sure", "entailment", kind="a"),
    pair("likely", "neutral", kind="a"),
    pair("open", "neutral", kind="b"),
    pair("against", "contradiction", kind="b"),
    pair("sure", "contradiction", kind="b"),
]


def run(*tables: Path, **options: Any) -> NLIResult:
    return evaluate_nli(NLIConfig(tuple(map(str, tables)), **options))


@pytest.mark.usefixtures("fake")
def test_a_set_by_hand(tmp_path: Path) -> None:
    """Three of five right; F1 of 2/4, 2/3 and 2/3; every pair in the confusion."""
    result = run(write_jsonl(tmp_path / "five.jsonl", FIVE))
    row = result.sets.row(0, named=True)
    assert (row["set"], row["group"], row["n"], row["accuracy"]) == ("five", None, 5, 0.6)
    assert row["macro_f1"] == pytest.approx((2 / 4 + 2 / 3 + 2 / 3) / 3)
    assert (row["low"], row["high"]) == pytest.approx((0.2307, 0.8824), abs=5e-5)  # Wilson 1927
    assert row["two_way_accuracy"] is None
    assert row["two_way_reason"] == "its labels are entailment, neutral, contradiction"
    assert row["nll"] == pytest.approx(-np.log([0.9, 0.3, 0.7, 0.8, 0.05]).mean(), abs=1e-6)
    assert row["ece"] == pytest.approx((2 * 0.4 + 0.6 + 0.3 + 0.2) / 5, abs=1e-6)
    assert result.confusion.rows() == [
        ("five", None, "entailment", 1, 0, 0),
        ("five", None, "neutral", 1, 1, 0),
        ("five", None, "contradiction", 1, 0, 1),
    ]
    assert result.temperature.height == 0
    assert result.truncated == 3


@pytest.mark.usefixtures("fake")
def test_groups_and_all_sets_together(tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "five.jsonl", FIVE)
    second = write_jsonl(tmp_path / "two.jsonl", FIVE[:2])
    result = run(first, second, group="kind")
    shown = result.sets.select("set", "group", "n", "accuracy").rows()
    assert shown == [
        ("five", None, 5, 0.6),
        ("five", "a", 2, 0.5),
        ("five", "b", 3, pytest.approx(2 / 3)),
        ("two", None, 2, 0.5),
        ("two", "a", 2, 0.5),
        ("all", None, 7, pytest.approx(4 / 7)),
    ]


@pytest.mark.parametrize(
    ("rows", "value", "reason"),
    [
        pytest.param([[2, 1, 1], [1, 2, 3], [0, 0, 0]], 0.7, None, id="entailment and neutral"),
        pytest.param([[2, 0, 2], [0, 0, 0], [1, 4, 1]], 0.7, None, id="and contradiction"),
        pytest.param([[0, 0, 0], [1, 2, 3], [1, 1, 1]], None, "neutral, contra", id="none"),
        pytest.param([[1, 0, 0], [0, 0, 0], [0, 0, 0]], None, "entailment", id="one label"),
    ],
)
def test_two_way_accuracy(rows: list[list[int]], value: float | None, reason: str | None) -> None:
    found, why = two_way_accuracy(np.array(rows))
    assert found == value
    assert (why is None) if reason is None else (reason in str(why))


@pytest.mark.usefixtures("fake")
def test_a_temperature_fitted_on_a_file(tmp_path: Path) -> None:
    rows = [pair("sure", "entailment")] * 2 + [pair("sure", "neutral"), pair("sure", "neutral")]
    tuning = write_jsonl(tmp_path / "tuning.jsonl", rows)
    data = write_jsonl(tmp_path / "five.jsonl", FIVE)
    result = run(data, fit_temperature=str(tuning))
    row = result.temperature.row(0, named=True)
    assert (row["set"], row["fitted_on"], row["n_fit"], row["n"]) == ("five", "tuning", 4, 5)
    # a = 18 ** (1 / T): half of the rows have p = a / (a + 2), half 1 / (a + 2); best is a = 2
    assert row["temperature"] == pytest.approx(np.log(18) / np.log(2), rel=1e-3)
    assert row["nll_after"] != pytest.approx(row["nll_before"], abs=1e-3)
    assert result.sets.height == 1
    assert result.predictions.height == 5


@pytest.mark.usefixtures("fake")
def test_a_temperature_without_an_optimum_is_none(tmp_path: Path) -> None:
    tuning = write_jsonl(tmp_path / "tuning.jsonl", [pair("sure", "entailment")])
    row = run(tuning, fit_temperature=str(tuning)).temperature.row(0, named=True)
    assert (row["temperature"], row["nll_after"]) == (None, None)
    assert "no optimum" in row["reason"]
    row = run(tuning, split_by="premise").temperature.row(0, named=True)
    assert (row["temperature"], row["reason"]) == (None, "one half has no rows")
    with pytest.raises(ConfigError, match="choose one"):
        run(tuning, fit_temperature="y.jsonl", split_by="premise")


@pytest.mark.usefixtures("fake")
def test_halves_part_the_rows_of_a_set(tmp_path: Path) -> None:
    rows = [
        pair("sure", "entailment" if n % 3 else "neutral", document=f"d{n // 4}") for n in range(80)
    ]
    data = write_jsonl(tmp_path / "many.jsonl", rows)
    results = [run(data, split_by="document", split_seed=seed) for seed in (0, 1)]
    seeds = [result.temperature.row(0, named=True) for result in results]
    assert "halves by document (seed 1): fitted on one" in results[1].markdown()
    assert results[0].to_json()["temperature"] == [seeds[0]]
    assert list(results[0].files()) == ["nli", "confusion", "temperature", "predictions"]
    assert [row["n_fit"] + row["n"] for row in seeds] == [80, 80]
    assert all(row["n_fit"] % 4 == 0 and row["n_fit"] for row in seeds)
    assert seeds[0] != seeds[1]


@pytest.mark.usefixtures("fake")
def test_labels_and_columns_as_others_have_them(tmp_path: Path) -> None:
    path = tmp_path / "snli.csv"
    path.write_text("gold,s1,s2\nEntailed,sure,h\ncontradict,against,h\n-,sure,h\n")
    other = write_jsonl(tmp_path / "snli.jsonl", [{"s1": "open", "s2": "h", "gold": "Neutral"}])
    columns = {"premise": "s1", "hypothesis": "s2", "label": "gold"}
    with pytest.raises(InputError, match=r"snli.csv, line 4: column gold has no label; --drop-mis"):
        run(path, **columns)
    result = run(path, other, drop_missing=True, **columns)
    assert result.sets["accuracy"].to_list() == [1.0, 1.0, 1.0]
    assert result.sets["set"].to_list() == [str(path), str(other), "all"]
    assert result.left_out == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param(pair("x", "maybe"), "line 2: column label holds the unknown label 'maybe'"),
        pytest.param(pair("x", 1), "line 2: column label holds a number, not a name"),
        pytest.param(pair("x", None), "line 2: column label has no label"),
        pytest.param(pair(" ", "neutral"), "line 2: column premise is empty"),
        pytest.param({**pair("x", "neutral"), "premise": ["a"]}, "premise must be text, not a li"),
        pytest.param({"premise": "x", "label": "neutral"}, "line 2: no column hypothesis; there a"),
    ],
    ids=("unknown", "number", "null", "blank", "list", "column"),
)
def test_bad_rows_are_named(tmp_path: Path, row: Row, message: str) -> None:
    path = write_jsonl(tmp_path / "bad.jsonl", [pair("sure", "entailment"), row])
    with pytest.raises(InputError) as raised:
        run(path, encoders=EncoderConfig(nli="/no/such/model"))
    assert f"{path}, " in str(raised.value)
    assert message in str(raised.value)


def test_bad_groups_are_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "bad.jsonl", [pair("sure", "entailment", tags=["a"])])
    with pytest.raises(InputError, match="line 1: no column kind; there are: premise"):
        run(path, group="kind")
    with pytest.raises(InputError, match="line 1: column tags must hold a text or a number"):
        run(path, group="tags")
    path.write_text("")
    with pytest.raises(InputError, match="no labelled pairs"):
        run(path)


@pytest.mark.usefixtures("fake")
def test_a_pair_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "five.jsonl", [*FIVE, {**FIVE[0], "hypothesis": "huge"}])
    with pytest.raises(InputError, match=r"five, row or line 6: a pair does not fit \(1 pairs"):
        run(path)


@pytest.mark.usefixtures("fake")
def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_jsonl(tmp_path / "five.jsonl", FIVE)
    options = ("--by", "kind", "--fit-temperature", str(data))
    assert main(["evaluate", "nli", str(data), *options]) == 0
    text = capsys.readouterr().out
    for words in (
        *("NLI: fake r1 (float32)", "60.0", "five / b", "five: contradiction"),
        *("3 pairs are longer than the model reads", "Temperature fitted on five"),
        "fitted on rows that are measured here too",
    ):
        assert words in text
