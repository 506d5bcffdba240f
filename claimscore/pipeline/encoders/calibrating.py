"""How fast a model is here, found out by a second of work on made-up texts."""

from __future__ import annotations

import time
from typing import Any

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.paces import Pace, Paced, pace_key, remember, weigh

#: Work is doubled until a call takes this long: then what is done once a call counts little. On a
#: busy machine few texts do; so it is as many as this besides, unless that takes too long.
CALIBRATION_S, ENOUGH, LONG_S = 1.0, 64, 5.0

_FIRST, _MOST = 8, 4096
_WORDS = ("room", "pool", "staff", "breakfast", "garden", "view", "bar", "bed")
_TEXTS = (
    "The {word} of house {n} is clean.",
    "Guests of house {n} like the {word}, which is open until late in the evening.",
    "Nobody in house {n} said anything about the {word}.",
    "The {word} was cold, and the staff of house {n} did not help us when we asked for it twice.",
)


def calibrate(role: str, config: EncoderConfig) -> Pace:
    """Load the model of a role (`nli`, `embedder`, `token_encoder`), time it, remember its pace.

    `ConfigError` where it cannot be had. The length of the texts is that of claims.
    """
    model: Any = load_model(role, config)
    if isinstance(model, Paced):
        model.meter = None  # a run's pace is of real texts; this one is written down below
    n, at = _FIRST, 0
    _call(role, model, _texts(at, n))
    while True:
        at += n
        pairs = _texts(at, n)
        began = time.monotonic()
        _call(role, model, pairs)
        seconds = time.monotonic() - began
        if (seconds >= CALIBRATION_S and n >= ENOUGH) or seconds >= LONG_S or n >= _MOST:
            break
        n *= 2
    if role == "nli":
        tokens = weigh(pairs)
    else:
        tokens = weigh([first for first, _ in pairs]) + weigh([second for _, second in pairs])
    pace = Pace(tokens, seconds)
    remember(pace_key(role, config), pace)
    return pace


def _texts(start: int, n: int) -> list[tuple[str, str]]:
    """Pairs of texts, no two alike."""
    return [
        (
            _TEXTS[i % 4].format(word=_WORDS[i % 8], n=i),
            _TEXTS[i // 4 % 4].format(word=_WORDS[i // 8 % 8], n=-i),
        )
        for i in range(start, start + n)
    ]


def _call(role: str, model: Any, pairs: list[tuple[str, str]]) -> None:
    firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    if role == "nli":
        model.classify(pairs)
    elif role == "embedder":
        model.embed([*firsts, *seconds])
    else:
        model.bertscore(firsts, seconds)
