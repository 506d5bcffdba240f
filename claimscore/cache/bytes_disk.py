"""How diskcache keeps answers; the first write imports this."""

from __future__ import annotations

from typing import Any

import diskcache


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache publishes no types
    """JSON bytes under text keys, in the database itself.

    diskcache's own pickles what is neither, and unpickles any row that says so, which runs code out
    of a file (CVE-2025-69872). A row may also name a file: it is neither read nor removed.
    """

    def put(self, key: str) -> tuple[str, bool]:
        return key, True

    def store(self, value: bytes, read: bool, key: object = None) -> tuple[Any, ...]:
        return 0, diskcache.core.MODE_RAW, None, value

    def get(self, key: str, raw: object) -> str:
        return key

    def fetch(self, mode: int, filename: str | None, value: bytes, read: bool) -> bytes:
        return value

    def remove(self, file_path: str) -> None:
        pass
