"""`--metric-file` from end to end: run, score, status, report."""

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
    """What computes scores names the file each time; looking needs the run directory only."""
    run = tmp_path / "run"
    first = call(capsys, "run", RECORDS, "--out", run, "--metrics", "ds,more-words",
                 "--metric-file", "own.py")  # fmt: skip
    assert list(first["metrics"]) == ["ds", "more-words"]
    assert first["last_call"]["requests"] == 0
    monkeypatch.chdir("/")
    own = ("--metric-file", tmp_path / "own.py")
    found = call(capsys, "score", run, "--metrics", "claim-balance", *own)
    assert found["last_call"]["requests"] == 49
    assert found["metrics"]["claim-balance"]["range"] == [0.0, 1.0]
    assert found["metrics"]["more-words"]["range"] == [None, None]
    assert call(capsys, "status", run)["complete"]
    scores = pl.read_parquet(run / "scores.parquet")
    words = scores.filter(metric="more-words")
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    expected = [len(r["summary_a"].split()) - len(r["summary_b"].split()) for r in lines]
    assert words["value"].to_list() == expected
    assert words["signature"].str.contains(r"^more-words\|v1\|file:[0-9a-f]{12}$").all()
    again = call(capsys, "run", RECORDS, "--out", run, "--metrics", "ds", *own)
    assert list(again["metrics"]) == ["ds", "more-words", "claim-balance"]
    assert again["last_call"]["requests"] == 0


def test_lists_of_sources_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """As the example of the page does; a record with one `source` is read the same way."""
    rows = [
        {"id": "many", "summary": "Fast and red", "sources": ["Red and fast.", "red", "it is Red"]},
        {"id": "none", "summary": " ", "sources": ["Red"]},
        {"id": "one", "summary": "fast red", "source": "Red."},
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call(capsys, "run", "rows.jsonl", "--out", "run", "--metrics", "in-all-sources",
         "--metric-file", "own.py")  # fmt: skip
    scores = pl.read_parquet("run/scores.parquet")
    assert scores["value"].to_list() == [pytest.approx(1 / 3), None, 0.0]
    assert scores["components"][0] == '{"n_sources": 3}'


def test_a_file_that_is_not_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`run` and `score` say so; what only looks needs no file."""
    call(capsys, "run", RECORDS, "--out", "run", "--metrics", "more-words", "--metric-file",
         "own.py")  # fmt: skip
    (tmp_path / "own.py").rename(tmp_path / "moved.py")
    gone = "run has scores of the metric more-words, which is in a file of your own: name it with"
    for arguments in (("score", "run"), ("run", RECORDS, "--out", "run")):
        assert f"{gone} --metric-file" in call(capsys, *arguments, "--metrics", "ds")
    assert call(capsys, "status", "run")["complete"]
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
         "metric more-words: scores of 1 for 12 records; give one"),
        ("yield scored(record, float(len(a.split()) - len(b.split())), {})",
         "yield 0.5", "scores of 12 for 12 records; give one a record by scored()"),
        ("float(len(a", 'float("nan") * (len(a', "value nan and the reason None"),
        ("scored(record, float(", "scored(record, (None, 1.0)[float(", "value None"),
        ("score=score_words", "score=lambda tables: None",
         "own.py: metric more-words: score returned None, no scores"),
        ("len(a.split())", "len(a.splat())", "line 42: metric more-words: AttributeError"),
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
    names = {"more-words": "worst", "claim-balance": "other", "in-all-sources": "another"}
    for name, other in names.items():
        broken = broken.replace(name, other)
    (tmp_path / "worst.py").write_text(broken)
    files = ("--metric-file", "own.py")
    new = ("--metrics", "worst", "--metric-file", "worst.py", *files)
    assert "AttributeError" in call(capsys, "run", RECORDS, "--out", "run", *new)
    found = call(capsys, "run", RECORDS, "--out", "run", "--metrics", "ds", *files)
    assert list(found["metrics"]) == (["ds", "claim-balance"] if before else ["ds"])
    assert call(capsys, "status", "run")["complete"]
    (tmp_path / "worst.py").write_text(broken.replace("splat", "split"))
    found = call(capsys, "score", "run", *new)
    assert list(found["metrics"])[-1] == "worst"
