"""The contract of a run directory, on a disk and in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.runs import RunDirectory, WorkerChunk, compaction, retry_if_compacted
from claimscore.runs.manifest_log import LOG_FILE, LOG_FOLDER
from claimscore.runs.parts import PartFiles
from claimscore.tables import CLAIMS, FAILURES
from tests.support.run_tables import claims, failures

SIDES = ("a", "b")


def kill(*_: object) -> None:
    """What a signal does in the middle of a call."""
    raise KeyboardInterrupt


def views(run: RunDirectory) -> tuple[RunDirectory, RunDirectory]:
    """The writer, and a reader of the files."""
    return run, RunDirectory.reader(run.name)


def names(run: RunDirectory, table: str = "claims") -> list[str]:
    """The files of a table."""
    return [name.rpartition("/")[2] for name in run.storage.sizes(table)]


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


class RunDirectoryContract:
    """Subclasses say where."""

    @pytest.fixture
    def where(self) -> Path | str:
        """A path or an address, with nothing there."""
        raise NotImplementedError

    @pytest.fixture
    def run(self, where: Path | str) -> Iterator[RunDirectory]:
        """The writer of a run directory there."""
        with RunDirectory(where) as opened:
            opened.check_settings({"seed": 0})
            yield opened

    @pytest.fixture
    def small_ranges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ranges of 4 and 16 chunks."""
        monkeypatch.setattr(compaction, "SIZES", (4, 16))

    # Steps and their parts

    def test_parts_are_read_back(self, run: RunDirectory) -> None:
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
            assert view.manifest.chunk_counts(0) == {"claims": 2, "failures": 1}
        assert names(run) == ["part-000000-decompose.parquet", "part-000001-decompose.parquet"]

    def test_empty_tables_have_no_file_but_a_schema(self, run: RunDirectory) -> None:
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

    def test_redoing_a_step_replaces_its_parts(self, run: RunDirectory) -> None:
        run.write_parts(0, "nli", {"failures": failures("n")})
        run.write_parts(0, "decompose", {"claims": claims("a"), "failures": failures("b")})
        run.write_parts(0, "decompose", {"claims": claims("a", "b"), "failures": failures()})
        for view in views(run):
            assert ids(view.read("claims", 0)) == ["a", "b"]
            assert ids(view.read("failures", 0)) == ["n"]
            assert view.manifest.counts() == {"claims": 2, "failures": 1}
        assert names(run, "failures") == ["part-000000-nli.parquet"]

    def test_a_kill_while_redoing_leaves_the_step_undone(
        self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run.write_parts(0, "decompose", {"claims": claims("a"), "failures": failures("b")})
        monkeypatch.setattr(PartFiles, "_write_part", kill)
        with pytest.raises(KeyboardInterrupt):
            run.write_parts(0, "decompose", {"claims": claims("a", "b")})
        for view in views(run):
            assert not view.manifest.has(0, "decompose")
            assert not view.manifest.counts()
            assert view.read("failures", 0).is_empty()

    def test_parts_without_manifest_are_not_seen(self, run: RunDirectory, where: Any) -> None:
        name = "claims/part-000000-decompose.parquet"
        run.storage.write(name, b"stale")
        assert run.read("claims", 0).is_empty()
        assert run.scan("claims").collect().is_empty()
        run.write_parts(0, "decompose", {"claims": claims()})
        assert not run.storage.exists(name)
        run.storage.write(name, b"stale")
        reopen(run)
        assert not run.storage.exists(name)

    def test_a_damaged_part_is_named(self, run: RunDirectory) -> None:
        run.write_parts(0, "decompose", {"claims": claims("a")})
        name = "claims/part-000000-decompose.parquet"
        run.storage.write(name, b"not parquet")
        with pytest.raises(ConfigError, match=rf"{name}: damaged: not what was written"):
            run.read("claims", 0)
        run.storage.delete(name)
        with pytest.raises(ConfigError, match=rf"{name}: missing"):
            run.read("claims", 0)

    # Chunks in workers

    def test_the_parts_of_a_worker_count_when_the_writer_says_so(
        self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run.write_parts(0, "facts-a", {"claims": claims("a"), "failures": failures()})
        worker = WorkerChunk(run.name, 0, run.manifest.finished(0))
        worker.write("decompose-a", {"claims": claims("x", "y"), "failures": failures()})
        assert ids(run.read("claims", 0)) == ["a"]
        monkeypatch.delattr(type(run.storage), "write")  # no part is written again
        for _ in range(2):
            run.finish_written(worker.written["decompose-a"])
            for view in views(run):
                assert ids(view.read("claims", 0)) == ["x", "y", "a"]
                assert view.manifest.counts() == {"claims": 3, "failures": 0}
        monkeypatch.undo()

    # Compaction

    @pytest.mark.usefixtures("small_ranges")
    def test_sealed_chunks_are_compacted(self, run: RunDirectory) -> None:
        write(run, *range(22))
        assert len(names(run)) == 44
        run.seal(*range(0, 22, 2))
        run.seal(*range(1, 22, 2))
        assert names(run) == [
            *(f"part-000000-000015.1-decompose-{side}.parquet" for side in SIDES),
            *(f"part-000016-000019.1-decompose-{side}.parquet" for side in SIDES),
            *(f"part-{n:06d}-decompose-{side}.parquet" for n in (20, 21) for side in SIDES),
        ]
        for view in views(run):
            for chunk in (0, 4, 5, 15, 19, 21):
                worker = WorkerChunk(run.name, chunk, view.manifest.finished(chunk))
                assert view.read("claims", chunk).equals(expected(chunk))
                assert worker.read("claims").equals(expected(chunk))
                assert worker.read("failures").equals(view.read("failures", chunk))
            assert view.read("claims", *range(3, 19)).equals(expected(*range(3, 19)))
            for side in SIDES:
                in_order = pl.concat([of_side(chunk, side) for chunk in range(22)])
                assert view.scan("claims", f"decompose-{side}").collect().equals(in_order)
            found = view.scan("claims").collect()
            assert found.sort("id", "side").equals(expected(*range(22)).sort("id", "side"))
            assert ids(view.scan("failures").collect()) == ["0", "5", "10", "15", "20"]
            assert view.manifest.counts() == {"claims": found.height, "failures": 5}

    @pytest.mark.usefixtures("small_ranges")
    def test_a_forgotten_chunk_is_compacted_again(self, run: RunDirectory) -> None:
        write(run, *range(16))
        run.seal(*range(16))
        reopen(run)
        run.forget(5, "decompose-a")
        left = pl.concat([of_side(chunk, "a") for chunk in range(16) if chunk != 5])
        for view in views(run):
            assert not view.manifest.has(5, "decompose-a")
            assert view.scan("claims", "decompose-a").collect().equals(left)
        new = of_side(5, "a", "new")
        run.write_parts(5, "decompose-a", {"claims": new, "failures": failures()})
        run.seal(*range(16))
        assert names(run) == [
            "part-000000-000015.1-decompose-b.parquet",
            "part-000000-000015.2-decompose-a.parquet",
        ]
        assert run.read("claims", 5).equals(pl.concat([new, of_side(5, "b")]))
        assert run.read("claims", *range(6, 16)).equals(expected(*range(6, 16)))

    @pytest.mark.usefixtures("small_ranges")
    @pytest.mark.parametrize("killed_at", ["compact", "remove"])
    def test_a_kill_while_compacting(
        self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, killed_at: str
    ) -> None:
        write(run, *range(8))
        run.seal(*range(4))
        with monkeypatch.context() as patch:
            patch.setattr(PartFiles, killed_at, kill)
            with pytest.raises(KeyboardInterrupt):
                run.seal(*range(4, 8))
        for view in views(run):
            assert view.read("claims", *range(8)).equals(expected(*range(8)))
        reopen(run)
        run.seal(*range(8))
        assert len(names(run)) == 4
        assert run.read("claims", *range(8)).equals(expected(*range(8)))

    def test_records_of_many_chunks_in_one_file(self, run: RunDirectory) -> None:
        frames = [pl.DataFrame({"id": [f"{n}", f"{n}!"], "note": [n, n]}) for n in range(6)]
        run.write_chunks(0, "records", "records", frames[:4])
        run.write_chunks(4, "records", "records", frames[4:])
        files = ["part-000000-000003.1.parquet", "part-000004-000005.1.parquet"]
        assert names(run, "records") == files
        for view in views(run):
            for chunk, frame in enumerate(frames):
                assert view.read("records", chunk).equals(frame)
            assert view.scan("records").collect().equals(pl.concat(frames))
        run.storage.delete(f"records/{files[0]}")
        with pytest.raises(ConfigError, match=rf"{files[0]}: missing"):
            run.read("records", 3)

    @pytest.mark.usefixtures("small_ranges")
    def test_readers_follow_a_compaction(self, run: RunDirectory) -> None:
        write(run, *range(4))
        reader = RunDirectory.reader(run.name)
        looks = []

        @retry_if_compacted
        def rows() -> int:
            view = RunDirectory.reader(run.name)
            looks.append(len(names(run)))
            run.seal(*range(4))
            return view.scan("claims").collect().height

        assert rows() == run.manifest.counts()["claims"]
        assert looks == [8, 2]
        assert reader.read("claims", 2).equals(expected(2))
        run.storage.delete(*run.storage.sizes("claims"))
        with pytest.raises(ConfigError, match="missing"):
            rows()

    def test_a_lost_manifest_is_named_and_made_again(self, run: RunDirectory) -> None:
        assert RunDirectory.reader(run.name).manifest.counts() == {}
        run.storage.write("claims/part-000000-decompose.parquet", b"a kill before the first line")
        assert RunDirectory.reader(run.name).manifest.counts() == {}
        run.write_parts(0, "decompose", {"claims": claims("a")})
        log = run.storage.sizes(LOG_FOLDER) if run.storage.local is None else [LOG_FILE]
        run.storage.delete(*log)
        lost = rf"{run.name} is damaged: its manifest is lost; run the same command again"
        with pytest.raises(ConfigError, match=lost):
            RunDirectory.reader(run.name)
        reopen(run)
        assert RunDirectory.reader(run.name).manifest.counts() == {}
        assert not names(run)

    # Other files

    def test_a_reader_takes_no_lock_and_writes_nothing(self, run: RunDirectory) -> None:
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

    def test_a_place_that_is_no_run_directory(self, where: Any) -> None:
        assert not RunDirectory.is_at(where)
        with pytest.raises(ConfigError, match=f"{where}: not a run directory; there is no run.tom"):
            RunDirectory.reader(where)
        with pytest.raises(RuntimeError, match="not open"):
            RunDirectory(where).manifest.has(0, "decompose")

    def test_a_place_with_other_files_is_refused(self, where: Any) -> None:
        storage = RunDirectory(where).storage
        storage.write("thesis/chapter.tex", b"x")
        with pytest.raises(ConfigError, match=r"a folder with other files \(thesis\)"):
            RunDirectory(where).__enter__()
        assert list(storage.sizes()) == ["thesis/chapter.tex"]
        assert not storage.exists(".lock")

    def test_a_refused_run_leaves_nothing(self, where: Any) -> None:
        with pytest.raises(ConfigError, match="no such model"), RunDirectory(where) as run:
            raise ConfigError("no such model")
        assert not list(run.storage.sizes())
        assert not run.storage.exists(".lock")


def reopen(run: RunDirectory) -> None:
    """End the writer, and open the run directory again."""
    run.__exit__(None, None, None)
    run.__enter__()
