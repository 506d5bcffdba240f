"""A disk and an object store in memory keep the contract, and give the same answers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.storage import LocalStorage, Storage, is_remote, open_storage
from claimscore.storage.objects import ObjectStorage
from tests.support.run_tables import store_in_memory
from tests.support.storage_contract import ConditionalWrites, StorageContract


class TestOnADisk(StorageContract):
    """A folder."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(tmp_path / "run")


class TestInMemory(StorageContract, ConditionalWrites):
    """obstore's store in memory."""

    @pytest.fixture
    def storage(self) -> ObjectStorage:
        return store_in_memory()


def test_addresses() -> None:
    assert is_remote("s3://bucket/x")
    assert not is_remote("dir/x")
    assert not is_remote(Path("s3://bucket/x"))
    assert isinstance(open_storage("x"), LocalStorage)
    assert open_storage("x").local == Path("x")
    assert open_storage("gs://bucket/x/").name == "gs://bucket/x"
    assert open_storage("gs://bucket/x/").local is None


NAMES = st.sampled_from(["a", "b/c", "b/d", "b/e/f", ".hidden", "b-"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=3)),
        st.tuples(st.just("delete"), NAMES, NAMES),
        st.tuples(st.just("read"), NAMES),
        st.tuples(st.just("sizes"), st.sampled_from(["", "b", "b/e", "none"])),
    ),
    max_size=12,
)


def answer(storage: Storage, method: str, *arguments: object) -> object:
    """The answer of a method; names with their order, a missing file as None."""
    try:
        found = getattr(storage, method)(*arguments)
    except FileNotFoundError:
        return None
    return list(found.items()) if method == "sizes" else found


@given(STEPS)
@settings(max_examples=50)
def test_a_disk_and_a_store_give_the_same_answers(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        disk, store = LocalStorage(Path(path)), store_in_memory()
        for step in steps:
            assert answer(disk, *step) == answer(store, *step), step
        assert {n: disk.read(n) for n in disk.sizes()} == {n: store.read(n) for n in store.sizes()}


VERSIONED = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(max_size=3)),
        st.tuples(st.just("create"), st.binary(max_size=3)),
        st.tuples(st.sampled_from(["delete", "look"])),
        st.tuples(st.just("swap"), st.binary(max_size=3)),
    ),
    max_size=12,
)


@given(VERSIONED)
def test_only_the_version_that_was_seen_is_replaced(steps: list[tuple[object, ...]]) -> None:
    storage = store_in_memory()
    seen: str | None = None
    for step in steps:
        match step:
            case ("look",):
                seen = storage.version("x")
            case ("swap", bytes(data)) if seen is not None:
                is_same = storage.version("x") == seen
                assert (storage.replace_if("x", data, seen) is not None) == is_same
            case ("create", bytes(data)):
                was_there = storage.exists("x")
                assert storage.create("x", data) != was_there
            case ("delete",):
                storage.delete("x")
            case ("write", bytes(data)):
                storage.write("x", data)
