"""A run directory survives kills, refuses a second writer, other settings, a full disk."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory
from claimscore.runs.parts import PartFiles
from claimscore.tables import CLAIMS, FAILURES


def claims(*ids: str) -> pl.DataFrame:
    return CLAIMS.frame([{"id": name, "side": "a", "text": f"text of {name}"} for name in ids])


def failures(*ids: str) -> pl.DataFrame:
    return FAILURES.frame([{"id": name, "stage": "decompose", "kind": "parse"} for name in ids])


def _reopened(run: RunDirectory) -> RunDirectory:
    run.check_settings({"seed": 0})
    return RunDirectory.reader(run.path)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        yield opened


# Opening and the lock


def test_new_folder_is_private(run: RunDirectory) -> None:
    """Inputs and answers are nobody else's business."""
    assert run.path.stat().st_mode & 0o777 == 0o700


def test_second_process_is_refused(run: RunDirectory) -> None:
    """A real second process gets one line naming the holder."""
    code = (
        "import sys; from claimscore.runs import RunDirectory\n"
        "from claimscore.errors import ConfigError\n"
        "try:\n"
        "    with RunDirectory(sys.argv[1]): print('opened')\n"
        "except ConfigError as exc: print(exc)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run.path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith(f"{run.path} is in use by process {os.getpid()};")


def test_second_opener_in_this_process_is_refused(run: RunDirectory) -> None:
    """The lock is not per process, and the refused opener does not break it."""
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"is in use by process {os.getpid()}"):
            RunDirectory(run.path).__enter__()


def test_lock_ends_with_the_block(tmp_path: Path) -> None:
    """The next run may open it."""
    for _ in range(2):
        with RunDirectory(tmp_path / "run") as directory:
            assert (directory.path / ".lock").read_text().strip() == str(os.getpid())


