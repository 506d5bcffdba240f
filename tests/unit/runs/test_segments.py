"""The manifest's journal in an object store: numbered objects, one writer, few of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claimscore.errors import StoppedEarly
from claimscore.runs import segments
from claimscore.runs.manifest import Manifest
from claimscore.runs.segments import SegmentJournal
from claimscore.storage import LocalStorage

#: So many are merged on opening here.
MANY = 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    monkeypatch.setattr(segments, "MERGED_ON_OPENING", MANY)
    return LocalStorage(tmp_path)


def writer(folder: LocalStorage, name: str = "w") -> Manifest:
    manifest = Manifest(SegmentJournal(folder, name))
    manifest.open_for_writing()
    return manifest


def reader(folder: LocalStorage) -> Manifest:
    return Manifest(SegmentJournal(folder))


def test_lines_are_read_back(folder: LocalStorage) -> None:
    """By a reader and by the next writer; the last line of a step wins."""
    manifest = writer(folder)
    manifest.finish(0, "decompose", {"claims": 2})
    manifest.finish(1, "decompose", {"claims": 3, "failures": 1})
    manifest.finish(0, "decompose", {"claims": 5})
    manifest.finish(0, "nli", {"nli": 7})
    manifest.strike(0, "nli")
    for view in (manifest, reader(folder), writer(folder, "v"), reader(folder)):
        assert view.counts() == {"claims": 8, "failures": 1, "nli": 0}
        assert view.steps(0) == {"decompose"}
        (parts,) = view.finished(1).values()
        assert {table: place.rows for table, place in parts.items()} == {"claims": 3, "failures": 1}


def test_lines_that_come_while_one_is_written_go_together(folder: LocalStorage) -> None:
    """And each `finish` returns when its segment is there."""
    began, go_on = threading.Event(), threading.Event()
    made = folder.create

    def slow(name: str, data: bytes | memoryview) -> bool:
        began.set()
        assert go_on.wait(30)
        return made(name, data)

    manifest = writer(folder)
    before = len(list(folder.names()))
    folder.create = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(manifest.finish, 0, "a", {})
        assert began.wait(30)
        others = [pool.submit(manifest.finish, chunk, "a", {}) for chunk in range(1, 9)]
        while len(manifest._journal._batch.lines) < 8:  # type: ignore[attr-defined]
            threading.Event().wait(0.001)
        assert not any(one.done() for one in (first, *others))
        assert manifest.steps_done("a") == 0
        go_on.set()
    assert len(list(folder.names())) == before + 2
    assert manifest.steps_done("a") == reader(folder).steps_done("a") == 9


def test_what_cannot_be_kept_fails_for_all(folder: LocalStorage) -> None:
    """Everybody whose line was to be kept hears of it, nothing counts, and it can go on."""
    manifest = writer(folder)
    made = folder.create

    def away(name: str, data: bytes | memoryview) -> bool:
        raise StoppedEarly("the store was not reached")

    folder.create = away  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        tries = [pool.submit(manifest.finish, chunk, "a", {}) for chunk in range(4)]
        for one in tries:
            with pytest.raises(StoppedEarly, match="not reached"):
                one.result()
    assert manifest.steps_done("a") == reader(folder).steps_done("a") == 0
    folder.create = made  # type: ignore[method-assign]
    manifest.finish(0, "a", {})
    assert reader(folder).steps_done("a") == 1


def test_an_answer_that_did_not_arrive(folder: LocalStorage) -> None:
    """The segment is there, written by this writer: the step counts, once."""
    manifest = writer(folder)
    made = folder.create

    def unheard(name: str, data: bytes | memoryview) -> bool:
        return made(name, data) and False

    folder.create = unheard  # type: ignore[method-assign]
    manifest.finish(0, "a", {"claims": 1})
    folder.create = made  # type: ignore[method-assign]
    manifest.finish(1, "a", {"claims": 1})
    assert reader(folder).counts() == {"claims": 2}


def test_an_error_after_the_segment_was_written(folder: LocalStorage) -> None:
    """Its number is taken by what this writer gave up; the next line takes the number after."""
    manifest = writer(folder)
    made = folder.create

    def dropped(name: str, data: bytes | memoryview) -> bool:
        made(name, data)
        raise StoppedEarly("the line broke")

    folder.create = dropped  # type: ignore[method-assign]
    with pytest.raises(StoppedEarly):
        manifest.finish(0, "a", {"claims": 1})
    folder.create = made  # type: ignore[method-assign]
    manifest.finish(1, "a", {"claims": 1})
    assert reader(folder).steps_done("a") == 2


def test_an_earlier_writer_keeps_nothing_more(folder: LocalStorage) -> None:
    """One that slept while another took the run over; what the other says stays."""
    asleep = writer(folder, "asleep")
    asleep.finish(0, "a", {"claims": 1})
    other = writer(folder, "other")
    with pytest.raises(StoppedEarly, match="another process has taken this run over"):
        asleep.finish(1, "a", {"claims": 100})
    other.finish(1, "a", {"claims": 2})
    with pytest.raises(StoppedEarly, match="taken this run over"):
        asleep.strike(0, "a")
    assert reader(folder).counts() == {"claims": 3}


def test_a_line_of_the_earlier_writer_just_before_it_is_locked_out(folder: LocalStorage) -> None:
    """It is there when the other one begins, and counts."""
    asleep = writer(folder, "asleep")
    made, done = folder.create, threading.Event()

    def slow(name: str, data: bytes | memoryview) -> bool:
        if not done.is_set():
            done.set()
            asleep.finish(0, "a", {"claims": 1})
        return made(name, data)

    folder.create = slow  # type: ignore[method-assign]
    assert writer(folder, "other").counts() == {"claims": 1}


def test_many_segments_become_one_snapshot(folder: LocalStorage) -> None:
    """On opening; with the same content, and nothing of what it stands for is left."""
    manifest = writer(folder)
    for chunk in range(MANY):
        manifest.finish(chunk, "a", {"claims": chunk})
    manifest.strike(0, "a")
    counts = manifest.counts()
    writer(folder, "next")
    names = list(folder.names())
    assert [name.partition("-")[0] for name in names] == ["snapshot"]
    assert reader(folder).counts() == writer(folder, "later").counts() == counts
    assert not reader(folder).steps(0)


def test_segments_are_merged_while_it_goes_on(
    folder: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number stays bounded, and readers see what there is at any moment."""
    monkeypatch.setattr(segments, "_MERGED_LATER", 5)
    manifest = writer(folder)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda chunk: manifest.finish(chunk, "a", {"claims": 1}), range(40)))
    assert len(list(folder.names())) <= 10  # five, and the groups that came while merging
    assert reader(folder).counts() == {"claims": 40}


