"""Files are whole or not there, and a refusal of the system is one clear line."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from claimscore.atomic import atomic_file, atomic_path, write_bytes, write_text
from claimscore.errors import ConfigError, StoppedEarly


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_error_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with atomic_path(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
        assert temporary.parent == path.parent

    def fail() -> None:
        with atomic_file(path) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_file_and_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda _: order.append("sync"))

    def renamed(path: Path, target: Path) -> Path:
        order.append("rename")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", renamed)
    write_bytes(tmp_path / "a", b"x")
    assert order == ["sync", "rename", "sync"]


@pytest.mark.parametrize(
    ("number", "expected", "kind"),
    [
        (errno.ENOSPC, "the disk is full", StoppedEarly),
        (errno.EDQUOT, "the disk quota is used up", StoppedEarly),
        (errno.EROFS, "the file system is read-only", ConfigError),
        (errno.EACCES, "permission denied", ConfigError),
        (errno.EIO, "Input/output error", ConfigError),
    ],
)
def test_refusals_name_the_path_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: str, kind: Any
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(kind) as caught:
        write_bytes(path, b"new")
    assert str(caught.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(caught.value)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A rename onto a pipe or a device would put a file in its place, also for root."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="pipe: it is a device or a pipe; name a file"):
        write_text(pipe, "text")
    assert pipe.is_fifo()
    for folder in (Path(), Path("..")):
        with pytest.raises(ConfigError, match="it is a folder, not a file"):
            write_text(folder, "text")
