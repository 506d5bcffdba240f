"""Many parts become few files, and nobody who reads the tables notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.runs import RunDirectory, WorkerChunk, again_where_merged, merging
from claimscore.runs.parts import PartFiles
from claimscore.tables import CLAIMS, FAILURES

SIDES = ("a", "b")


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SIZES", (4, 16))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        opened.check_settings({"seed": 0})
        yield opened


def claims(chunk: int, side: str, text: str = "") -> pl.DataFrame:
    rows = [
        {"id": f"{chunk}-{n}", "side": side, "text": f"{text}{n}"} for n in range(chunk % 3 + 1)
    ]
    return CLAIMS.frame(rows)


def write(run: RunDirectory, *chunks: int, text: str = "") -> None:
    """Two steps that write one table, one of them with failures in some chunks."""
    for chunk in chunks:
        failed = FAILURES.frame([{"id": f"{chunk}", "stage": "decompose"}] * (chunk % 5 == 0))
        for side in SIDES:
            frames = {"claims": claims(chunk, side, text)}
            if side == "a":
                frames["failures"] = failed
            run.write_parts(chunk, f"decompose-{side}", frames)


def expected(*chunks: int, text: str = "") -> pl.DataFrame:
    return pl.concat([claims(chunk, side, text) for chunk in chunks for side in SIDES])


def files(run: RunDirectory, table: str = "claims") -> list[str]:
    return sorted(path.name for path in (run.path / table).iterdir())


def test_settled_chunks_lie_in_few_files(run: RunDirectory) -> None:
    """Ranges of 4, then of 16; what is not whole stays as it is."""
    write(run, *range(22))
    assert len(files(run)) == 44
    run.settle(*range(22))
    assert files(run) == [
        *(f"part-000000-000015.1-decompose-{side}.parquet" for side in SIDES),
        *(f"part-000016-000019.1-decompose-{side}.parquet" for side in SIDES),
        *(f"part-{n:06d}-decompose-{side}.parquet" for n in (20, 21) for side in SIDES),
    ]
    assert pl.read_parquet(run.path / "claims" / "*.parquet").height == run.counts()["claims"]


@pytest.mark.parametrize("reopen", [False, True])
def test_tables_read_as_before(run: RunDirectory, reopen: bool) -> None:
    """One chunk, several, all; also from the manifest on the disk, and in a worker."""
    write(run, *range(22))
    run.settle(*range(0, 22, 2))
    run.settle(*range(1, 22, 2))
    reader = RunDirectory.reader(run.path) if reopen else run
    for chunk in range(22):
        assert reader.read("claims", chunk).equals(expected(chunk))
        finished = json.loads(json.dumps(reader.finished(chunk)))
        worker = WorkerChunk(run.path, chunk, finished)
        assert worker.read("claims").equals(expected(chunk))
        assert worker.read("failures").equals(run.read("failures", chunk))
    assert reader.read("claims", *range(3, 19)).equals(expected(*range(3, 19)))
    for side in SIDES:
        step = f"decompose-{side}"
        in_order = pl.concat([claims(chunk, side) for chunk in range(22)])
        assert reader.scan("claims", step).collect().equals(in_order)
    everything = expected(*range(22))
    assert (
        reader.scan("claims")
        .collect()
        .sort("id", "side", "text")
        .equals(everything.sort("id", "side", "text"))
    )
    assert reader.scan("failures").collect()["id"].to_list() == ["0", "5", "10", "15", "20"]
    assert reader.counts() == {"claims": everything.height, "failures": 5}


def test_forgotten_chunk_is_passed_over_and_written_again(run: RunDirectory) -> None:
    """Its rows in the merged file are dead until the range is merged again."""
    write(run, *range(4))
    run.settle(*range(4))
    run.forget(1, "decompose-a")
    left = pl.concat([claims(chunk, "a") for chunk in (0, 2, 3)])
    assert run.scan("claims", "decompose-a").collect().equals(left)
    assert not run.has(1, "decompose-a")
    assert run.read("claims", 2).equals(expected(2))
    run.write_parts(1, "decompose-a", {"claims": claims(1, "a", "new "), "failures": _none()})
    again = RunDirectory.reader(run.path)
    assert again.read("claims", 1).equals(pl.concat([claims(1, "a", "new "), claims(1, "b")]))
    assert again.read("claims", 3).equals(expected(3))
    _close_and_open(run)
    run.settle(*range(4))
    assert files(run) == [
        "part-000000-000003.1-decompose-b.parquet",
        "part-000000-000003.2-decompose-a.parquet",
    ]
    assert run.read("claims", 1)["text"].to_list() == ["new 0", "new 1", "0", "1"]


def test_a_forgotten_chunk_moves_no_other_range(run: RunDirectory) -> None:
    """Ranges of a large file that lack nothing stay in it while one chunk is done again."""
    write(run, *range(16))
    run.settle(*range(16))
    _close_and_open(run)
    run.forget(5, "decompose-a")
    before = files(run)
    run.settle(*(chunk for chunk in range(16) if chunk != 5))
    assert files(run) == before
    run.write_parts(5, "decompose-a", {"claims": claims(5, "a"), "failures": _none()})
    run.settle(5)
    assert files(run) == [
        "part-000000-000015.1-decompose-b.parquet",
        "part-000000-000015.2-decompose-a.parquet",
    ]
    assert run.read("claims", *range(16)).equals(expected(*range(16)))


def _none() -> pl.DataFrame:
    return FAILURES.frame([])


def _close_and_open(run: RunDirectory) -> None:
    run.__exit__(None, None, None)
    run.__enter__()


@pytest.mark.parametrize("killed_at", ["merge", "remove", "remove_merged"])
def test_kill_while_merging(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """Before the manifest knows, while old parts are removed, while old files are."""
    write(run, *range(16))
    if killed_at == "remove_merged":
        run.settle(*range(12))

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PartFiles, killed_at, kill)
        with pytest.raises(KeyboardInterrupt):
            run.settle(*range(16))
    assert RunDirectory.reader(run.path).read("claims", *range(16)).equals(expected(*range(16)))
    _close_and_open(run)
    table = pl.read_parquet(run.path / "claims" / "*.parquet")
    assert table.height == expected(*range(16)).height
    run.settle(*range(16))
    assert len(files(run)) == 2
    assert run.read("claims", *range(16)).equals(expected(*range(16)))


def test_records_of_many_chunks_in_one_file(run: RunDirectory) -> None:
    """Written together, read one by one; a second writer is refused."""
    frames = [pl.DataFrame({"id": [f"{n}", f"{n}!"], "note": [n, n]}) for n in range(6)]
    run.write_chunks(0, "records", "records", frames[:4])
    run.write_chunks(4, "records", "records", frames[4:])
    assert files(run, "records") == ["part-000000-000003.1.parquet", "part-000004-000005.1.parquet"]
    reader = RunDirectory.reader(run.path)
    for chunk, frame in enumerate(frames):
        assert reader.has(chunk, "records")
        assert reader.read("records", chunk).equals(frame)
    assert reader.scan("records").collect().equals(pl.concat(frames))
    with pytest.raises(ValueError, match="was written by step records"):
        run.write_chunks(3, "other", "records", frames[:1])


def test_damaged_merged_file_is_named(run: RunDirectory) -> None:
    """A file that is gone or cut off stops with its path, not with a number."""
    write(run, *range(4))
    run.settle(*range(4))
    path = run.path / "claims" / "part-000000-000003.1-decompose-a.parquet"
    claims(0, "a").write_parquet(path)
    with pytest.raises(ConfigError, match=r"000003\.1-decompose-a\.parquet: damaged: not"):
        run.read("claims", 3)
    path.unlink()
    with pytest.raises(ConfigError, match=r"000003\.1-decompose-a\.parquet: missing"):
        run.read("claims", 0)


def test_reader_finds_what_was_merged_since(run: RunDirectory) -> None:
    """`status` or `report` opened the folder a moment before the parts moved."""
    write(run, *range(4))
    reader = RunDirectory.reader(run.path)
    run.settle(*range(4))
    assert reader.read("claims", 2).equals(expected(2))


def test_who_reads_begins_again_where_parts_were_merged(run: RunDirectory) -> None:
    """A reader knows the files of a moment ago; what is missing is still an error."""
    write(run, *range(4))
    looks = []

    @again_where_merged
    def rows() -> int:
        reader = RunDirectory.reader(run.path)
        looks.append(len(files(run)))
        run.settle(*range(4))
        return reader.scan("claims").collect().height

    assert rows() == run.counts()["claims"]
    assert looks == [8, 2]
    for name in files(run):
        (run.path / "claims" / name).unlink()
    with pytest.raises(ConfigError, match="missing"):
        rows()
