"""`Storage`: what a run asks of the place where it keeps its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol


class Stat(NamedTuple):
    """Bytes, and what changes when the content does as far as can be told without reading it."""

    size: int
    version: str


class Storage(Protocol):
    """Named bytes that are there whole or not at all.

    Names are relative, with `/` between their parts; folders in between come and go with the
    files in them. What one process wrote, every other one reads from then on. A store's or a
    disk's refusal is a `ConfigError` (no such bucket, no right to it) or a `StoppedEarly` (not
    reached though tried again, disk full). Methods block; threads may share a folder.
    """

    @property
    def name(self) -> str:
        """For people; without a secret."""

    @property
    def local(self) -> Path | None:
        """The folder's path, or None where it is in an object store."""

    @property
    def writable(self) -> bool:
        """False for a web server; a store may still refuse."""

    def read(self, name: str) -> bytes:
        """The whole content; `FileNotFoundError` where there is none."""

    def open(self, name: str) -> BinaryIO:
        """The content as a stream; `FileNotFoundError` where there is none.

        It is that of one version: where another takes its place meanwhile, reading goes on in
        the old one (a disk) or raises `ConfigError` (an object store).
        """

    def stat(self, name: str) -> Stat:
        """Size and version of the content; `FileNotFoundError` where there is none."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Replace the content, wholly or not at all."""

    def upload(self, name: str, path: Path) -> None:
        """Replace the content by a local file's, of any length, wholly or not at all."""

    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Write unless it is there; of several that try at once, at most one is told True.

        Where the line to a store broke and the request was sent again, the one that wrote may be
        told False, here and by `replace_if`: look whose content it is.
        """

    def version(self, name: str) -> str | None:
        """The version that `replace_if` compares, or None where there is no file.

        For small files: on a disk their content is read.
        """

    def replace_if(self, name: str, data: bytes | memoryview, version: str) -> str | None:
        """Replace the content if it still has this version; the new one, or None if it has not."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""

    def size(self, name: str) -> int:
        """The number of bytes; `FileNotFoundError` where there is none."""

    def delete(self, *names: str) -> None:
        """Remove files; those that are not there are no error."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """All names below the folder `prefix`, sorted; those that begin with a dot are left out."""

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The same names with the bytes of each file."""

    def address(self, name: str = "") -> str | Path:
        """The name of the file for polars and for people: a path or a URL."""

    def child(self, prefix: str) -> Storage:
        """The folder in this one."""


def checked(name: str) -> str:
    """The name, if it is one; anything else is a mistake of ours, not of the user."""
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise ValueError(f"not a name in a folder: {name!r}")
    return name
