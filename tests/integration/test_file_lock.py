"""Locks on files: between descriptors as between processes, for they belong to the open file."""

import errno
import fcntl
from pathlib import Path

import pytest

from claimscore.file_lock import FileLock, is_locked


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock.take(path)
    assert first is not None
    assert is_locked(path)
    assert FileLock.take(path, patience_s=0.05) is None
    first.release()
    first.release()
    with FileLock.take(path) or pytest.fail("it is free"):
        assert is_locked(path)
    assert not is_locked(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "lock"
    with pytest.raises(OSError, match="No locks available"):
        FileLock.take(path)
    assert not is_locked(path)
