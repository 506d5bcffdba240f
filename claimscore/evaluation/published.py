"""The figures of `published.toml`, which are printed beside one's own."""

from __future__ import annotations

import importlib.resources
import tomllib
from typing import Any

_FILE = importlib.resources.files(__package__).joinpath("published.toml")
_FIGURES = tomllib.loads(_FILE.read_text(encoding="utf-8"))

SUMMAC_SOURCE: str = _FIGURES["summac"]["source"]
SUMMAC_ALIASES: dict[str, str] = _FIGURES["summac"]["aliases"]
SUMMAC_TEST: dict[str, Any] = _FIGURES["summac"]["test"]
CASPR_SOURCE: str = _FIGURES["caspr"]["source"]
CASPR_MEANS: dict[str, Any] = _FIGURES["caspr"]["means"]
CASPR_RHO: dict[str, float] = _FIGURES["caspr"]["rho"]

OVERALL = "overall"


def summac_figure(model: str, measure: str, dataset: str) -> float | None:
    """The published figure of a data set (or `overall`); None where there is none."""
    name = SUMMAC_ALIASES.get(dataset.lower(), dataset.lower())
    figures = zip(_FIGURES["summac"]["datasets"], SUMMAC_TEST[model].get(measure, ()), strict=False)
    return dict(figures).get(name)


def support_figures(dataset: str) -> tuple[str, dict[str, dict[str, float]]]:
    """Source and figures by system and measure of a data set of `evaluate support`.

    The name of a table begins with that of its data set; nothing where it is another.
    """
    for name, of_dataset in _FIGURES["support"].items():
        if dataset.lower().startswith(name):
            return of_dataset["source"], of_dataset["systems"]
    return "", {}
