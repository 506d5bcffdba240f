"""The published images with the reference code's scores of them, random weights, and tables."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from claimscore.metrics.base import ChunkTables
from tests.support.frames import block_rows, tables
from tests.support.shared_data import shared

WEIGHTS = "data/summac/summac_conv_vitc_sent_perc_e.bin"
LONG = "a text of more than ten characters"


def golden() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(shared("data/summac/golden.json").read_text())
    return data


def probabilities(case: dict[str, Any]) -> NDArray[np.float64]:
    """`[document, summary, (entailment, neutral, contradiction)]` of the file's image."""
    entailment, contradiction, neutral = np.array(case["image"])
    return np.stack([entailment, neutral, contradiction], axis=-1)


def state(width: int) -> dict[str, np.ndarray]:
    """Random weights for histograms of so many numbers."""
    rng = np.random.default_rng(0)
    shapes = {"mlp.weight": (1, width), "mlp.bias": (1,)}
    shapes |= {"layer_final.weight": (2, 3), "layer_final.bias": (2,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def chunk(
    images: Mapping[str, Any], cuts: tuple[str, str] = ("sentence", "sentence"), **more: Any
) -> ChunkTables:
    """Records with texts, and the images' rows in an order of their own."""
    rows = [row for name, image in images.items() for row in block_rows(name, image, cuts)]
    records = [{"id": name, "source": LONG, "summary": LONG} for name in images]
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    return tables(records, block_nli=shuffled, **more)