def test_a_kill_while_merging(folder: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot is there and the segments too: each counts once."""
    manifest = writer(folder)
    for chunk in range(MANY):
        manifest.finish(chunk, "a", {"claims": 1})
    monkeypatch.setattr(LocalStorage, "delete", lambda *_: None)
    writer(folder, "next")
    assert len(list(folder.names())) > MANY
    assert reader(folder).counts() == {"claims": MANY}


def test_reading_while_segments_are_merged(folder: LocalStorage) -> None:
    """A reader that finds a segment gone looks again."""
    manifest = writer(folder)
    for chunk in range(MANY):
        manifest.finish(chunk, "a", {"claims": 1})
    looks = folder.names

    def merged_meanwhile(prefix: str = "") -> object:
        found = list(looks(prefix))
        folder.names = looks  # type: ignore[method-assign]
        writer(folder, "next")
        return iter(found)

    folder.names = merged_meanwhile  # type: ignore[method-assign, assignment]
    assert reader(folder).counts() == {"claims": MANY}


def test_damage_is_named_and_taken_out(folder: LocalStorage) -> None:
    """A segment that is cut, empty or gone is no trace of a kill: what it said is undone."""
    manifest = writer(folder)
    for chunk in range(3):
        manifest.finish(chunk, "a", {"claims": 1})
    whole = folder.read("00000003.jsonl")
    for torn in (b"", whole[:10], b"garbage\n" + whole.splitlines()[-1]):
        folder.write("00000003.jsonl", torn)
        found = reader(folder)
        assert "00000003.jsonl" in found.damaged[0]
        assert found.steps_done("a") == 2
    folder.delete("00000003.jsonl")
    assert reader(folder).damaged == [f"{folder.name}/00000003.jsonl: missing or cut off"]
    again = writer(folder, "next")
    assert again.damaged
    assert reader(folder).damaged == []
    again.finish(1, "a", {"claims": 1})
    assert reader(folder).steps_done("a") == 3
