"""A disk and an object store in memory keep the contract, and give the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

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
