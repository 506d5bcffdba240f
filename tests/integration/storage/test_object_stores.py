"""An object store behind a server keeps the contract."""

from __future__ import annotations

from typing import cast

import pytest

from claimscore.storage import open_storage
from claimscore.storage.objects import ObjectStorage
from tests.support.storage_contract import ConditionalWrites, StorageContract


class TestInAStore(StorageContract, ConditionalWrites):
    """S3."""

    @pytest.fixture
    def storage(self, s3: str) -> ObjectStorage:
        return cast("ObjectStorage", open_storage(f"{s3}/run"))
