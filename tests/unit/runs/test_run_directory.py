"""A run directory: its parts, its lock, a full disk."""

import dataclasses
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory
from claimscore.runs import parts as parts_module
from claimscore.runs.folder import MANIFEST
from claimscore.tables import CLAIMS, FAILURES, TABLES
from tests.support.run_tables import claims, failures, scores

SIDES = ("a", "b")


def views(run: RunDirectory) -> tuple[RunDirectory, RunDirectory]:
    """The writer, and a reader of the files."""
    return run, RunDirectory.reader(run.name)


def names(run: RunDirectory, table: str = "claims") -> list[str]:
    """The files of a table."""
    folder = run.path / table
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def ids(frame: pl.DataFrame) -> list[str]:
    return frame["id"].to_list()


def of_side(chunk: int, side: str, text: str = "") -> pl.DataFrame:
    """The claims of a chunk that one of two steps writes."""
    n = chunk % 3 + 1
    return CLAIMS.frame([{"id": f"{chunk}-{i}", "side": side, "text": text} for i in range(n)])


def write(run: RunDirectory, *chunks: int) -> None:
    """Two steps that write one table, one of them with failures in some chunks."""
    for chunk in chunks:
        failed = FAILURES.frame([{"id": f"{chunk}"}] * (chunk % 5 == 0))
        run.write_parts(chunk, "decompose-a", {"claims": of_side(chunk, "a"), "failures": failed})
        run.write_parts(chunk, "decompose-b", {"claims": of_side(chunk, "b")})


