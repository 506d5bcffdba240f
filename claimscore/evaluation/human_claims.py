"""`claimscore evaluate claims`: a system's claims beside those that people made of the same texts.

By words: two claims match where the F1 of their content words is at least 0.6. Content words are
lower-case runs of letters and digits, stop words left out, stemmed by Porter; repeated words count.
By entailment, where it is asked for: two claims match where each entails the other.

Recall is the share of the human claims that some claim of the same record matches, precision the
share of the system's claims that match some human one. One-to-one F1 uses each claim once, in the
assignment with the most matches. All are micro averages over the records; the intervals come from
resampling documents. Matching by words rewards fragments: read it beside the claims themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from claimscore.config import NLI_OPTIONS, EncoderConfig, check_least
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.result import (
    EvaluationResult,
    OnPairs,
    Row,
    Section,
    interval_columns,
    percent_cell,
    percent_mark,
    with_interval,
)
from claimscore.option import argument, nested, option
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.protocols import NLI_LABELS, PairClassifier
from claimscore.records.columns import kind
from claimscore.records.files import find_files
from claimscore.records.readers import Record, place, read
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.stats.bootstrap import ratio, resamples
from claimscore.text import content_words, has_dangling_subject, split_sentences

#: F1 of the content words from which on two claims match.
MATCHING_F1 = 0.6

#: Table of a run -> the task that makes it, and the text of a row.
TABLES: dict[str, tuple[str, pl.Expr]] = {
    "claims": ("decompose", pl.col("text")),
    "facts": ("facts", pl.concat_str("subject", "description", separator=" ")),
}

#: Measure -> the counts of a record that it divides. The first two of `f1` are halves of a sum.
MEASURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "claims_a_sentence": ("claims", ("sentences",)),
    "recall": ("recalled", ("units",)),
    "precision": ("precise", ("claims",)),
    "f1": ("assigned", ("claims", "units")),
    "entailed_recall": ("entailed_recalled", ("units",)),
    "entailed_precision": ("entailed_precise", ("claims",)),
    "entailed_f1": ("entailed_assigned", ("claims", "units")),
    "left_whole": ("whole", ("sentences",)),
    "coverage": ("covered", ("words",)),
    "dangling": ("dangling", ("claims",)),
}
_ENTAILED = "entailed_"

SCHEMA: dict[str, pl.DataType] = {
    "system": pl.String(),
    **dict.fromkeys(("n_records", "n_sentences", "n_claims", "n_units"), pl.Int64()),
    **interval_columns(*MEASURES),
}
CLAIMS_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("system", "id", "claim"), pl.String()),
    "best_f1": pl.Float64(),
    "best_human_claim": pl.String(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimsConfig:
    """The human claims, then the systems; `text`, `claims` and `case` name columns."""

    tables: tuple[str, ...] = argument(
        help="Table of texts with their human claims; then runs, or tables of id and claims."
    )
    encoders: EncoderConfig = nested(EncoderConfig, only=NLI_OPTIONS)
    text: str = option("summary", metavar="COLUMN", panel="Data", help="Column of the texts.")
    claims: str = option(
        "claims", metavar="COLUMN", panel="Data", help="Column of the claims, a list of texts."
    )
    case: str = option(
        "case",
        metavar="COLUMN",
        panel="Data",
        help="Column of the documents, which are resampled; else each record is one.",
    )
    table: str = option(
        "claims",
        choices=tuple(TABLES),
        panel="Data",
        help="Table of the runs: claims, or facts as texts.",
    )
    entailment: bool = option(
        False, panel="Essential", help="Match also by entailment in both directions, by --nli."
    )
    samples: int = option(1000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        check_least(self, samples=1, seed=0)
        if self.table not in TABLES:
            raise ConfigError(f"--table: {self.table!r} is none of {', '.join(TABLES)}")


class HumanRecord(NamedTuple):
    """A text, cut into sentences, and the claims that people made of it."""

    id: str
    case: str
    sentences: list[str]
    units: list[str]


@dataclasses.dataclass(frozen=True)
class ClaimsResult(EvaluationResult):
    """`systems` has a row a system (`SCHEMA`, shares from 0 to 1); `claims` one a claim."""

    name = "claims"
    title = "Claims beside human ones"

    config: ClaimsConfig
    systems: pl.DataFrame
    claims: pl.DataFrame
    n_cases: int
    model: str | None

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"systems": self.systems}

    def files(self) -> dict[str, pl.DataFrame]:
        return {"systems": self.systems, "claims": self.claims}

    def facts(self) -> dict[str, Any]:
        return {"matching_f1": MATCHING_F1, "cases": self.n_cases, "nli": self.model}

    def sections(self) -> Sequence[Section]:
        """Matches by words, by entailment where it was asked for, then the form of the claims."""
        rows = self.systems.rows(named=True)
        first = rows[0]
        people = first["n_units"] / first["n_sentences"]
        found = [
            _matches(rows, "", "Matched by content words", self._notes(people)),
            Section(
                "Form of the claims",
                ("system", "sentences left whole, %", "words covered, %", "pronoun subjects, %"),
                [
                    (
                        row["system"],
                        *(percent_cell(row, m) for m in ("left_whole", "coverage", "dangling")),
                    )
                    for row in rows
                ],
                (
                    "left whole: one claim has all content words of the sentence; covered: content "
                    "words of the text that some claim of the record has",
                ),
            ),
        ]
        if self.model:
            note = f"by {self.model}: each of the two entails the other"
            found.insert(1, _matches(rows, _ENTAILED, "Matched by entailment", (note,)))
        return found

    def _notes(self, people: float) -> tuple[str, ...]:
        row = self.systems.row(0, named=True)
        return (
            f"{row['n_units']:,} human claims of {row['n_sentences']:,} sentences "
            f"({people:.2f} a sentence)",
            f"match: F1 of the stemmed content words of at least {MATCHING_F1}; 95 % bootstrap "
            f"intervals over {self.n_cases:,} documents ({self.config.samples:,} samples)",
        )


def _matches(rows: Sequence[Row], prefix: str, title: str, notes: tuple[str, ...]) -> Section:
    return Section(
        title,
        ("system", "claims a sentence", "recall, %", "precision, %", "one-to-one F1, %"),
        [
            (
                row["system"],
                f"{row['claims_a_sentence']:.2f}",
                *(percent_cell(row, prefix + measure) for measure in ("recall", "precision", "f1")),
            )
            for row in rows
        ],
        notes,
        {"one-to-one F1, %": [percent_mark(row["system"], row, prefix + "f1") for row in rows]},
        line=100 * (rows[-1][prefix + "f1"] or 0.0),
    )


def evaluate_claims(config: ClaimsConfig, on_pairs: OnPairs | None = None) -> ClaimsResult:
    """Measure every system, and three baselines that cut sentences, on the same records.

    Only records that people made claims of count. `InputError` where a table is not of this form,
    a record of it is twice there, or a system lacks a record.
    """
    human, *paths = config.tables
    records = list(_human_records(human, config))
    systems: dict[str, Mapping[str, Sequence[str]]] = {}
    for path in paths:
        claims = _claims_of(path, config)
        missing = next((record.id for record in records if record.id not in claims), None)
        if missing is not None:
            raise InputError(f"{path}: there are no claims of record {missing} of {human}")
        systems[_name(path, systems)] = claims
    for name, cut in BASELINES.items():
        systems[name] = {record.id: _cut(record, cut) for record in records}
    classifier = load_pair_classifier(config.encoders) if config.entailment else None
    entailed = _entailed(classifier, records, systems, on_pairs) if classifier else None
    cases = list(dict.fromkeys(record.case for record in records))
    weights = np.concatenate(list(resamples(len(cases), config.samples, config.seed)))
    rows, claims_rows = [], []
    for name, of_records in systems.items():
        counts, best = _counted(records, of_records, entailed)
        claims_rows += [(name, *row) for row in best]
        rows.append(_row(name, counts, [cases.index(r.case) for r in records], weights))
    return ClaimsResult(
        config,
        pl.DataFrame(rows, schema=SCHEMA),
        pl.DataFrame(claims_rows, schema=CLAIMS_SCHEMA, orient="row"),
        len(cases),
        classifier.info.model if classifier else None,
    )


#: Baselines: name -> where a sentence is cut, nowhere first.
BASELINES: dict[str, re.Pattern[str] | None] = {
    "whole sentence": None,
    "cut at , ;": re.compile(r"[,;]"),
    'cut at , ; "and"': re.compile(r"[,;]|\band\b"),
}


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


def _human_records(path: str, config: ClaimsConfig) -> Iterator[HumanRecord]:
    for name, (where, record, units) in _claims_by_record(path, config).items():
        if not units:
            continue
        text = record.get(config.text)
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where}: column {config.text} holds no text (--text names another)")
        case = record.get(config.case)
        yield HumanRecord(name, name if case is None else str(case), split_sentences(text), units)


def _claims_by_record(path: str, config: ClaimsConfig) -> dict[str, tuple[str, Record, list[str]]]:
    """By id, else by place: file and line of each row of a table, the row, and its claims."""
    found: dict[str, tuple[str, Record, list[str]]] = {}
    for file in find_files(path):
        for line, record in read(file):
            where, name = place(file, line), str(record.get("id", len(found)))
            if name in found:
                raise InputError(f"{where}: record {name} is there twice")
            found[name] = where, record, _texts(record, config.claims, where)
    if not found:
        raise InputError(f"{path}: there are no records in it")
    return found


def _texts(record: Record, column: str, where: str) -> list[str]:
    if column not in record:
        known = ", ".join(record) or "none"
        raise InputError(
            f"{where}: no column {column}; there are: {known} (--claims names another)"
        )
    value = record[column]
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where}: column {column} must be a list of texts, not {kind(value)}")
    return [item for item in value if item.strip()]


def _claims_of(path: str, config: ClaimsConfig) -> dict[str, list[str]]:
    """Claims by record of a run directory or of a table."""
    if not RunDirectory.is_at(path):
        return {name: claims for name, (_, _, claims) in _claims_by_record(path, config).items()}
    directory = RunDirectory.reader(path)
    with damage_as_error(path):
        found: dict[str, list[str]] = {
            name: [] for name in directory.scan("records").select("id").collect()["id"]
        }
        task, text = TABLES[config.table]
        if f"{task}-summary" not in directory.manifest.all_steps():
            raise InputError(
                f"{path}: the run has no {config.table}; `claimscore run --tasks {task}` makes them"
            )
        rows = directory.scan(config.table).filter(pl.col("side") == "summary")
        for name, claim in rows.select("id", text.alias("claim")).collect().iter_rows():
            found[name].append(claim)
    return found


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


_Entailed = Callable[[str, str], bool]


def _entailed(
    classifier: PairClassifier,
    records: Sequence[HumanRecord],
    systems: Mapping[str, Mapping[str, Sequence[str]]],
    tell: OnPairs | None,
) -> _Entailed:
    """Whether the first text entails the second, for all pairs that are compared."""
    wanted = {
        pair: None
        for record in records
        for claims in systems.values()
        for claim in claims[record.id]
        for unit in record.units
        for pair in ((claim, unit), (unit, claim))
    }
    pairs = list(wanted)

    def on_batch(done: int) -> None:
        if tell is not None:
            tell(done, len(pairs))

    labels = classifier.classify(pairs, on_batch=on_batch).argmax(axis=1)
    found = dict(zip(pairs, (labels == NLI_LABELS.index("entailment")).tolist(), strict=True))
    return lambda premise, hypothesis: found[premise, hypothesis]


def _counted(
    records: Sequence[HumanRecord],
    claims_of: Mapping[str, Sequence[str]],
    entailed: _Entailed | None,
) -> tuple[dict[str, list[int]], list[tuple[str, str, float, str | None]]]:
    """The counts of `MEASURES`, record by record, and each claim with its best human one."""
    counts: dict[str, list[int]] = {}
    best: list[tuple[str, str, float, str | None]] = []
    for record in records:
        claims = claims_of[record.id]
        shape = (len(record.units), len(claims))
        f1 = np.array([[word_f1(u, c) for c in claims] for u in record.units]).reshape(shape)
        found = dict(
            zip(("recalled", "precise", "assigned"), matched(f1 >= MATCHING_F1), strict=True)
        )
        if entailed is not None:
            both = [[entailed(c, u) and entailed(u, c) for c in claims] for u in record.units]
            numbers = matched(np.array(both, dtype=bool).reshape(shape))
            names = ("entailed_recalled", "entailed_precise", "entailed_assigned")
            found |= dict(zip(names, numbers, strict=True))
        for number, claim in enumerate(claims):
            unit = int(f1[:, number].argmax())
            value = float(f1[unit, number])
            best.append((record.id, claim, value, record.units[unit] if value else None))
        words = _content_words(" ".join(record.sentences))
        has = Counter[str]()
        for claim in claims:
            has |= _content_words(claim)
        found |= {
            "claims": len(claims),
            "units": len(record.units),
            "sentences": len(record.sentences),
            "whole": sum(
                any(_content_words(sentence) <= _content_words(claim) for claim in claims)
                for sentence in record.sentences
            ),
            "words": len(words),
            "covered": len(words.keys() & has.keys()),
            "dangling": sum(has_dangling_subject(claim) for claim in claims),
        }
        for name, count in found.items():
            counts.setdefault(name, []).append(count)
    return counts, best


def _row(
    name: str, counts: Mapping[str, list[int]], cases: Sequence[int], weights: NDArray[np.float64]
) -> dict[str, object]:
    """A row of `SCHEMA`: each measure with the interval over resampled documents."""
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
        if part not in sums:
            continue
        top = len(wholes) * sums[part]
        under = np.sum([sums[whole] for whole in wholes], axis=0)
        value = float(ratio(top.sum(), under.sum()))
        row |= with_interval(measure, value, ratio(weights @ top, weights @ under))
    return row
