"""What `--dtype auto` finds safe."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.arithmetic import compare_numbers, resolve_auto

CLEAR = np.tile([[0.9, 0.1], [0.2, 0.8]], (300, 1))
TIED = np.tile([[0.51, 0.49]], (600, 1))


def turned(n: int) -> Any:
    """As `TIED`, with the other label in ``n`` rows."""
    found = TIED.copy()
    found[:n] = found[:n, ::-1]
    return found


@pytest.mark.parametrize(
    ("role", "exact", "rounded", "safe"),
    [
        ("nli", CLEAR, CLEAR + 0.04, True),
        ("nli", CLEAR, CLEAR + [[0.0, 0.06]] * 600, False),
        ("verifier", np.c_[TIED, [np.nan] * 600], np.c_[turned(1), [np.nan] * 600], True),
        ("nli", TIED, turned(2), False),
        ("embedder", CLEAR, 3 * CLEAR, True),
        ("embedder", CLEAR, CLEAR[:, ::-1], False),
        ("token_encoder", CLEAR, CLEAR + 0.004, True),
        ("token_encoder", CLEAR, CLEAR + 0.006, False),
    ],
)
def test_numbers_must_be_near(role: str, exact: Any, rounded: Any, safe: bool) -> None:
    assert compare_numbers(role, exact, rounded)["safe"] is safe


@pytest.mark.parametrize(
    ("asked", "roles"),
    [
        ({}, ["nli", "embedder"]),
        ({"nli": "org/nli"}, ["nli", "embedder"]),
        ({"nli": "org/nli", "causal_lm": "org/lm"}, ["nli", "causal_lm"]),
        ({"nli": "tei:http://here"}, ["nli"]),
    ],
)
def test_models_that_are_not_tried_are_in_float32(asked: Any, roles: list[str]) -> None:
    """The embedded ones, and those whose numbers are not compared; torch is not asked."""

    def load(role: str, config: EncoderConfig) -> Any:
        raise AssertionError("no model is loaded")

    config = EncoderConfig(**asked)
    assert resolve_auto(config, roles, load) == dataclasses.replace(config, dtype="float32")
