"""Published SummaC-Conv weights as safetensors that say what they were trained with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from claimscore.errors import ConfigError
from claimscore.metrics.summac.families import SUMMAC_CONV
from claimscore.metrics.summac.weights import load_weights


def convert_weights(file: Path, out: Path, settings: Mapping[str, str]) -> None:
    """Write the weights of `file` and their settings to `out`.

    `settings` are options of `summac-conv` (bins, labels, granularity, ...) and `nli`, which is
    kept for the record. `ConfigError` for weights or settings that do not fit; `out` is then
    not written.
    """
    weights = load_weights(file)
    options = [f"{name}={value}" for name, value in settings.items() if name != "nli"]
    try:
        SUMMAC_CONV.metric([f"weights={file}", *options])
    except ConfigError as exc:
        raise ConfigError(f"{file} is not converted: {exc}") from exc
    weights.save(out, settings)
