"""Two versions of a prompt, as run directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.pipeline.encoders.protocols import NLI_LABELS as LABELS
from tests.support.compared_runs import write_run

E, N, C = LABELS


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    """Two versions of a prompt: of `1` one claim is reworded, one vanished, one appeared."""
    claims_a = {
        ("1", "a"): ["The pool is warm.", "Staff are kind."],
        ("1", "b"): ["It is far."],
        ("2", "a"): ["Same."],
        ("2", "b"): ["Same too."],
        ("3", "a"): ["Only here."],
    }
    claims_b = claims_a | {("1", "a"): ["The pool is very warm.", "Breakfast ends early."]}
    del claims_b["3", "a"]
    labels_a = {
        ("1", "a", 0, "b", 0): E,
        ("1", "a", 1, "b", 0): N,
        ("2", "a", 0, "b", 0): E,
        ("2", "b", 0, "a", 0): E,
    }
    labels_b = labels_a | {("1", "a", 0, "b", 0): C, ("2", "a", 0, "b", 0): N}
    facts_a = {("1", "summary"): [("room", "large"), ("pool", "warm")]}
    facts_b = {("1", "summary"): [("room", "large")]}
    ids = ["1", "2", "3"]
    return (
        write_run(
            tmp_path / "v1", ids, {"m": [1, 1, 1]}, claims=claims_a, labels=labels_a, facts=facts_a
        ),
        write_run(
            tmp_path / "v2", ids, {"m": [5, 1, 2]}, claims=claims_b, labels=labels_b, facts=facts_b
        ),
    )
