"""The three labels of NLI by their names, which no model's order of columns is taken for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import NLI_LABELS

#: How models spell the three labels, in lower case.
LABEL_NAMES = {
    "entailment": "entailment",
    "entail": "entailment",
    "entails": "entailment",
    "entailed": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    "contradict": "contradiction",
    "contradicts": "contradiction",
    "contradictory": "contradiction",
}


def label_columns(model: str, id2label: Mapping[Any, str]) -> tuple[int, int, int]:
    """Return the model's columns of entailment, neutral and contradiction.

    Refuses a model whose labels are not exactly the three, such as LABEL_0: guessing an order
    would turn every score round.
    """
    named = {LABEL_NAMES.get(str(name).strip().lower()): int(i) for i, name in id2label.items()}
    if len(id2label) != 3 or set(named) != set(NLI_LABELS):
        shown = ", ".join(str(name) for name in list(id2label.values())[:6])
        raise ConfigError(
            f"{model} is not an NLI model: its labels are {shown}; it needs "
            "entailment, neutral and contradiction in its config's id2label"
        )
    return named["entailment"], named["neutral"], named["contradiction"]
