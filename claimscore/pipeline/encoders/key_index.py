"""Where keys are among millions: sorted runs in memory, 24 bytes a key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Keys ``[n, 2]``: 16 bytes of a digest each.
Keys = NDArray[np.uint64]


class KeyIndex:
    """Where keys are: a few sorted runs, each at least twice as long as the next.

    Of three keys with the same first 8 bytes, which is next to impossible, the third may be
    looked for in vain: it is computed each time.
    """

    def __init__(self) -> None:
        self.size = 0
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]] = []

    def add(self, keys: Keys) -> None:
        """Keys whose places follow those that are there."""
        order = np.argsort(keys[:, 0], kind="stable")
        self._runs.append((keys[order, 0], keys[order, 1], order + self.size))
        self.size += len(keys)
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) > len(self._runs[-2][0]):
            last, before = self._runs.pop(), self._runs.pop()
            order = np.argsort(np.concatenate([before[0], last[0]]), kind="stable")
            first, second, places = (
                np.concatenate(columns)[order] for columns in zip(before, last, strict=True)
            )
            self._runs.append((first, second, places))

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The place of each key, -1 where there is none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        order = np.argsort(keys[:, 0])
        first, second = keys[order, 0], keys[order, 1]
        for run_first, run_second, places in self._runs:
            if len(places):
                start = np.searchsorted(run_first, first)
                for step in (0, 1):
                    at = np.minimum(start + step, len(places) - 1)
                    same = (run_first[at] == first) & (run_second[at] == second)
                    found[order[same]] = places[at[same]]
        return found
