"""Folders on a disk and in a store behave alike."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from claimscore.storage import LocalStorage, Storage, is_remote, open_storage
from claimscore.storage.addresses import Address
from claimscore.storage.objects import ObjectStorage

KINDS = ("local", "memory", "s3", "gs")


def in_memory() -> ObjectStorage:
    return ObjectStorage(MemoryStore(), Address("s3", "s3://memory", "run"))


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path / "run")
    if request.param == "memory":
        return in_memory()
    return open_storage(request.getfixturevalue(request.param) + "/run")


def test_what_is_written_is_read(folder: Storage) -> None:
    """Content, size and existence, of a file, an empty one and a missing one."""
    folder.write("claims/00001.parquet", b"one")
    folder.write("empty", b"")
    folder.write("claims/00001.parquet", memoryview(b"another"))
    assert folder.read("claims/00001.parquet") == b"another"
    assert folder.size("claims/00001.parquet") == 7
    assert folder.read("empty") == b""
    assert folder.exists("empty")
    assert not folder.exists("claims")
    for ask in (folder.read, folder.size, folder.open):
        with pytest.raises(FileNotFoundError):
            ask("claims")  # type: ignore[operator]
        with pytest.raises(FileNotFoundError):
            ask("empty/below")  # type: ignore[operator]


def test_a_child_is_the_same_place(folder: Storage) -> None:
    """What is written through one is seen through the other."""
    folder.child("claims").write("a/b", b"x")
    assert folder.read("claims/a/b") == b"x"
    assert list(folder.child("claims").names()) == ["a/b"]
    assert str(folder.child("claims").address("a/b")) == f"{folder.name}/claims/a/b"


def test_names_are_sorted_and_of_whole_folders(folder: Storage) -> None:
    """A prefix is a folder's name, not the beginning of one; dotted names are ours."""
    for name in ("t/2", "t/10", "t-2/1", "t/a/b", "u", "t/.hidden"):
        folder.write(name, b"")
    assert list(folder.names("t")) == ["t/10", "t/2", "t/a/b"]
    assert list(folder.names()) == ["t-2/1", "t/10", "t/2", "t/a/b", "u"]
    assert list(folder.names("none")) == []


def test_only_one_of_many_creates(folder: Storage) -> None:
    """Sixteen threads try at once; one is told that it succeeded, and its content is there."""
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: folder.create("lock/run", b"%d" % n), range(16)))
    assert won.count(True) == 1
    assert folder.read("lock/run") == b"%d" % won.index(True)


def test_only_one_of_many_replaces_a_version(folder: Storage) -> None:
    """Sixteen threads saw the same version; one replaces it."""
    folder.write("lease", b"old")
    seen = folder.version("lease")
    assert seen is not None
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda n: folder.replace_if("lease", b"%d" % n, seen), range(16)))
    (new,) = [version for version in done if version is not None]
    assert folder.version("lease") == new != seen
    assert folder.read("lease") == b"%d" % done.index(new)
    assert folder.replace_if("none", b"", seen) is None
    assert folder.version("none") is None


def test_deleting_is_idempotent(folder: Storage) -> None:
    """Files that are not there are no error, alone or among others."""
    folder.write("a", b"")
    folder.write("b/c", b"")
    folder.delete("a", "none", "none/none", "b/c")
    folder.delete("a")
    folder.delete()
    assert list(folder.names()) == []


def test_a_stream_reads_and_seeks(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one range, from the beginning and from within."""
    monkeypatch.setattr("claimscore.storage.ranges.RANGE_BYTES", 1000)
    data = bytes(range(256)) * 20
    folder.write("big", data)
    with folder.open("big") as stream:
        assert stream.read(10) == data[:10]
        assert stream.read() == data[10:]
        stream.seek(-4000, 2)
        assert stream.read(7) == data[-4000:-3993]
        assert stream.readline() == data[-3993 : data.index(b"\n", len(data) - 3993) + 1]


def test_a_local_file_is_uploaded(folder: Storage, tmp_path: Path) -> None:
    """One of several parts, byte for byte."""
    data = bytes(range(256)) * 25_000  # 6.4 MB
    (tmp_path / "source").write_bytes(data)
    folder.upload("results/all", tmp_path / "source")
    assert folder.read("results/all") == data


def test_wrong_names_are_refused(folder: Storage) -> None:
    """No name leads out of the folder."""
    for name in ("../x", "/x", "a//b", "a/./b", "", "x\0"):
        with pytest.raises(ValueError, match="not a name"):
            folder.write(name, b"")


def test_addresses() -> None:
    """Only text with :// is remote; a folder knows where it is."""
    assert is_remote("s3://bucket/x")
    assert not is_remote("dir/x")
    assert not is_remote(Path("s3://bucket/x"))
    assert isinstance(open_storage("x"), LocalStorage)
    assert open_storage("x").local == Path("x")
    assert open_storage("gs://bucket/x/").name == "gs://bucket/x"
    assert open_storage("gs://bucket/x/").local is None


NAMES = st.sampled_from(["a", "b/c", "b/d", "b/e/f", ".hidden", "b-"])
DATA = st.binary(max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, DATA),
        st.tuples(st.just("create"), NAMES, DATA),
        st.tuples(st.just("delete"), NAMES, NAMES),
        st.tuples(st.just("look"), NAMES),
        st.tuples(st.just("swap"), NAMES, DATA),
        st.tuples(st.just("names"), st.sampled_from(["", "b", "a", "b/e"])),
    ),
    max_size=12,
)


@contextlib.contextmanager
def _unsynced() -> Iterator[str]:
    """A folder whose files may be lost in a power cut, which no example has."""
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield path


def _done(folder: Storage, step: tuple[object, ...], seen: dict[str, str]) -> object:
    """What a step answers; a version is the folder's own business."""
    match step:
        case ("look", str(name)):
            if (version := folder.version(name)) is not None:
                seen[name] = version
            return (folder.read(name), folder.size(name)) if folder.exists(name) else None
        case ("swap", str(name), bytes(data)):
            unchanged = seen.get(name) == folder.version(name)
            swapped = name in seen and folder.replace_if(name, data, seen[name]) is not None
            assert swapped == (name in seen and unchanged)
            return None
        case ("names", str(prefix)):
            return list(folder.names(prefix))
        case (str(method), *arguments):
            return getattr(folder, method)(*arguments)
    raise AssertionError(step)


@given(STEPS)
@settings(max_examples=50)
def test_a_disk_and_a_store_give_the_same_answers(steps: list[tuple[object, ...]]) -> None:
    """The same operations in the same order end in the same files."""
    with _unsynced() as path:
        folders: tuple[Storage, ...] = (LocalStorage(Path(path)), in_memory())
        seen: tuple[dict[str, str], ...] = ({}, {})
        for step in steps:
            # what was looked at just now is swapped; a stale version differs from store to store
            looked = ("look", step[1]) if step[0] == "swap" else ("names", "")
            for happening in (looked, step):
                answers = [_done(folders[n], happening, seen[n]) for n in (0, 1)]
                assert answers[0] == answers[1], happening
        everything = [[(n, f.read(n)) for n in f.names()] for f in folders]
        assert everything[0] == everything[1]


@given(STEPS)
@settings(max_examples=50)
def test_only_the_version_that_was_seen_is_replaced(steps: list[tuple[object, ...]]) -> None:
    """Whatever happened since somebody looked, a swap succeeds only where nothing changed."""
    with _unsynced() as path:
        for folder in (LocalStorage(Path(path)), in_memory()):
            seen: dict[str, str] = {}
            for step in steps:
                _done(folder, step, seen)