def expected(*chunks: int) -> pl.DataFrame:
    """The claims that `write` writes."""
    return pl.concat([of_side(chunk, side) for chunk in chunks for side in SIDES])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place with nothing there."""
    return tmp_path / "run"


@pytest.fixture
def run(path: Path) -> Iterator[RunDirectory]:
    """The writer of a run directory there."""
    with RunDirectory(path) as opened:
        opened.check_settings({"seed": 0})
        yield opened


# Steps and their parts


def test_parts_are_read_back(run: RunDirectory) -> None:
    run.write_parts(1, "decompose", {"claims": claims("c"), "failures": failures()})
    run.write_parts(0, "decompose", {"claims": claims("a", "b"), "failures": failures("b")})
    for view in views(run):
        assert view.manifest.has(0, "decompose")
        assert not view.manifest.has(0, "nli")
        assert view.read("claims", 0).equals(claims("a", "b"))
        assert ids(view.read("claims", 1, 0)) == ["c", "a", "b"]
        assert ids(view.scan("claims").collect()) == ["a", "b", "c"]
        assert view.steps_done("decompose") == 2
        assert view.manifest.counts() == {"claims": 3, "failures": 1}
        assert view.manifest.counts(0) == {"claims": 2, "failures": 1}
    assert names(run) == ["part-000000-decompose.parquet", "part-000001-decompose.parquet"]


def test_empty_tables_have_no_file_but_a_schema(run: RunDirectory) -> None:
    records = pl.DataFrame({"id": ["a"], "refs": [["x", "y"]]})
    assert run.read("records", 0).is_empty()
    run.write_parts(0, "records", {"records": records})
    run.write_parts(0, "decompose", {"claims": claims()})
    assert not names(run)
    for view in views(run):
        assert view.manifest.has(0, "decompose")
        assert view.read("claims", 0).equals(CLAIMS.empty())
        assert view.scan("claims").collect().schema == CLAIMS.schema
        assert view.read("records", 0).equals(records)
        assert view.read("records", 1).schema == records.schema


def test_a_column_that_is_newer_than_a_part_is_null(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {name: kind for name, kind in CLAIMS.schema.items() if name != "left_out"}
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "claims", dataclasses.replace(CLAIMS, schema=schema))
        run.write_parts(0, "decompose-a", {"claims": claims("a").drop("left_out")})
    run.write_parts(1, "decompose-a", {"claims": claims("b")})
    assert run.read("claims", 0, 1)["left_out"].to_list() == [None, None]


def test_a_damaged_part_is_named(run: RunDirectory) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    name = "claims/part-000000-decompose.parquet"
    (run.path / name).write_bytes(b"not parquet")
    with pytest.raises(ConfigError, match=rf"{name}: damaged: not what was written"):
        run.read("claims", 0)
    (run.path / name).unlink()
    with pytest.raises(ConfigError, match=rf"{name}: missing"):
        run.read("claims", 0)


def test_an_undone_step_is_done_again(run: RunDirectory) -> None:
    write(run, *range(8))
    run.invalidate({"decompose-a": [5, 7], "none": [3]})
    left = pl.concat([of_side(chunk, "a") for chunk in (0, 1, 2, 3, 4, 6)])
    for view in views(run):
        assert not view.manifest.has(5, "decompose-a")
        assert view.scan("claims", "decompose-a").collect().equals(left)
        assert view.read("claims", 5).equals(of_side(5, "b"))
        assert ids(view.scan("failures").collect()) == ["0"]
    new = of_side(5, "a", "new")
    run.write_parts(5, "decompose-a", {"claims": new})
    assert run.read("claims", 5).equals(pl.concat([new, of_side(5, "b")]))
    assert run.read("claims", 4, 6).equals(expected(4, 6))
    assert len(names(run)) == 15


def test_rows_are_in_the_order_of_the_input(run: RunDirectory) -> None:
    write(run, 3, 0, 2, 1)
    for view in views(run):
        assert view.scan("claims").collect().equals(expected(*range(4)))
        of_a = pl.concat([of_side(chunk, "a") for chunk in range(4)])
        assert view.scan("claims", "decompose-a").collect().equals(of_a)


def test_a_lost_manifest_is_named_and_made_again(run: RunDirectory) -> None:
    assert RunDirectory.reader(run.name).manifest.counts() == {}
    run.write_parts(0, "decompose", {"claims": claims("a")})
    (run.path / MANIFEST).unlink()
    lost = r"manifest\.log: missing; the same command that began it makes it again"
    with pytest.raises(ConfigError, match=lost):
        RunDirectory.reader(run.name)
    reopen(run)
    assert RunDirectory.reader(run.name).manifest.counts() == {}
    assert not names(run)


# Other files


def test_a_reader_takes_no_lock_and_writes_nothing(run: RunDirectory) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    reader = RunDirectory.reader(run.name)
    assert reader.is_locked
    assert reader.manifest.counts() == {"claims": 1}
    assert reader.title == run.name.rpartition("/")[2]
    for write in (
        lambda: reader.event("x"),
        lambda: reader.write_parts(0, "a", {}),
        lambda: reader.check_settings({}),
    ):
        with pytest.raises(RuntimeError, match="not open for writing"):
            write()
    run.__exit__(None, None, None)
    assert not reader.is_locked
    run.__enter__()


def test_a_place_that_is_no_run_directory(path: Path) -> None:
    assert not RunDirectory.is_at(path)
    with pytest.raises(ConfigError, match=f"{path}: not a run directory; there is no run.tom"):
        RunDirectory.reader(path)
    with pytest.raises(RuntimeError, match="not open"):
        RunDirectory(path).manifest.has(0, "decompose")


def test_a_place_with_other_files_is_refused(path: Path) -> None:
    (path / "thesis").mkdir(parents=True)
    (path / "thesis/chapter.tex").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"a folder with other files \(thesis\)"):
        RunDirectory(path).__enter__()
    assert sorted(path.rglob("*")) == [path / "thesis", path / "thesis/chapter.tex"]


def test_a_refused_run_leaves_nothing(path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model"), RunDirectory(path) as run:
        raise ConfigError("no such model")
    assert not run.path.exists()


def reopen(run: RunDirectory) -> None:
    """End the writer, and open the run directory again."""
    run.__exit__(None, None, None)
    run.__enter__()


# Opening and the lock


def test_new_folder_is_private(run: RunDirectory) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    for path in (run.path, run.state, run.path / "claims"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_second_opener_is_refused(run: RunDirectory) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"is in use by process {os.getpid()} on .+;"):
            RunDirectory(run.path).__enter__()


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused: two writers would not know of each other."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=r"\.lock: the file system knows no locks; choose an"):
        RunDirectory(path).__enter__()


def test_writer_whose_folder_was_removed_stops(path: Path) -> None:
    nothing = {"failures": failures()}
    with RunDirectory(path) as directory:
        shutil.rmtree(path)
        with RunDirectory(path) as second:
            second.write_parts(1, "decompose-a", nothing)
            with pytest.raises(StoppedEarly, match="removed"):
                directory.write_parts(2, "decompose-a", nothing)
            second.write_parts(3, "decompose-a", nothing)
    with RunDirectory(path) as third:
        assert (third.manifest.damaged, third.manifest.chunks_with("decompose-a")) == ("", [1, 3])


def test_a_folder_that_is_moved_within_a_write_is_a_stop(path: Path) -> None:
    def moved() -> Iterator[pl.DataFrame]:
        path.rename(path.with_name("aside"))
        yield scores(0, 2)

    with pytest.raises(StoppedEarly, match="removed or moved"), RunDirectory(path) as directory:
        directory.write_scores(moved())
    assert not path.exists()


def test_leftovers_of_a_kill_are_removed_and_files_of_others_stay(run: RunDirectory) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    for name in (".mine.tmp", ".mine.txt.0a1b2c3d.tmp", "claims/.mydraft.tmp"):
        (run.path / name).write_text("mine")
    (run.path / ".scores.csv.0a1b2c3d.tmp").mkdir()
    (run.path / ".run.toml.0a1b2c3d.tmp").symlink_to(run.path / ".mine.tmp")
    theirs = sorted(run.path.rglob("*.tmp"))
    for name in ("claims/.part-000001-decompose.parquet", ".summary.json", ".state/.manifest.log"):
        (run.path / f"{name}.0a1b2c3d.tmp").write_text("half")
    reopen(run)
    assert sorted(run.path.rglob("*.tmp")) == theirs


def test_a_damaged_line_is_named_and_all_steps_are_undone(path: Path) -> None:
    with RunDirectory(path) as run:
        run.check_settings({"seed": 0})
        for chunk in range(3):
            run.write_parts(chunk, "decompose", {"claims": claims("a")})
    manifest = path / ".state" / "manifest.log"
    manifest.write_bytes(manifest.read_bytes().replace(b'"chunk":1', b'"chunk":2'))
    with pytest.raises(ConfigError, match=r"manifest\.log, line 2: damaged; the same command"):
        RunDirectory.reader(path)
    with RunDirectory(path) as run:
        assert run.manifest.damaged == f"{manifest}, line 2: damaged"
        assert not names(run)
        run.write_parts(2, "decompose", {"claims": claims("a")})
    assert RunDirectory.reader(path).manifest.chunks_with("decompose") == [2]


# Scores


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 250), max_size=6))
def test_scores_have_same_bytes(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 250]
    frames = [scores(a, b) for a, b in itertools.pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts_module, "ROW_GROUP", 100)
        with RunDirectory(tmp_path_factory.mktemp("r") / "run") as run:
            run.write_scores([scores(0, 250)])
            whole = (run.path / "scores.parquet").read_bytes()
            run.write_scores(iter(frames))
            assert (run.path / "scores.parquet").read_bytes() == whole
            assert pl.read_parquet(whole).equals(scores(0, 250))
            assert not (run.state / "scores").exists()


# Refusals of the system


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("IO error: No space left on device (os error 28)", "the disk is full; free"),
        ("Invalid thrift: transport error", "files may not become so large here"),
    ],
)
def test_the_old_scores_stay(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, message: str, expected: str
) -> None:
    """A full disk is one line, as polars says it too."""

    def failing() -> Iterator[pl.DataFrame]:
        yield scores(0, 3)
        raise KeyboardInterrupt

    def refuse(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError(message)

    run.write_scores([scores(0, 2)])
    with pytest.raises(KeyboardInterrupt):
        run.write_scores(failing())
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", refuse)
    with pytest.raises(StoppedEarly, match=f"parquet: {expected}"):
        run.write_scores([scores(0, 3)])
    assert pl.read_parquet(run.path / "scores.parquet").height == 2
    assert not (run.state / "scores").exists()


def test_full_disk_is_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run.write_parts(1, "decompose", {"claims": claims("b")})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoppedEarly, match=r"part-000000-decompose\.parquet: the disk is full"):
            run.write_parts(0, "decompose", {"claims": claims("a")})
        with pytest.raises(StoppedEarly, match=r"scores\.parquet: the disk is full"):
            run.write_scores([scores(0, 2)])
        with pytest.raises(StoppedEarly, match=r"summary\.json: the disk is full"):
            run.write_summary({})
    assert not run.manifest.has(0, "decompose")
    run.write_parts(0, "decompose", {"claims": claims("a")})
    (run.path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoppedEarly, match=r"events\.jsonl: the disk is full"):
        run.event("x")
