"""The main job with input and run directory in an object store: the same as on a disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claimscore.cli import main
from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, Ledger, Spent
from claimscore.pipeline.run import run, score
from claimscore.pipeline.spending import open_ledger, run_spent, take_over_spending
from claimscore.pipeline.status import run_status
from claimscore.runs import RunDirectory
from claimscore.storage import open_storage

KILLED_AFTER_THREE_STEPS = """
import os, signal, sys
from claimscore.config import LLMConfig, RunConfig
from claimscore.pipeline.run import run
from claimscore.runs import RunDirectory

done, write = [], RunDirectory.write_parts

def write_parts(self, chunk, step, frames):
    write(self, chunk, step, frames)
    done.extend([step] * (step != "records"))
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

RunDirectory.write_parts = write_parts
one_by_one = LLMConfig(max_concurrency=1)
run(RunConfig(sys.argv[1], sys.argv[2], (), ("decompose",), chunk_records=1, llm=one_by_one))
"""


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Six, with a reference each."""
    path = tmp_path / "records.jsonl"
    with path.open("w") as stream:
        for n in range(6):
            record = {
                "id": f"r{n}",
                "summary": f"Room {n} is clean and quiet. The staff is kind.",
                "references": [f"Room {n} is quiet. The bar is loud."],
            }
            stream.write(json.dumps(record) + "\n")
    return path


def config(records: Path | str, out: Path | str) -> RunConfig:
    return RunConfig(str(records), out, ("rouge-1",), ("decompose",), chunk_records=1)


def test_a_killed_run_goes_on_to_the_bytes_of_a_disk(
    records: Path, s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, local = f"{s3}/runs/a", tmp_path / "local"
    source = f"{s3}/input/records.jsonl"
    open_storage(s3).write("input/records.jsonl", records.read_bytes())
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_THREE_STEPS, source, where],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    half = run_status(where)
    assert not half["running"]
    assert not half["complete"]
    assert half["records"] == 6
    assert 3 <= half["chunks"]["done"] < 6

    resumed = run(config(source, where))
    assert resumed.summary["records"] == {"total": 6, "done": 6, "failed": 0}
    asked = resumed.summary["last_call"]
    left = half["chunks"]["left"]
    assert asked["requests"] + asked["cache_hits"] == 2 * left
    run(config(records, local))
    for folder in (where, local):
        score(RunConfig("", folder, ("rouge-l",)))
    folder = RunDirectory.reader(where).storage
    assert folder.read("scores.parquet") == (local / "scores.parquet").read_bytes()

    whole = run_status(where)
    assert whole["complete"]
    assert list(whole["metrics"]) == ["rouge-1", "rouge-l"]
    assert whole["spent"]["requests"] == half["spent"]["requests"] + asked["requests"]
    assert main(["report", where]) == 0
    assert capsys.readouterr().out.strip() == f"{where}/report.html"
    assert folder.read("report.html").startswith(b"<!DOCTYPE html>")
    assert main(["compare", where, str(local), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert where in json.dumps(compared)
    assert main(["estimate", source, "--out", where, "--metrics", "rouge-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 6


LOCAL = "an address; name a local "


@pytest.mark.parametrize(
    ("command", "where", "said"),
    [
        pytest.param(
            "map x --prompt p.toml --prompts-dir", "s3://bucket/a", LOCAL + "folder", id="prompts"
        ),
        pytest.param("train summac-conv x --out", "s3://bucket/a", LOCAL + "file", id="train"),
        pytest.param("run x --out", "ftp://host/a", "ftp://: no such kind of address", id="kind"),
        pytest.param("run x --out", "s3://key:hidden@bucket/a", "without user name", id="secret"),
    ],
)
def test_an_address_that_cannot_be_used(
    records: Path, command: str, where: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(records) if word == "x" else word for word in command.split()]
    assert main([*words, where]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "hidden" not in error
    assert not Path("s3:").exists()


def test_what_was_spent_is_not_lost_by_a_call_that_spends_nothing(s3: str) -> None:
    """After a kill: a call that is interrupted before it looks at the ledger, or a report."""
    where = f"{s3}/run"
    with RunDirectory(where) as directory:
        directory.check_settings({"seed": 0})
        ledger = Ledger(directory.state / SPEND_FILE)  # as a kill leaves it: not mirrored
        for _ in range(3):
            ledger.settle(ledger.reserve(None), Spent(1))
        ledger.flush()
        ledger.close()
        (directory.state / "scores").mkdir()
    assert not (directory.state / "scores").exists()
    with RunDirectory(where) as directory:
        take_over_spending(directory)
        assert run_spent(directory).requests == 3
    assert run_spent(RunDirectory.reader(where)).requests == 3
    assert not (directory.state / SPEND_FILE).exists()


def test_another_machine_goes_on_from_what_was_spent(
    s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine that was killed knows it exactly; another one has what was mirrored last."""
    where, name = f"{s3}/run", f".state/{SPEND_FILE}"
    with RunDirectory(where) as directory:
        directory.check_settings({"seed": 0})
        take_over_spending(directory)
        with open_ledger(directory) as ledger:
            numbers = [ledger.reserve(100) for _ in range(20)]
            for number in numbers[:5]:
                ledger.settle(number, Spent(1, pico_usd=10))
            ledger.flush()
    spent = Spent(20, pico_usd=50, possibly_pico_usd=1500)
    folder = open_storage(where)

    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "elsewhere"))
    with RunDirectory(where) as directory:
        take_over_spending(directory)
        assert run_spent(directory) == spent
        with open_ledger(directory) as ledger:
            earlier = ledger.earlier
    assert earlier == spent

    with RunDirectory(where) as directory:  # killed on the same machine: its ledger is ahead
        take_over_spending(directory)
        folder.write(name, b'{"settle":[],"requests":19}\n')
        take_over_spending(directory)
        assert run_spent(directory) == spent
        folder.write(name, b'{"settle":[],"requests":21}\n')
        assert run_spent(directory) == Spent(21)
    folder.write(name, b"[]\n")
    with (
        RunDirectory(where) as directory,
        pytest.raises(ConfigError, match=r"jsonl, line 1: damaged"),
    ):
        take_over_spending(directory)
