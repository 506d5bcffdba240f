"""Rows of numbers by key in files: millions of small ones, found again by the thousand.

All keys are in memory, sorted (`key_index`); rows are in two flat files (`row_format`). When they
are very many no more are added, so that memory stays bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import reason
from claimscore.pipeline.encoders.key_index import Keys
from claimscore.pipeline.encoders.row_format import (
    KEYS,
    DamagedError,
    OpenFiles,
    Rows,
    has_header,
    write_header,
)

#: Rows of a model that are kept: their keys take 480 MB of memory, and that is enough for what is
#: scored again and again. A run over a million records has more pairs, which nobody asks twice.
MOST_ROWS = 20_000_000
_POLL_S, _PATIENCE_S = 0.005, 20.0


class RowFiles:
    """A folder of rows that several processes may read and add to.

    Guarantees: a row is what was added, bit for bit, or is not there; the first of two rows of
    one key is the one that everybody gets. A kill loses at most what is being added. Files that
    do not check are set aside, whole rows saved (`on_notice` hears of it); where a folder cannot
    be read or written, nothing is found or kept, and one notice says why. ``facts`` are for
    people who look into the folder.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, str], on_notice: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._facts = dict(facts)
        self._on_notice = on_notice
        self._may_read = self._may_write = True
        self._files: OpenFiles | None = None
        self._using = threading.Lock()

    def look_up(self, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        """Which keys are there, and their rows in the order of the keys."""
        with self._using:
            places = np.full(len(keys), -1, dtype=np.int64)
            rows = np.zeros((0, 0), dtype=np.float32)
            for _ in range(2):
                if not self._may_read:
                    break
                try:
                    files = self._current()
                    if files is not None:
                        places = files.index.find(keys)
                        rows = files.read(places[places >= 0], keys[places >= 0])
                    return places >= 0, rows
                except DamagedError as exc:
                    self._set_aside(str(exc))
                except OSError as exc:
                    self._give_up(exc, reading=True)
            return np.zeros(len(keys), dtype=bool), np.zeros((0, 0), dtype=np.float32)

    def keep(self, keys: Keys, rows: Rows) -> Rows:
        """Add rows of distinct keys; return what is there of them now: another's may be first."""
        with self._using:
            for _ in range(2):
                if not (self._may_read and self._may_write and len(keys)):
                    break
                try:
                    with self._locked():
                        return self._add(keys, rows)
                except DamagedError as exc:
                    self._set_aside(str(exc))
                except OSError as exc:
                    self._give_up(exc, reading=False)
            return rows

    def close(self) -> None:
        with self._using:
            self._forget()

    def _add(self, keys: Keys, rows: Rows) -> Rows:
        files = self._current() or self._create(rows.shape[1])
        if files.width != rows.shape[1]:
            raise DamagedError("its header says another width")
        places = files.index.find(keys)
        new, known = places < 0, places >= 0
        if files.index.size + int(new.sum()) > MOST_ROWS:
            self._stop_keeping(f"{files.index.size:,} are there, of at most {MOST_ROWS:,}")
        else:
            files.append(keys[new], rows[new])
        if not known.any():
            return rows
        kept = rows.copy()
        kept[known] = files.read(places[known], keys[known])
        return kept

    # -- the files in place

    def _current(self) -> OpenFiles | None:
        """The files with all that anybody has added; None where there are none."""
        files = self._files
        if files is not None and not files.are_in(self.folder):
            self._forget()
            files = None
        if files is None:
            if not has_header(self.folder / KEYS):
                return None
            files = self._files = OpenFiles(self.folder)
        files.refresh()
        return files

    def _create(self, width: int) -> OpenFiles:
        write_header(self.folder, self._facts, width)
        self._files = OpenFiles(self.folder)
        return self._files

    def _forget(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process adds or replaces at a time; the lock ends with the process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder.with_name(f"{self.folder.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError("another process does not let go of it") from None
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    # -- when it goes wrong

    def _give_up(self, error: OSError, *, reading: bool) -> None:
        self._may_read = self._may_read and not reading
        self._stop_keeping(str(error) if isinstance(error, TimeoutError) else reason(error))

    def _stop_keeping(self, why: str) -> None:
        self._may_write = False
        self._on_notice(f"{self.folder}: results of models are not kept from here on ({why})")

    def _set_aside(self, why: str) -> None:
        """Put the whole rows of damaged files in their place; of several processes one does it."""
        try:
            with self._locked():
                damaged = self._files
                if damaged is None or damaged.are_in(self.folder):
                    saved = self._save_rows(self.folder)
                    aside = _free_name(self.folder)
                    self.folder.rename(aside)
                    if saved is not None:
                        saved.rename(self.folder)
                    self._on_notice(
                        f"{self.folder}: stored results of models were damaged ({why}); the rows "
                        f"that are whole were saved, the files are now {aside.name}"
                    )
            self._forget()
        except OSError as exc:
            self._give_up(exc, reading=True)

    def _save_rows(self, damaged: Path) -> Path | None:
        """A folder beside it with the rows that check; None where nothing can be read."""
        saved = damaged.with_name(f"{damaged.name}.new")
        shutil.rmtree(saved, ignore_errors=True)
        try:
            with contextlib.closing(OpenFiles(damaged)) as old:
                write_header(saved, self._facts, old.width)
                with contextlib.closing(OpenFiles(saved)) as new:
                    for keys, rows in old.whole_rows():
                        new.append(keys, rows)
        except DamagedError:
            shutil.rmtree(saved, ignore_errors=True)
            return None
        return saved


def _free_name(folder: Path) -> Path:
    numbers = iter(range(1, 10**6))
    return next(
        path
        for n in numbers
        if not (path := folder.with_name(f"{folder.name}.damaged-{n}")).exists()
    )
