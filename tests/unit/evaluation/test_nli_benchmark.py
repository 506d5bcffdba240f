"""`claimscore evaluate nli`: what is counted, what is fitted, and what is said of bad input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Evaluate = Callable[..., tuple[int, str, str]]
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


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """A call of the command: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["evaluate", "nli", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


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
    """Groups add up to their set, sets to the last row."""
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
    """Of ten: two entailments found, five others not called entailment."""
    found, why = two_way_accuracy(np.array(rows))
    assert found == value
    assert (why is None) if reason is None else (reason in str(why))


@pytest.mark.usefixtures("fake")
def test_a_temperature_fitted_on_a_file(tmp_path: Path) -> None:
    """Fitted on one file, told of the others; accuracy stays, the likelihood there falls."""
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
    """All right: null and the reason."""
    tuning = write_jsonl(tmp_path / "tuning.jsonl", [pair("sure", "entailment")])
    row = run(tuning, fit_temperature=str(tuning)).temperature.row(0, named=True)
    assert (row["temperature"], row["nll_after"]) == (None, None)
    assert "no optimum" in row["reason"]


@pytest.mark.usefixtures("fake")
def test_halves_part_the_rows_of_a_set(tmp_path: Path) -> None:
    """Rows of one value are in one half; both halves together are the set."""
    rows = [
        pair("sure", "entailment" if n % 3 else "neutral", document=f"d{n // 4}") for n in range(80)
    ]
    data = write_jsonl(tmp_path / "many.jsonl", rows)
    seeds = [
        run(data, split_by="document", split_seed=seed).temperature.row(0, named=True)
        for seed in (0, 1)
    ]
    assert [row["n_fit"] + row["n"] for row in seeds] == [80, 80]
    assert all(row["n_fit"] % 4 == 0 and row["n_fit"] for row in seeds)
    assert seeds[0] != seeds[1]


@pytest.mark.usefixtures("fake")
def test_a_half_may_be_empty(tmp_path: Path) -> None:
    """One document cannot be halved: null and the reason."""
    data = write_jsonl(tmp_path / "one.jsonl", [{**row, "document": "d"} for row in FIVE])
    row = run(data, split_by="document").temperature.row(0, named=True)
    assert (row["temperature"], row["reason"]) == (None, "one half has no rows")


def test_one_way_of_fitting() -> None:
    """A file and halves at once are refused."""
    with pytest.raises(ConfigError, match="choose one"):
        NLIConfig(("x.jsonl",), fit_temperature="y.jsonl", split_by="premise")


@pytest.mark.usefixtures("fake")
def test_labels_and_columns_as_others_have_them(tmp_path: Path) -> None:
    """Spellings of models, SNLI's columns, CSV; names of equal stems are told apart."""
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
    """File, line, what is wrong and what to do, before any model is loaded."""
    path = write_jsonl(tmp_path / "bad.jsonl", [pair("sure", "entailment"), row])
    with pytest.raises(InputError) as raised:
        run(path, encoders=EncoderConfig(nli="/no/such/model"))
    assert f"{path}, " in str(raised.value)
    assert message in str(raised.value)


def test_bad_groups_are_named(tmp_path: Path) -> None:
    """A column that is not there, and one that holds lists."""
    path = write_jsonl(tmp_path / "bad.jsonl", [pair("sure", "entailment", tags=["a"])])
    with pytest.raises(InputError, match="line 1: no column kind; there are: premise"):
        run(path, group="kind")
    with pytest.raises(InputError, match="line 1: column tags must hold a text or a number"):
        run(path, group="tags")


def test_a_file_without_pairs(tmp_path: Path) -> None:
    """Nothing cannot be measured."""
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="no labelled pairs"):
        run(path)


@pytest.mark.usefixtures("fake")
def test_a_pair_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """Set and line of the pair; no number without it."""
    path = write_jsonl(tmp_path / "five.jsonl", [*FIVE, {**FIVE[0], "hypothesis": "huge"}])
    with pytest.raises(InputError, match=r"five, row or line 6: a pair does not fit \(1 pairs"):
        run(path)


@pytest.mark.usefixtures("fake")
def test_what_is_printed(tmp_path: Path, evaluate: Evaluate) -> None:
    """Accuracy with its interval, confusion by label, temperature before and after."""
    data = write_jsonl(tmp_path / "five.jsonl", FIVE)
    code, text, _ = evaluate(data, "--by", "kind", "--fit-temperature", data)
    assert code == 0
    assert "NLI: fake r1 (float32)" in text
    assert "60.0" in text
    assert "five / b" in text
    assert "five: contradiction" in text
    assert "3 pairs are longer than the model reads" in text
    assert "Temperature fitted on five" in text
    assert "fitted on rows that are measured here too" in text


def test_bad_input_is_one_line(tmp_path: Path, evaluate: Evaluate) -> None:
    """Exit status 2 and no traceback."""
    data = write_jsonl(tmp_path / "bad.jsonl", [pair("x", "yes")])
    code, text, error = evaluate(data)
    assert (code, text) == (2, "")
    assert "unknown label 'yes'" in error
    assert len(error.strip().splitlines()) == 1
