"""`--metric-file` from end to end: run, estimate, score, status, report, from the folder alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main

ROOT = Path(__file__).parents[3]
RECORDS, OWN = ROOT / "examples" / "hotels.jsonl", ROOT / "examples" / "own_metrics.py"


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(OWN, tmp_path / "own.py")


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """The command with `--json`; what it says, or its complaint."""
    code = main([*map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert code == (2 if err else 0), err
    return err if err else json.loads(out.splitlines()[-1])


def test_it_is_scored_beside_ours_and_found_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named once; later calls, from another folder, need the run directory only."""
    run = tmp_path / "run"
    first = call(capsys, "run", RECORDS, "--out", run, "--metrics", "ds,more-words",
                 "--metric-file", "own.py")  # fmt: skip
    assert list(first["metrics"]) == ["ds", "more-words"]
    assert first["last_call"]["requests"] == 0
    monkeypatch.chdir("/")
    found = call(capsys, "score", run, "--metrics", "claim-balance")
    assert found["last_call"]["requests"] == 48
    assert found["metrics"]["claim-balance"]["range"] == [0.0, 1.0]
    assert found["metrics"]["more-words"]["range"] == [None, None]
    assert call(capsys, "status", run)["complete"]
    scores = pl.read_parquet(run / "scores.parquet")
    words = scores.filter(metric="more-words")
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    expected = [len(r["summary_a"].split()) - len(r["summary_b"].split()) for r in lines]
    assert words["value"].to_list() == expected
    assert words["signature"].str.contains(r"^more-words\|v1\|file:[0-9a-f]{12}$").all()
    again = call(capsys, "run", RECORDS, "--out", run, "--metrics", "ds")
    assert list(again["metrics"]) == ["ds", "more-words", "claim-balance"]
    assert again["last_call"]["requests"] == 0


def test_a_file_that_has_gone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`status`, `run` and `score` say so, the report is written all the same, and the file's new
    place helps."""
    call(capsys, "run", RECORDS, "--out", "run", "--metrics", "more-words", "--metric-file",
         "own.py")  # fmt: skip
    (tmp_path / "own.py").rename(tmp_path / "moved.py")
    gone = f"metric file {tmp_path / 'own.py'}: there is no such file"
    again = ("run", RECORDS, "--out", "run", "--metrics", "ds")
    for arguments in (("status", "run"), ("score", "run", "--metrics", "ds"), again):
        assert gone in call(capsys, *arguments)
    assert main(["report", "run"]) == 0
    assert "Words of summary_a less those of summary_b" in Path("run/report.html").read_text()
    capsys.readouterr()
    found = call(capsys, "score", "run", "--metrics", "ds", "--metric-file", "moved.py")
    assert list(found["metrics"]) == ["more-words", "ds"]
    assert call(capsys, "status", "run")["complete"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"summary_a", "summary_b").rows()', '"summary_a", "summary_b").head(1).rows()',
         "one a record"),
        ("float(len(a", 'float("nan") * (len(a', "value nan and the reason None"),
        ("scored(record, float(", "scored(record, (None, 1.0)[float(", "value None"),
        ("len(a.split())", "len(a.splat())", "line 41: metric more-words: AttributeError"),
        ('requires=Requirements(("summary_a", "summary_b"))',
         'requires=Requirements(("summary_a",), (TaskRequirement("guess", ("a",)),))',
         "needs the task guess"),
        ('requires=Requirements(("summary_a", "summary_b"))',
         'requires=Requirements(("summary_a",), (TaskRequirement("decompose", ("c",)),))',
         "needs the side c,"),
    ],
)  # fmt: skip
def test_a_metric_that_is_wrong(
    old: str, new: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = OWN.read_text()
    assert old in code
    code = code.replace(old, new)
    if "None, 1.0" in new:
        code = code.replace("len(b.split())), {})", "len(b.split())) > 1e9], {})")
    (tmp_path / "own.py").write_text(code)
    complaint = call(capsys, "run", RECORDS, "--out", "run", "--metrics", "more-words",
                     "--metric-file", "own.py")  # fmt: skip
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not Path("run/scores.parquet").exists()


@pytest.mark.parametrize("before", [(), ("--metrics", "ds,claim-balance")])
def test_a_metric_that_cannot_score_is_none_of_the_run(
    before: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What was scored before goes on without it, and the repaired file is taken."""
    if before:
        call(capsys, "run", RECORDS, "--out", "run", *before, "--metric-file", "own.py")
    broken = OWN.read_text().replace("len(a.split())", "len(a.splat())")
    broken = broken.replace("more-words", "worst").replace("claim-balance", "other-balance")
    (tmp_path / "worst.py").write_text(broken)
    new = ("--metrics", "worst", "--metric-file", "worst.py")
    assert "AttributeError" in call(capsys, "run", RECORDS, "--out", "run", *new)
    found = call(capsys, "run", RECORDS, "--out", "run", "--metrics", "ds")
    assert list(found["metrics"]) == (["ds", "claim-balance"] if before else ["ds"])
    assert call(capsys, "status", "run")["complete"]
    (tmp_path / "worst.py").write_text(broken.replace("splat", "split"))
    found = call(capsys, "score", "run", *new)
    assert list(found["metrics"])[-1] == "worst"
