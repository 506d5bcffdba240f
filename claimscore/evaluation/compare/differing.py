"""The differences of two runs before anything is scored: settings, signatures, data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.evaluation.compare.source import Source
from claimscore.runs import damage_as_error

#: The settings of a run, the ones people change first; others follow.
_FIRST = ("records", "prompts", "llm", "texts", "nli", "embedder", "token_encoder")

#: How records are cut into pieces of work says nothing about the numbers.
_LEFT_OUT = frozenset(("chunk_records",))


class SettingDifference(NamedTuple):
    """A setting by its name in run.toml (without `additive.`) or in a signature; None: not set."""

    name: str
    a: str | None
    b: str | None


class DataDifference(NamedTuple):
    """A column of the records, and in how many of the shared records its value differs.

    `n_differ` is None where only one run has the column, or its types cannot be compared; `why`
    says which.
    """

    column: str
    n_differ: int | None
    why: str | None = None


def setting_differences(a: Source, b: Source) -> list[SettingDifference]:
    """By run.toml where both have one, and by what the signatures say beyond it."""
    found: list[SettingDifference] = []
    if a.settings and b.settings:
        found += _differing(_flat(a.settings), _flat(b.settings))
        found.sort(key=lambda difference: _rank(difference.name))
        beyond: Sequence[str] = ("claimscore", "version")
    else:
        beyond = ()
    shared = [metric for metric in a.metrics if metric in b.metrics]
    parts = ((_parts(a.metrics[metric]), _parts(b.metrics[metric])) for metric in shared)
    for metric, (of_a, of_b) in zip(shared, parts, strict=True):
        for difference in _differing(of_a, of_b):
            name = difference.name
            if beyond and name not in beyond:
                continue
            called = f"{metric}: version" if name == "version" else name
            renamed = SettingDifference(called, difference.a, difference.b)
            if renamed not in found:
                found.append(renamed)
    return found


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[SettingDifference]:
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) != b.get(name):
            yield SettingDifference(name, a.get(name), b.get(name))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            inner = "" if name == "additive" else f"{prefix}{name}."
            flat.update(_flat(value, inner))
        else:
            flat[prefix + name] = _shown(value)
    return flat


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _rank(name: str) -> int:
    first = name.partition(".")[0]
    return _FIRST.index(first) if first in _FIRST else len(_FIRST)


def _parts(signatures: Iterable[str]) -> dict[str, str]:
    """The parts `key:value` of signatures; `version` is the one of the metric itself."""
    found: dict[str, dict[str, None]] = {}
    for signature in signatures:
        _, *parts = signature.split("|")
        for place, part in enumerate(parts):
            key, colon, value = part.partition(":")
            if colon:
                found.setdefault(key, {})[value] = None
            elif place == 0:
                found.setdefault("version", {})[part] = None
    return {key: " or ".join(values) for key, values in found.items()}


def data_differences(a: Source, b: Source, ids: pl.Series) -> list[DataDifference]:
    """Columns of the records whose values differ in some of the shared ids."""
    of_a, of_b = a.table("records"), b.table("records")
    if of_a is None or of_b is None:
        return []
    with damage_as_error(b.path):
        schema_a, schema_b = of_a.collect_schema(), of_b.collect_schema()
        columns = [name for name in (*schema_a, *schema_b) if name != "id"]
        alone = [
            DataDifference(name, None, f"only in {(a if name in schema_a else b).label}")
            for name in dict.fromkeys(columns)
            if (name in schema_a) != (name in schema_b)
        ]
        both = [name for name in schema_a if name != "id" and name in schema_b]
        typed = [name for name in both if schema_a[name] == schema_b[name]]
        pairs = [(f"\0{place}", name) for place, name in enumerate(typed)]
        renamed = {new: pl.col(name) for new, name in pairs}
        wanted = pl.col("id").is_in(ids.implode())
        counts = (
            of_a.filter(wanted)
            .select("id", *typed)
            .join(of_b.filter(wanted).select("id", **renamed), on="id")
            .select(pl.col(name).ne_missing(pl.col(new)).sum() for new, name in pairs)
            .collect()
        )
    found = [DataDifference(name, counts[name].item()) for name in typed if counts[name].item()]
    found += [DataDifference(name, None, "another type") for name in both if name not in typed]
    return found + alone
