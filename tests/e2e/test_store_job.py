"""The main job with its run directory in an object store, on two machines: as on a disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claimscore.cli import main
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run, score
from claimscore.pipeline.status import run_status
from claimscore.runs.remote import Objects
from tests.fake_server import FakeServer
from tests.support.object_store import put

#: Sends after three steps, and is killed after another request is answered and a step done.
KILLED = """
import os, signal, sys, threading
from claimscore.config import LLMConfig, RunConfig
from claimscore.pipeline.run import run
from claimscore.runs import RunDirectory

done, write, turn = [], RunDirectory.write_parts, threading.Lock()

def write_parts(self, chunk, step, frames):
    write(self, chunk, step, frames)
    with turn:
        done.extend([step] * (step != "records"))
        if len(done) == 3:
            self.remote.send()
        if len(done) == 5:
            os.kill(os.getpid(), signal.SIGKILL)

RunDirectory.write_parts = write_parts
source, out, url = sys.argv[1:]
llm = LLMConfig(model="openai:fake", base_url=url, max_concurrency=1)
run(RunConfig(source, out, (), ("decompose",), chunk_records=1, llm=llm))
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


def config(source: Path | str, out: Path | str, url: str) -> RunConfig:
    llm = LLMConfig(model="openai:fake", base_url=url, max_concurrency=1)
    return RunConfig(
        str(source),
        out,
        ("rouge-1",),
        ("decompose",),
        chunk_records=1,
        llm=llm,
    )


def test_another_machine_goes_on_where_one_was_killed(
    records: Path,
    s3: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where, local = f"{s3}/runs/a", tmp_path / "local"
    put(f"{s3}/input/records.jsonl", records.read_bytes())

    def machine(name: str) -> None:
        monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / name / "state"))
        monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / name / "cache"))

    source = f"{s3}/input/records.jsonl"
    with FakeServer() as server:
        machine("one")
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, source, where, server.base_url],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        asked_by_one = sum(server.contents.values())

        machine("two")
        half = run_status(where)
        assert 3 <= half["chunks"]["done"] < 5
        with pytest.raises(ConfigError, match="which sent last"):
            run(config(source, where, server.base_url))
        monkeypatch.setattr("claimscore.runs.remote.DEAD_S", 0.0)
        done = run(config(source, where, server.base_url))
        assert done.summary["records"] == {"total": 6, "done": 6, "failed": 0}
        unsent = asked_by_one - half["spent"]["requests"]
        twice = sum(count - 1 for count in server.contents.values())
        assert 0 < twice <= unsent + 1, "no more than after the last send, and in flight then"
        assert done.summary["spent"]["requests"] == sum(server.contents.values()) - unsent

        machine("three")
        run(config(records, local, server.base_url))
        for folder in (where, local):
            score(RunConfig("", folder, ("rouge-l",)))
        whole = (local / "scores.parquet").read_bytes()
        assert Objects(where).get("scores.parquet") == whole

        machine("four")
        assert run_status(where)["complete"]
        assert main(["status", where]) == 0
        assert "folder here" in capsys.readouterr().out
        assert main(["report", where]) == 0
        assert capsys.readouterr().out.strip() == f"{where}/report.html"
        assert (Objects(where).get("report.html") or b"").startswith(b"<!DOCTYPE html>")
        assert main(["compare", where, str(local), "--json"]) == 0
        assert where in capsys.readouterr().out


LOCAL = "an address; name a local "


@pytest.mark.parametrize(
    ("command", "where", "message"),
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
    records: Path, command: str, where: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(records) if word == "x" else word for word in command.split()]
    assert main([*words, where]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hidden" not in error
    assert not Path("s3:").exists()
