"""`Storage`: named files in one place, on a disk or in an object store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol


class Storage(Protocol):
    """Files that are there whole or not at all.

    Names are relative, with `/` between their parts; folders in between come and go with the
    files in them. A written file is at once readable for every process. A refusal of the disk or
    the store is a `ConfigError` (no such bucket, no permission) or a `StoppedEarly` (unreachable
    after retries, disk full). Methods block; threads may share a storage.
    """

    @property
    def name(self) -> str:
        """The path or address for people; without a secret."""

    @property
    def local(self) -> Path | None:
        """The path, or None in an object store."""

    @property
    def writable(self) -> bool:
        """False for a web server; a store may still refuse."""

    def read(self, name: str) -> bytes:
        """The whole content; `FileNotFoundError` where there is none."""

    def open(self, name: str) -> BinaryIO:
        """The content as a stream; `FileNotFoundError` where there is none.

        The stream is of one version. Where another version replaces it, reading continues in the
        old one (a disk) or raises `ConfigError` (an object store).
        """

    def suggestion(self, name: str) -> str:
        """A hint to put behind `there is no such file`; empty without one."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Replace the content, wholly or not at all."""

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A path on this machine. The file written there replaces the content when the block
        ends; nothing changes when the block raises."""

    def delete(self, *names: str) -> None:
        """Remove files; a missing one is no error."""

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The bytes of each file below the folder `prefix`, by its name, sorted. Names that begin
        with a dot are left out.
        """

    def address(self, name: str = "") -> str | Path:
        """The path or URL of a file, for polars and for people."""


def checked(name: str) -> str:
    """The name, if it is one; `ValueError` (a bug of the caller) if it is not."""
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise ValueError(f"not a name in a folder: {name!r}")
    return name
