"""`claimscore evaluate claims`: a system's claims beside those that people made of the same texts.

Two claims match where the F1 of their content words is at least 0.6. Content words are lower-case
runs of letters and digits, stop words left out, stemmed by Porter; repeated words count.

Recall is the share of the human claims that some claim of the same record matches, precision the
share of the system's claims that match some human one. One-to-one F1 uses each claim once, in the
assignment with the most matches. All are micro averages over the records; the intervals come from
resampling documents. Matching by words rewards fragments: read it beside the claims themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from claimscore.errors import InputError
from claimscore.evaluation.result import (
    EvaluationResult,
    Section,
    interval_columns,
    percent_cell,
    percent_mark,
    with_interval,
)
from claimscore.option import argument, check_least, option
from claimscore.records.columns import kind
from claimscore.records.files import find_files
from claimscore.records.readers import Record, place, read
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.stats.bootstrap import ratio, resamples
from claimscore.tables import counted
from claimscore.text import content_words, split_sentences

#: F1 of the content words from which on two claims match.
MATCHING_F1 = 0.6

#: Measure -> the counts of a record that it divides. The first two of `f1` are halves of a sum.
MEASURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "claims_a_sentence": ("claims", ("sentences",)),
    "recall": ("recalled", ("units",)),
    "precision": ("precise", ("claims",)),
    "f1": ("assigned", ("claims", "units")),
}

SYSTEMS: dict[str, pl.DataType] = {
    "system": pl.String(),
    **dict.fromkeys(("n_records", "n_sentences", "n_claims", "n_units"), pl.Int64()),
    **interval_columns(*MEASURES),
}
CLAIMS: dict[str, pl.DataType] = {
    **dict.fromkeys(("system", "id", "claim"), pl.String()),
    "best_f1": pl.Float64(),
    "best_human_claim": pl.String(),
}

#: Baselines: name -> where a sentence is cut, nowhere first.
BASELINES: dict[str, re.Pattern[str] | None] = {
    "whole sentence": None,
    'cut at , ; "and"': re.compile(r"[,;]|\band\b"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimsConfig:
    """The human claims, in the columns `summary` and `claims`, then the systems. Documents are
    resampled, by the column `case`; without it each record is one."""

    tables: tuple[str, ...] = argument(
        help="Table of texts with their human claims; then runs, or tables of id and claims."
    )
    samples: int = option(1000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        check_least(self, samples=1, seed=0)


class HumanRecord(NamedTuple):
    """A text, cut into sentences, and the claims that people made of it."""

    id: str
    case: str
    sentences: list[str]
    units: list[str]


def evaluate_claims(config: ClaimsConfig) -> EvaluationResult:
    """Measure every system, and two baselines that cut sentences, on the same records.

    `tables` of the result: `systems` has a row a system (`SYSTEMS`, shares from 0 to 1), `claims`
    one a claim (`CLAIMS`). Only records that people made claims of count. `InputError` where a
    table is not of this form, a record of it is twice there, or a system lacks a record.
    """
    human, *paths = config.tables
    records = list(_human_records(human))
    if not records:
        raise InputError(f"{human}: no record has human claims in column claims")
    systems: dict[str, Mapping[str, Sequence[str]]] = {}
    for path in paths:
        claims = _claims_of(path)
        missing = next((record.id for record in records if record.id not in claims), None)
        if missing is not None:
            raise InputError(f"{path}: there are no claims of record {missing} of {human}")
        systems[_name(path, systems)] = claims
    for name, cut in BASELINES.items():
        systems[name] = {record.id: _cut(record, cut) for record in records}
    cases = list(dict.fromkeys(record.case for record in records))
    numbers = {case: number for number, case in enumerate(cases)}
    weights = np.concatenate(list(resamples(len(cases), config.samples, config.seed)))
    rows, claims_rows = [], []
    for name, of_records in systems.items():
        counts, best = _counted(records, of_records)
        claims_rows += [(name, *row) for row in best]
        rows.append(_row(name, counts, [numbers[record.case] for record in records], weights))
    measured = pl.DataFrame(rows, schema=SYSTEMS)
    return EvaluationResult(
        name="claims",
        title="Claims beside human ones",
        config=config,
        tables={
            "systems": measured,
            "claims": pl.DataFrame(claims_rows, schema=CLAIMS, orient="row"),
        },
        facts={"matching_f1": MATCHING_F1, "cases": len(cases)},
        sections=[_section(measured, len(cases), config.samples)],
    )


def _section(systems: pl.DataFrame, n_cases: int, samples: int) -> Section:
    rows = systems.rows(named=True)
    people = rows[0]
    f1 = {row["system"]: row["f1"] for row in rows}
    return Section(
        "Matched by content words",
        ("system", "claims a sentence", "recall, %", "precision, %", "one-to-one F1, %"),
        [
            (
                row["system"],
                f"{row['claims_a_sentence']:.2f}",
                *(percent_cell(row, name) for name in ("recall", "precision", "f1")),
            )
            for row in rows
        ],
        (
            f"{people['n_units']:,} human claims of {people['n_sentences']:,} sentences "
            f"({people['n_units'] / people['n_sentences']:.2f} a sentence)",
            f"match: F1 of the stemmed content words of at least {MATCHING_F1}; 95 % bootstrap "
            f"intervals over {n_cases:,} documents ({samples:,} samples)",
        ),
        {"one-to-one F1, %": [percent_mark(row["system"], row, "f1") for row in rows]},
        line=100 * (f1["whole sentence"] or 0.0),
    )


def _cut(record: HumanRecord, pattern: re.Pattern[str] | None) -> list[str]:
    if pattern is None:
        return record.sentences
    parts = (part.strip() for sentence in record.sentences for part in pattern.split(sentence))
    return [part for part in parts if part]


def _name(path: str, taken: Mapping[str, object]) -> str:
    """The last part of the path; all of it where two systems share that."""
    short = Path(path.rstrip("/")).stem
    return path if short in taken or short in BASELINES else short


# Reading


def _human_records(path: str) -> Iterator[HumanRecord]:
    for name, (where, record, units) in _claims_by_record(path).items():
        if not units:
            continue
        text = record.get("summary")
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where}: column summary holds no text")
        case = record.get("case")
        yield HumanRecord(name, name if case is None else str(case), split_sentences(text), units)


def _claims_by_record(path: str) -> dict[str, tuple[str, Record, list[str]]]:
    """By id, else by place: file and line of each row of a table, the row, and its claims."""
    rows: dict[str, tuple[str, Record, list[str]]] = {}
    for file in find_files(path):
        for line, record in read(file):
            where, name = place(file, line), str(record.get("id", len(rows)))
            if name in rows:
                raise InputError(f"{where}: record {name} is there twice")
            rows[name] = where, record, _claims_in(record, where)
    if not rows:
        raise InputError(f"{path}: there are no records in it")
    return rows


def _claims_in(record: Record, where: str) -> list[str]:
    if "claims" not in record:
        raise InputError(f"{where}: no column claims; there are: {', '.join(record) or 'none'}")
    value = record["claims"] or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where}: column claims must be a list of texts, not {kind(value)}")
    return [item for item in value if item.strip()]


def _claims_of(path: str) -> dict[str, list[str]]:
    """Claims by record of a run directory or of a table."""
    if not RunDirectory.is_at(path):
        return {name: claims for name, (_, _, claims) in _claims_by_record(path).items()}
    directory = RunDirectory.reader(path)
    with damage_as_error(path):
        steps = (step.split("-") for step in directory.manifest.all_steps())
        if not any(work == "decompose" and "summary" in sides for work, *sides in steps):
            raise InputError(
                f"{path}: the run has no claims of summaries; `claimscore run --tasks decompose` "
                "makes them"
            )
        ids = directory.scan("records").select("id").collect()["id"]
        claims: dict[str, list[str]] = {name: [] for name in ids}
        rows = counted(directory.scan("claims")).filter(pl.col("side") == "summary")
        for name, claim in rows.select("id", "text").collect().iter_rows():
            claims[name].append(claim)
    return claims


# Matching


#: A text is compared with every claim of its record.
_content_words = functools.lru_cache(maxsize=200_000)(content_words)


def word_f1(a: str, b: str) -> float:
    """F1 of the content words of two texts, 0 where they share none."""
    first, second = _content_words(a), _content_words(b)
    shared = (first & second).total()
    return 2 * shared / (first.total() + second.total()) if shared else 0.0


def matched(matches: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Of matches ``[unit, claim]``: units and claims with one, and pairs that use each once."""
    if not matches.size:
        return 0, 0, 0
    pairs = matches[linear_sum_assignment(matches, maximize=True)].sum()
    return int(matches.any(axis=1).sum()), int(matches.any(axis=0).sum()), int(pairs)


