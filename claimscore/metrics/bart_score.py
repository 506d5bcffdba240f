"""BARTScore: how probable one text is given another, under any sequence-to-sequence model."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from claimscore.metrics.against import Compared, combined, score_compared
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    scored,
    unscored,
)

REFERENCE = (
    "Yuan et al. 2021, BARTScore: Evaluating Generated Text as Text Generation: log-"
    "probabilities of all tokens with the same weight, as in bart_score.py of neulab/BARTScore"
)

#: Values of the option `direction` -> (given side, scored side) of each part.
DIRECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "faithfulness": (("source", "summary"),),
    "precision": (("references", "summary"),),
    "recall": (("summary", "references"),),
    "f": (("references", "summary"), ("summary", "references")),
}


def bart_score(log_likelihood: float, tokens: float) -> float:
    """The mean log-likelihood of the target's tokens given the source, Σ log p(y_t | y_<t, x) / m.

    `ValueError` for no token.
    """
    if not tokens > 0:
        raise ValueError("BARTScore is a mean over tokens, and there is none")
    return log_likelihood / tokens


def _score(settings: Mapping[str, str], needs: Requirements, tables: ChunkTables) -> list[Score]:
    parts = DIRECTIONS[settings["direction"]]
    numbers = [_part_numbers(tables["text_scores"], *part) for part in parts]
    return score_compared(
        tables,
        needs,
        _against(settings["direction"]),
        lambda item: _score_record(settings, item, [part.get(item.id, {}) for part in numbers]),
    )


_Numbers = dict[int, dict[str, float]]  # by the place of the text, by name


def _part_numbers(rows: pl.DataFrame, given_side: str, side: str) -> dict[str, _Numbers]:
    wanted = (
        (pl.col("measure") == "bart_score")
        & (pl.col("given_side") == given_side)
        & (pl.col("side") == side)
    )
    found: dict[str, _Numbers] = {}
    columns = rows.filter(wanted).select("id", "given_index", "name", "value")
    for record, index, name, value in columns.iter_rows():
        found.setdefault(record, {}).setdefault(index, {})[name] = value
    return found


def _score_record(settings: Mapping[str, str], item: Compared, parts: list[_Numbers]) -> Score:
    means: list[list[float]] = []  # by text, by part
    for index, _ in item.texts:
        numbers = [part.get(index, {}) for part in parts]
        if any(not each.get("tokens") or each.get("log_likelihood") is None for each in numbers):
            return unscored(item.id, "no likelihoods")
        means.append([bart_score(each["log_likelihood"], each["tokens"]) for each in numbers])
    values = [math.fsum(row) / len(row) for row in means]
    if not all(map(math.isfinite, values)):
        return unscored(item.id, "a likelihood is not a finite number")
    places = [index for index, _ in item.texts]
    components: dict[str, Any] = {"values": dict(zip(places, values, strict=True))}
    if settings["direction"] == "f":
        for name, column in zip(("precision", "recall"), zip(*means, strict=True), strict=True):
            components[name] = dict(zip(places, column, strict=True))
    return scored(item.id, combined(values, settings["multi"]), components)


def _against(direction: str) -> str:
    return "source" if direction == "faithfulness" else "references"


def _make(name: str, settings: Mapping[str, str]) -> Metric:
    direction = settings["direction"]
    needs = Requirements(
        columns=("summary", _against(direction)),
        passes=tuple(PassRequirement("bart_score", part) for part in DIRECTIONS[direction]),
    )
    shown = " and ".join(f"of {side} given {given}" for given, side in DIRECTIONS[direction])
    return Metric(
        name=name,
        version="v1",
        requires=needs,
        score=functools.partial(_score, settings, needs),
        signature_keys=("seq2seq_lm", "dtype", "claimscore"),
        higher_is="more probable",
        range=(-math.inf, 0.0),
        description=f"Mean log-likelihood {shown} (--seq2seq-lm)",
        reference=REFERENCE,
        facts=(("direction", direction), ("multi", settings["multi"])),
    )


BART_SCORE = MetricFamily(
    "bart-score", {"direction": tuple(DIRECTIONS), "multi": ("mean", "max")}, _make
)
