"""The published images with the reference code's scores of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.shared_data import shared

WEIGHTS = "data/summac/summac_conv_vitc_sent_perc_e.bin"


def golden() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(shared("data/summac/golden.json").read_text())
    return data


def probabilities(case: dict[str, Any]) -> NDArray[np.float64]:
    """`[document, summary, (entailment, neutral, contradiction)]` of the file's image."""
    entailment, contradiction, neutral = np.array(case["image"])
    return np.stack([entailment, neutral, contradiction], axis=-1)
