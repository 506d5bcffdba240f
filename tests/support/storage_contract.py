"""The contract of a storage, on a disk and in object stores."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from claimscore.storage import Storage
from claimscore.storage.objects import ObjectStorage


class StorageContract:
    """Subclasses give an empty storage."""

    @pytest.fixture
    def storage(self) -> Storage:
        """An empty storage."""
        raise NotImplementedError

    def test_a_written_file_is_read(self, storage: Storage) -> None:
        storage.write("claims/00001.parquet", b"one")
        storage.write("empty", b"")
        storage.write("claims/00001.parquet", memoryview(b"another"))
        assert storage.read("claims/00001.parquet") == b"another"
        assert storage.sizes() == {"claims/00001.parquet": 7, "empty": 0}
        assert storage.read("empty") == b""
        assert storage.exists("empty")
        assert not storage.exists("claims")
        assert str(storage.address("a/b")) == f"{storage.name}/a/b"
        for ask in (storage.read, storage.open):
            for name in ("claims", "empty/below"):
                with pytest.raises(FileNotFoundError):
                    ask(name)

    def test_names_are_sorted_and_of_whole_folders(self, storage: Storage) -> None:
        for name in ("t/2", "t/10", "t-2/1", "t/a/b", "u", "t/.hidden"):
            storage.write(name, b"")
        assert list(storage.sizes("t")) == ["t/10", "t/2", "t/a/b"]
        assert list(storage.sizes()) == ["t-2/1", "t/10", "t/2", "t/a/b", "u"]
        assert list(storage.sizes("none")) == []

    def test_deleting_is_idempotent(self, storage: Storage) -> None:
        storage.write("a", b"")
        storage.write("b/c", b"")
        storage.delete("a", "none", "none/none", "b/c")
        storage.delete("a")
        storage.delete()
        assert list(storage.sizes()) == []

    def test_a_large_file_is_written_through_a_path(self, storage: Storage) -> None:
        data = bytes(range(256)) * 25_000  # 6.4 MB
        with storage.writing("results/all") as path:
            path.write_bytes(data)
        with contextlib.suppress(KeyboardInterrupt), storage.writing("results/all") as path:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        assert storage.read("results/all") == data
        assert list(storage.sizes()) == ["results/all"]

    def test_wrong_names_are_refused(self, storage: Storage) -> None:
        for name in ("../x", "/x", "a//b", "a/./b", "", "x\0"):
            with pytest.raises(ValueError, match="not a name"):
                storage.write(name, b"")


class ConditionalWrites:
    """The contract of what an object store has besides: versions and conditional writes."""

    def test_one_of_many_creates(self, storage: ObjectStorage) -> None:
        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(lambda n: storage.create("lock/run", b"%d" % n), range(16)))
        assert won.count(True) == 1
        assert storage.read("lock/run") == b"%d" % won.index(True)

    def test_one_of_many_replaces_a_version(self, storage: ObjectStorage) -> None:
        storage.write("lease", b"old")
        seen = storage.version("lease")
        assert seen is not None
        with ThreadPoolExecutor(16) as pool:
            done = list(pool.map(lambda n: storage.replace_if("lease", b"%d" % n, seen), range(16)))
        (new,) = [version for version in done if version is not None]
        assert storage.version("lease") == new != seen
        assert storage.read("lease") == b"%d" % done.index(new)
        assert storage.replace_if("none", b"", seen) is None
        assert storage.version("none") is None