def test_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    """kill -9 leaves no lock behind."""
    code = (
        "import sys, time; from claimscore.runs import RunDirectory\n"
        "RunDirectory(sys.argv[1]).__enter__(); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(ConfigError, match=f"process {process.pid}"):
            RunDirectory(tmp_path / "run").__enter__()
        process.send_signal(signal.SIGKILL)
    with RunDirectory(tmp_path / "run"):
        pass


def test_writer_whose_folder_was_removed_stops(tmp_path: Path) -> None:
    """A run that began anew in its place has a lock of its own, and its files are left alone."""
    path = tmp_path / "run"
    with RunDirectory(path) as directory:
        directory.write_parts(0, "decompose-a", {"failures": FAILURES.empty()})
        shutil.rmtree(path)
        with RunDirectory(path) as second:
            second.write_parts(1, "decompose-a", {"failures": FAILURES.empty()})
            with pytest.raises(StoppedEarly, match="removed"):
                directory.write_parts(2, "decompose-a", {"failures": FAILURES.empty()})
            second.write_parts(3, "decompose-a", {"failures": FAILURES.empty()})
    with RunDirectory(path) as third:
        assert (third.damaged_lines, third.chunks_with("decompose-a")) == ([], [1, 3])


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """`--out ~` by mistake writes nothing."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"other files \(thesis.tex\)"):
        RunDirectory(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """A file is named as such."""
    (tmp_path / "run").write_text("x")
    with pytest.raises(ConfigError, match=r"run: a part of the path is a file, not a folder"):
        RunDirectory(tmp_path / "run").__enter__()


def test_reader_takes_no_lock(run: RunDirectory) -> None:
    """status works while the run goes on and sees what is finished."""
    run.check_settings({"seed": 0})
    run.write_parts(0, "decompose", {"claims": claims("a")})
    reader = RunDirectory.reader(run.path)
    assert reader.counts() == {"claims": 1}
    assert reader.settings == {"seed": 0}
    with pytest.raises(RuntimeError, match="not open for writing"):
        reader.event("x")


def test_reader_refuses_another_folder(tmp_path: Path) -> None:
    """A folder without run.toml is no run directory."""
    with pytest.raises(ConfigError, match="not a run directory"):
        RunDirectory.reader(tmp_path)


def test_use_without_opening_is_a_bug(tmp_path: Path) -> None:
    """Nothing is read or written before the lock is held."""
    with pytest.raises(RuntimeError, match="not open"):
        RunDirectory(tmp_path).has(0, "decompose")


# Parts and manifest


def test_parts_are_read_back(run: RunDirectory) -> None:
    """Chunk by chunk and as a scan, in the input's order whatever order they came in."""
    run.write_parts(1, "decompose", {"claims": claims("c"), "failures": failures()})
    run.write_parts(0, "decompose", {"claims": claims("a", "b"), "failures": failures("b")})
    assert run.has(0, "decompose")
    assert not run.has(0, "nli")
    assert run.read("claims", 0).equals(claims("a", "b"))
    assert run.scan("claims").collect()["id"].to_list() == ["a", "b", "c"]
    assert run.steps_done("decompose") == 2
    assert run.counts() == {"claims": 3, "failures": 1}
    assert sorted(p.name for p in (run.path / "claims").iterdir()) == [
        "part-000000-decompose.parquet",
        "part-000001-decompose.parquet",
    ]


def test_empty_tables_have_no_file_but_a_schema(run: RunDirectory) -> None:
    """A chunk without rows reads as an empty frame of the table."""
    run.write_parts(0, "decompose", {"claims": claims()})
    assert not (run.path / "claims").exists()
    assert run.has(0, "decompose")
    assert run.read("claims", 0).equals(CLAIMS.empty())
    assert run.scan("claims").collect().schema == CLAIMS.schema


def test_forgotten_step_is_undone(run: RunDirectory) -> None:
    """Its rows are gone, other steps keep theirs, and forgetting twice does no harm."""
    run.write_parts(0, "decompose-a", {"claims": claims("a"), "failures": failures("x")})
    run.write_parts(0, "decompose-b", {"claims": claims("b")})
    assert run.steps(0) == {"decompose-a", "decompose-b"}
    for _ in range(2):
        run.forget(0, "decompose-a")
        for view in (run, _reopened(run)):
            assert view.steps(0) == {"decompose-b"}
            assert view.read("claims", 0)["id"].to_list() == ["b"]
    assert [path.name for path in (run.path / "claims").iterdir()] == [
        "part-000000-decompose-b.parquet"
    ]


def test_threads_write_different_steps(run: RunDirectory) -> None:
    """Every step of every thread is in the manifest, each line whole."""

    def write(chunk: int) -> None:
        for step in ("decompose", "paraphrase", "nli"):
            run.write_parts(chunk, step, {"claims": claims(f"{chunk}-{step}")})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    for view in (run, _reopened(run)):
        assert view.counts() == {"claims": 72}
        assert all(view.steps(chunk) == {"decompose", "paraphrase", "nli"} for chunk in range(24))


def test_options_are_kept(run: RunDirectory) -> None:
    """How the run was called; absent or damaged they are named."""
    with pytest.raises(ConfigError, match=r"options\.json: No such file"):
        run.options()
    run.write_options({"metrics": ["caspr"], "out": None})
    assert _reopened(run).options() == {"metrics": ["caspr"], "out": None}
    (run.state / "options.json").write_text("{")
    with pytest.raises(ConfigError, match=r"options\.json: damaged"):
        run.options()


def test_failures_of_several_steps_are_joined(run: RunDirectory) -> None:
    """Steps do not overwrite each other; they are read in sorted order."""
    run.write_parts(0, "nli", {"failures": failures("n")})
    run.write_parts(0, "decompose", {"failures": failures("d")})
    assert run.read("failures", 0)["id"].to_list() == ["d", "n"]
    assert run.scan("failures").collect()["id"].to_list() == ["d", "n"]
    assert (run.path / "failures" / "part-000000-nli.parquet").is_file()


def test_redoing_a_step_replaces_its_parts(run: RunDirectory) -> None:
    """The last line wins, a table that is empty now has no file, others keep theirs."""
    run.write_parts(0, "nli", {"failures": failures("n")})
    run.write_parts(0, "decompose", {"claims": claims("a"), "failures": failures("b")})
    run.write_parts(0, "decompose", {"claims": claims("a", "b"), "failures": failures()})
    for view in (run, _reopened(run)):
        assert view.read("claims", 0)["id"].to_list() == ["a", "b"]
        assert view.read("failures", 0)["id"].to_list() == ["n"]
        assert view.steps_done("decompose") == 1
        assert view.counts() == {"claims": 2, "failures": 1}
    assert not (run.path / "failures" / "part-000000-decompose.parquet").exists()


def test_kill_while_redoing_leaves_the_step_undone(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half old and half new is never seen."""
    run.write_parts(0, "decompose", {"claims": claims("a"), "failures": failures("b")})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PartFiles, "_write_part", killed)
    with pytest.raises(KeyboardInterrupt):
        run.write_parts(0, "decompose", {"claims": claims("a", "b")})
    for view in (run, _reopened(run)):
        assert not view.has(0, "decompose")
        assert view.counts() == {"claims": 0, "failures": 0}
        assert view.read("failures", 0).is_empty()


def test_half_a_line_of_a_full_disk_is_written_over(run: RunDirectory) -> None:
    """The same process may go on once there is space."""
    run.write_parts(0, "decompose", {"claims": claims("a")})
    with (run.state / "manifest.jsonl").open("a") as stream:
        stream.write('{"chunk":1,')
    run.write_parts(2, "decompose", {"claims": claims("c")})
    assert _reopened(run).counts() == {"claims": 2}


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_torn_last_line_is_ignored(tmp_path: Path, cut: int) -> None:
    """A kill while the manifest is written costs that step only."""
    with RunDirectory(tmp_path / "run") as run:
        run.write_parts(0, "decompose", {"claims": claims("a")})
        run.write_parts(1, "decompose", {"claims": claims("b")})
    manifest = tmp_path / "run" / ".state" / "manifest.jsonl"
    os.truncate(manifest, manifest.stat().st_size - cut)
    with RunDirectory(tmp_path / "run") as run:
        assert run.has(0, "decompose")
        assert not run.has(1, "decompose")
        assert run.scan("claims").collect()["id"].to_list() == ["a"]
        run.write_parts(1, "decompose", {"claims": claims("c")})
    with RunDirectory(tmp_path / "run") as run:
        assert run.scan("claims").collect()["id"].to_list() == ["a", "c"]
    assert [json.loads(line)["chunk"] for line in manifest.read_text().splitlines()] == [0, 1]


def test_killed_writer_leaves_whole_steps(tmp_path: Path) -> None:
    """kill -9 of a real writer: what the manifest names is there and readable."""
    code = (
        "import sys; from claimscore.runs import RunDirectory; from claimscore.tables import *\n"
        "run = RunDirectory(sys.argv[1]).__enter__()\n"
        "for n in range(10**6):\n"
        "    chunk = n % 7\n"
        "    claims = CLAIMS.frame([{'id': str(n)}] * (n % 3))\n"
        "    failures = FAILURES.frame([{'id': str(n)}] * (n % 2))\n"
        "    run.write_parts(chunk, 'decompose', {'claims': claims, 'failures': failures})\n"
        "    if n == 20: print('going', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        process.kill()
    with RunDirectory(tmp_path / "run") as run:
        assert run.steps_done("decompose") >= 6
        for chunk in range(7):
            found = {*run.read("claims", chunk)["id"], *run.read("failures", chunk)["id"]}
            assert len(found) <= 1
        assert run.scan("claims").collect().height == run.counts()["claims"]


@pytest.mark.parametrize("flipped", [False, True])
def test_damaged_lines_of_a_manifest(tmp_path: Path, flipped: bool) -> None:
    """A reader names the line; a writer takes it out, and what it said to be done is undone. A
    flipped digit is a line that can be read, and is noticed too."""
    with RunDirectory(tmp_path / "run") as run:
        run.check_settings({"seed": 0})
        for chunk in range(3):
            run.write_parts(chunk, "decompose", {"claims": claims("a")})
    manifest = tmp_path / "run" / ".state" / "manifest.jsonl"
    lines = manifest.read_text().splitlines()
    lines[1] = lines[1].replace('"claims":1', '"claims":3') if flipped else "garbage"
    manifest.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"manifest\.jsonl, line 2: damaged; the same command"):
        RunDirectory.reader(tmp_path / "run")
    with RunDirectory(tmp_path / "run") as run:
        assert [run.has(chunk, "decompose") for chunk in range(3)] == [True, False, True]
        assert run.damaged_lines == [f"{manifest}, line 2: damaged"]
        run.write_parts(1, "decompose", {"claims": claims("b")})
    assert RunDirectory.reader(tmp_path / "run").scan("claims").collect()["id"].to_list() == [
        "a",
        "b",
        "a",
    ]


def test_parts_without_manifest_are_not_seen(run: RunDirectory) -> None:
    """A part that a kill left is written over, never read."""
    (run.path / "claims").mkdir()
    claims("stale").write_parquet(run.path / "claims" / "part-000000-decompose.parquet")
    assert run.read("claims", 0).is_empty()
    assert run.scan("claims").collect().is_empty()
    run.write_parts(0, "decompose", {"claims": claims()})
    assert not (run.path / "claims" / "part-000000-decompose.parquet").exists()


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    """Temporary files go; half an event gets its line end."""
    with RunDirectory(tmp_path / "run") as run:
        run.write_parts(0, "decompose", {"claims": claims("a")})
    (tmp_path / "run" / "claims" / ".part-000001.parquet.00.tmp").write_text("half")
    (tmp_path / "run" / "events.jsonl").write_text('{"kind": "ha')
    with RunDirectory(tmp_path / "run") as run:
        run.event("resumed")
    left = [path.name for path in (tmp_path / "run" / "claims").iterdir()]
    assert left == ["part-000000-decompose.parquet"]
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["kind"] == "resumed"


def test_damaged_part_is_named(run: RunDirectory) -> None:
    """A part that the manifest names and that is gone or broken stops with its path."""
    run.write_parts(0, "decompose", {"claims": claims("a")})
    part = run.path / "claims" / "part-000000-decompose.parquet"
    part.write_bytes(b"not parquet")
    with pytest.raises(ConfigError, match=r"part-000000-decompose\.parquet: damaged"):
        run.read("claims", 0)
    part.unlink()
    with pytest.raises(ConfigError, match=r"part-000000-decompose\.parquet: missing"):
        run.read("claims", 0)


def test_records_of_any_schema(run: RunDirectory) -> None:
    """`records` has the input's columns; a chunk without rows reads with the same schema."""
    frame = pl.DataFrame({"id": ["a"], "refs": [["x", "y"]]})
    assert run.read("records", 0).is_empty()
    run.write_parts(0, "records", {"records": frame})
    assert run.read("records", 0).equals(frame)
    assert run.read("records", 1).schema == frame.schema


@pytest.mark.parametrize(
    ("step", "frames", "expected"),
    [
        pytest.param("../x", {}, "not a name for a step", id="step"),
        pytest.param("a", {"../x": claims("a")}, "not a name for a table", id="table"),
        pytest.param("a", {"claims": pl.DataFrame({"id": ["a"]})}, "claims: schema", id="schema"),
        pytest.param("b", {"records": claims("a")}, "was written by step first", id="owner"),
    ],
)
def test_bugs_of_callers_are_caught(
    run: RunDirectory, step: str, frames: dict[str, pl.DataFrame], expected: str
) -> None:
    """Nothing is written where a step or frame is not what it should be."""
    run.write_parts(0, "first", {"claims": claims("z"), "records": claims("z")})
    with pytest.raises(ValueError, match=expected):
        run.write_parts(0, step, frames)
    assert run.read("claims", 0)["id"].to_list() == ["z"]
