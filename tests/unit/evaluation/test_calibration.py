"""`claimscore calibrate`: what labels make of a verifier, and when they make nothing of it."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import special

from claimscore.calibration import Calibration
from claimscore.evaluation.calibration import Labelled, cross_fitted, fit
from claimscore.runs import RunDirectory
from tests.support.command_line import Command
from tests.support.labelled_runs import Verdict, read_sheet, write_judged_run


def sample(n: int, temperature: float, shift: float, seed: int = 0) -> Labelled:
    """Labels that follow probabilities whose logits are `temperature` times too large."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0.5, 1.5, n)
    label = generator.random(n) < special.expit(logits)
    given = special.expit((logits - shift) * temperature)
    return Labelled(given, given >= 0.5, label, np.ones(n), np.arange(n) // 2)


def test_a_fit_finds_what_labels_say() -> None:
    labelled = sample(20_000, temperature=2.0, shift=1.0)
    (temperature, shift), threshold = fit(labelled)
    assert temperature == pytest.approx(2.0, rel=0.05)
    assert shift == pytest.approx(1.0, abs=0.05)
    assert threshold == pytest.approx(labelled.label.mean(), abs=0.01)


def test_few_labels_move_little() -> None:
    """The priors hold: also of one kind, and of certain probabilities."""
    few = Labelled(
        np.array([0.9, 0.8]), np.ones(2, bool), np.zeros(2, bool), np.ones(2), np.arange(2)
    )
    fitted, _ = fit(few)
    assert -3 < fitted.shift < 0
    assert 1 < fitted.temperature < 2
    sure = few._replace(probability=np.array([0.0, 1.0]), label=np.array([True, False]))
    assert np.isfinite(fit(sure)[0]).all()


def test_a_weight_counts_as_labels() -> None:
    """A label of weight 3 beside one of weight 1 is as the label thrice, but for its worth."""
    labelled = sample(200, 2.0, 1.0)
    weighted = fit(labelled._replace(weight=np.full(200, 7.0)))
    assert weighted[0] == pytest.approx(fit(labelled)[0], rel=1e-4)
    heavy = np.where(labelled.label, 1.0, 4.0)
    assert fit(labelled._replace(weight=heavy))[0].shift < fit(labelled)[0].shift - 0.5


def test_gains_are_of_records_that_were_not_seen() -> None:
    off = cross_fitted(sample(400, temperature=3.0, shift=1.0), samples=200, seed=0)
    loss, brier, accuracy = off.iter_rows(named=True)
    assert loss["gain"] == pytest.approx(loss["before"] - loss["after"])
    assert loss["gain_low"] > 0.1
    assert brier["gain"] > 0
    assert accuracy["gain"] == pytest.approx(accuracy["after"] - accuracy["before"])
    honest = cross_fitted(sample(400, 1.0, 0.0), samples=200, seed=0)
    assert abs(honest["gain"][0]) < 0.02


def claims_of(number: int, sure: float, unsure: float | None = None) -> list[Verdict]:
    """Two claims that the verifier is sure of, and two of the other probability."""
    other = 1 - sure if unsure is None else unsure
    return [
        (f"Claim {place} of {number} is there.", "supported" if p > 0.5 else "unmentioned", p)
        for place, p in enumerate((sure, sure, other, other))
    ]


ADDITIVE: dict[str, Any] = {
    "support": {"verifier": "nli", "calibration": "none"},
    "nli": {"name": "embedded", "revision": "r1", "dtype": "float32", "threshold": 0.45},
    "texts": {"units": "sentences"},
}


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    sure = getattr(request, "param", (0.999,))
    path = write_judged_run(tmp_path / "run", {f"r{n}": claims_of(n, *sure) for n in range(20)})
    with RunDirectory(path) as directory:
        directory.check_settings({**directory.settings, "additive": ADDITIVE})
    return path


def label_all(cli: Command, run: Path, label: Callable[[int, int], str], n: int = 80) -> Path:
    """A sheet of `n` claims, labelled by the numbers of their records and their places."""
    cli("label", run, "--n", n)
    rows = read_sheet(run / "labels.csv")
    for row in rows:
        row["label"] = label(int(row["id"][1:]), int(row["claim_position"]))
    with (run / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return run / "labels.csv"


def test_an_overconfident_verifier_is_calibrated(cli: Command, run: Path, tmp_path: Path) -> None:
    """People find what it is sure of supported in three of four cases, and the rest in one."""
    labels = label_all(cli, run, lambda n, place: "su"[(n % 4 == 0) != (place > 1)])
    out = tmp_path / "judge.toml"
    made = cli("calibrate", run, labels, "--out", out)
    assert made.status == 0
    assert f"written: {out}" in made.out
    assert "80 labels, cross-fitted" in made.out
    calibration = Calibration.read(out)
    assert (calibration.n_labels, calibration.n_records) == (80, 20)
    assert calibration.map([0.999, 0.001]) == pytest.approx([0.75, 0.25], abs=0.04)
    assert calibration.threshold == pytest.approx(0.5, abs=0.02)
    assert calibration.judge["revision"] == "r1"
    assert calibration.lengths == [6.0] * 50
    assert len(calibration.policy) < 80
    again = cli("calibrate", run, labels, "--out", out, "--json").json()
    assert again["helps"] is True
    assert [row["measure"] for row in again["gains"]] == [
        *("log loss", "Brier score", "balanced accuracy")
    ]
    assert Calibration.read(out) == calibration


@pytest.mark.parametrize(
    ("run", "stays"), [((0.999,), True), ((0.4, 0.1), False)], indirect=["run"]
)
def test_a_threshold_moves_only_where_that_helps(
    cli: Command, run: Path, tmp_path: Path, stays: bool
) -> None:
    """People support 19 of 20 claims of the first kind and 11 of the other. A verifier that tells
    them apart keeps its verdicts; one that supports neither gets a threshold between both."""
    labels = label_all(cli, run, lambda n, place: "us"[n > 0 if place < 2 else n % 9 > 3])
    made = cli("calibrate", run, labels, "--out", tmp_path / "judge.toml")
    calibration = Calibration.read(tmp_path / "judge.toml")
    first, other = calibration.map([0.999, 0.001] if stays else [0.4, 0.1])
    assert first > calibration.threshold > other
    text, moves = " ".join(made.out.split()), "stay" if stays else "move by the threshold"
    used = f"supported from {calibration.threshold:.2f} on"
    assert used in text
    kept = f"{used} (0.45 before the calibration): the threshold in use stays"
    assert (kept in text) is stays
    assert f"verdicts, and the default score, {moves}" in text
    assert (calibration.threshold == pytest.approx(float(calibration.map(0.45)))) is stays


@pytest.mark.parametrize("run", [(0.75,)], indirect=True)
def test_without_a_gain_nothing_is_written(cli: Command, run: Path, tmp_path: Path) -> None:
    """Probabilities that are honest as they are."""
    labels = label_all(cli, run, lambda n, place: "su"[(n % 4 == 0) != (place > 1)])
    made = cli("calibrate", run, labels, "--out", tmp_path / "judge.toml")
    assert made.status == 4
    assert "no gain, so" in made.out
    assert "an interval half as wide takes about four times the labels" in " ".join(
        made.out.split()
    )
    assert not (tmp_path / "judge.toml").exists()


@pytest.mark.parametrize(
    ("n", "label", "message"),
    [
        (19, lambda n, place: "su"[n % 2], "19 labels of claims that a model judged"),
        (80, lambda n, place: "su"[n % 2] if n < 4 else "", "in 4 records; label at least 20"),
        (80, lambda n, place: "s", "all labels say the same"),
        (80, lambda n, place: "", "0 labels"),
    ],
)
def test_labels_that_say_too_little_are_refused(
    cli: Command, run: Path, n: int, label: Callable[[int, int], str], message: str
) -> None:
    refused = cli("calibrate", run, label_all(cli, run, label, n), "--out", run / "judge.toml")
    assert refused.status == 2
    assert message in refused.err


def test_labels_of_copies_are_counted_where_they_leave_too_few(
    cli: Command, run: Path, tmp_path: Path
) -> None:
    """No model judges a claim that its source says word for word."""
    copies = write_judged_run(tmp_path / "copies", {f"r{n}": claims_of(n, 0.999) for n in range(6)})
    with RunDirectory(copies) as directory:
        rows = directory.scan("support").collect()
        first = pl.int_range(pl.len()) < 5
        directory.write_parts(0, "support", {"support": rows.with_columns(verbatim=first)})
        directory.check_settings({**directory.settings, "additive": ADDITIVE})
    labels = label_all(cli, copies, lambda n, place: "su"[place % 2])
    refused = cli("calibrate", copies, labels, "--out", tmp_path / "judge.toml")
    said = (
        "19 labels of claims that a model judged, in 5 records; 5 of 24 are copies of their source"
    )
    assert (refused.status, said in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("verifier", "calibration", "message"),
    [
        ("nli", "abc", "it is calibrated"),
        ("nli,llm", "none", "a calibration is of one verifier, not of nli,llm"),
    ],
)
def test_another_run_makes_no_calibration(
    cli: Command, run: Path, verifier: str, calibration: str, message: str
) -> None:
    labels = label_all(cli, run, lambda n, place: "su"[n % 2])
    support = {"support": {"verifier": verifier, "calibration": calibration}}
    with RunDirectory(run) as directory:
        directory.replace_settings({**directory.settings, "additive": {**ADDITIVE, **support}})
    refused = cli("calibrate", run, labels, "--out", run / "judge.toml")
    assert (refused.status, message in refused.err) == (2, True)
