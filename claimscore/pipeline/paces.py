"""How many pairs or texts a second a model did on this machine, for `claimscore estimate`.

Kept by pass, model and `--device` as the last run on this machine did them: pairs of one pass are
of like length, those of another may be ten times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from claimscore.config import EncoderConfig, user_state_dir
from claimscore.state_file import read_state, write_state

if TYPE_CHECKING:
    from claimscore.pipeline.progress import PassDone

PACES_FILE = "model-paces.json"

#: A pass that took less time says little.
_LEAST_S = 1.0


def remember_paces(
    passes: Mapping[str, PassDone], roles: Mapping[str, str], encoders: EncoderConfig
) -> None:
    """Keep what the passes, by their steps, did a second of one device's work; `roles` are
    theirs."""
    rows = {
        _key(step, roles[step], encoders): round(work.items / work.seconds, 3)
        for step, work in passes.items()
        if work.seconds >= _LEAST_S and work.items
    }
    if rows:
        write_state(user_state_dir() / PACES_FILE, rows)


def recall_pace(step: str, role: str, encoders: EncoderConfig) -> float | None:
    """Items a second that the pass last did; None where it is not known."""
    pace = read_state(user_state_dir() / PACES_FILE).get(_key(step, role, encoders))
    return pace if isinstance(pace, float) and 0 < pace < 1e12 else None


def _key(step: str, role: str, encoders: EncoderConfig) -> str:
    model = getattr(encoders, role) or ""
    return f"{step} | {model} | {encoders.device}"
