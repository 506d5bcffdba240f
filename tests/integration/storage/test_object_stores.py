"""Object stores behind a server keep the contract."""

from __future__ import annotations

from typing import cast

import pytest

from claimscore.storage import open_storage
from claimscore.storage.objects import ObjectStorage
from tests.support.storage_contract import ConditionalWrites, StorageContract


@pytest.mark.parametrize("kind", ["s3", "gs"])
class TestInAStore(StorageContract, ConditionalWrites):
    """S3, and Google's protocol."""

    @pytest.fixture
    def storage(self, kind: str, request: pytest.FixtureRequest) -> ObjectStorage:
        where = request.getfixturevalue(kind)
        return cast("ObjectStorage", open_storage(f"{where}/run"))