def _counted(
    records: Sequence[HumanRecord], claims_of: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[int]], list[tuple[str, str, float, str | None]]]:
    """The counts of `MEASURES`, record by record, and each claim with its best human one."""
    counts: dict[str, list[int]] = {}
    best: list[tuple[str, str, float, str | None]] = []
    for record in records:
        claims = claims_of[record.id]
        shape = (len(record.units), len(claims))
        f1 = np.array([[word_f1(u, c) for c in claims] for u in record.units]).reshape(shape)
        for number, claim in enumerate(claims):
            unit = int(f1[:, number].argmax())
            value = float(f1[unit, number])
            best.append((record.id, claim, value, record.units[unit] if value else None))
        recalled, precise, assigned = matched(f1 >= MATCHING_F1)
        of_record = {
            "recalled": recalled,
            "precise": precise,
            "assigned": assigned,
            "claims": len(claims),
            "units": len(record.units),
            "sentences": len(record.sentences),
        }
        for name, count in of_record.items():
            counts.setdefault(name, []).append(count)
    return counts, best


def _row(
    name: str, counts: Mapping[str, list[int]], cases: Sequence[int], weights: NDArray[np.float64]
) -> dict[str, object]:
    """A row of `SYSTEMS`: each measure with the interval over resampled documents."""
    sums = {
        count: np.bincount(cases, values, minlength=weights.shape[1])
        for count, values in counts.items()
    }
    row: dict[str, object] = {
        "system": name,
        **{f"n_{key}": sum(counts[key]) for key in ("sentences", "claims", "units")},
        "n_records": len(cases),
    }
    for measure, (part, wholes) in MEASURES.items():
        top = len(wholes) * sums[part]
        under = np.sum([sums[whole] for whole in wholes], axis=0)
        value = float(ratio(top.sum(), under.sum()))
        row |= with_interval(measure, value, ratio(weights @ top, weights @ under))
    return row
