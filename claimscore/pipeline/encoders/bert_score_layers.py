"""Which layer BERTScore reads of a model, and the baseline that its scores are rescaled with.

Layers and baselines as bert-score 0.3.13 has them, from package data; those of the embedded
encoder are ours.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from claimscore.errors import ConfigError

DATA = Path(__file__).parent / "data"
PUBLISHED_PATH = DATA / "bert_score_baselines.json"
EMBEDDED_BASELINE_PATH = DATA / "bertscore_baseline.json"
EMBEDDED_LAYER = 6

#: Owners under which the hub keeps models that bert-score knows by their bare names.
_OWNERS = (
    "FacebookAI",
    "google-bert",
    "distilbert",
    "albert",
    "xlnet",
    "google-t5",
)

#: Precision, recall and F1 of texts that have nothing to do with one another.
Baseline = tuple[float, float, float]


class Published(NamedTuple):
    """What bert-score's authors published: layer of each model, baselines of each layer."""

    layers: dict[str, int]
    baselines: dict[str, list[Baseline]]


@cache
def published() -> Published:
    """Return bert-score's layers and English baselines, from package data."""
    content = json.loads(PUBLISHED_PATH.read_text(encoding="utf-8"))
    baselines = {
        model: [(p, r, f) for p, r, f in rows] for model, rows in content["baselines"]["en"].items()
    }
    return Published(content["layers"], baselines)


def published_name(name: str) -> str:
    """Return a hub model's name in bert-score's tables: no revision, no owner they left out."""
    name = name.partition("@")[0]
    owner, _, rest = name.partition("/")
    return rest if rest and owner in _OWNERS else name


def published_baseline(name: str, layer: int) -> Baseline | None:
    """Return the published baseline of a model's layer, or None where there is none."""
    rows = published().baselines.get(published_name(name), [])
    return rows[layer] if layer < len(rows) else None


def choose_layer(name: str, asked: int | None, default: int | None, n_layers: int) -> int:
    """Return the layer to read: the one asked for, else the default; 0 is the embeddings."""
    layer = default if asked is None else asked
    if layer is None:
        raise ConfigError(
            f"{name} has no published layer for BERTScore; name one of its {n_layers} layers "
            "with --token-layer"
        )
    if not 0 <= layer <= n_layers:
        raise ConfigError(f"{name} has layers 0 to {n_layers}; --token-layer {layer} is not there")
    return layer


def read_embedded_baseline(path: Path = EMBEDDED_BASELINE_PATH) -> tuple[int, dict[int, Baseline]]:
    """Return the default layer of the embedded encoder and the baselines by layer."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        layers = {
            int(layer): (float(row["precision"]), float(row["recall"]), float(row["f1"]))
            for layer, row in content.get("layers", content).items()
            if str(layer).isdigit()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigError(
            f"the baseline of the embedded token encoder, {path}, cannot be read ({exc}); "
            "install claimscore again, or name another token encoder"
        ) from exc
    return int(content.get("default_layer", EMBEDDED_LAYER)), layers
