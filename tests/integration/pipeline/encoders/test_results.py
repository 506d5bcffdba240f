"""Stored results of models, added by several processes, of which some are killed."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.encoders.results import open_store

WRITER = """
import pathlib, sys
from tests.integration.pipeline.encoders.test_results import Model, pairs
from claimscore.pipeline.encoders.results import open_store
stored = open_store(pathlib.Path(sys.argv[1]), on_notice=sys.exit).around(Model(int(sys.argv[2])))
for call in range(60):
    stored.classify(pairs(call))
    print(call, flush=True)
"""


class Model:
    """Numbers of its own, the same in all columns."""

    info = ModelInfo("org/model", "abc", "float32")
    facts: ClassVar[dict[str, str]] = {}

    def __init__(self, seed: int) -> None:
        self._rng, self.n_asked = np.random.default_rng(seed), 0

    def classify(self, pairs: Sequence[Any], *, on_batch: Any = None) -> Any:
        self.n_asked += len(pairs)
        return np.repeat(self._rng.random((len(pairs), 1)), 3, axis=1).astype(np.float32)

    def truncates(self, pairs: Sequence[Any]) -> Any:
        return np.zeros(len(pairs), dtype=bool)


def pairs(call: int) -> list[tuple[str, str]]:
    return [(f"text {n}", "claim") for n in range(100 * call, 100 * call + 200)]


def test_processes_add_at_once_and_are_killed(tmp_path: Path) -> None:
    """Whatever was stored is whole, the same for all, and a killed call is made again."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for writer in writers[2:]:
        for _ in range(random.randrange(1, 20)):
            assert writer.stdout is not None
            writer.stdout.readline()
        writer.kill()
        writer.communicate()
    for writer in writers[:2]:
        assert writer.communicate(timeout=120)[0].split() == [str(n) for n in range(60)]
    notices: list[str] = []
    stored: Any = open_store(tmp_path, on_notice=notices.append).around(model := Model(9))
    numbers = np.concatenate([stored.classify(pairs(n)) for n in range(60)])
    assert model.n_asked == 0
    assert (numbers == numbers[:, :1]).all()
    assert (notices, writers[2].returncode) == ([], -9)
