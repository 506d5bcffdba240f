"""Scores of texts and of tables. Every metric stands in `METRICS`; nothing heavy is imported."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.metrics.base import Metric

#: Name on the command line -> "module:attribute" of a `Metric`.
METRICS: dict[str, str] = {
    "caspr": "claimscore.metrics.caspr:CASPR",
    "ds": "claimscore.metrics.ds:DS",
    "ds3": "claimscore.metrics.ds:DS3",
    "bs-inverse": "claimscore.metrics.bs_inverse:BS_INVERSE",
}


def load_metric(name: str) -> Metric:
    """The metric of that name; `ConfigError` naming the known ones where there is none."""
    if name not in METRICS:
        raise ConfigError(f"unknown metric {name}; known metrics: {', '.join(METRICS)}")
    module, _, attribute = METRICS[name].partition(":")
    metric: Metric = getattr(importlib.import_module(module), attribute)
    return metric
