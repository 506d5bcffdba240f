"""The figures of `published.toml`, which are printed beside one's own."""

from __future__ import annotations

import importlib.resources
import tomllib

_FILE = importlib.resources.files(__package__).joinpath("published.toml")
_FIGURES = tomllib.loads(_FILE.read_text(encoding="utf-8"))


def support_figures(dataset: str) -> tuple[str, dict[str, dict[str, float]]]:
    """Source and figures by system and measure of a data set of `evaluate support`.

    The name of a table begins with that of its data set; nothing where it is another.
    """
    for name, of_dataset in _FIGURES["support"].items():
        if dataset.lower().startswith(name):
            return of_dataset["source"], of_dataset["systems"]
    return "", {}
