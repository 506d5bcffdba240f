"""The five comparisons of the CASPR paper, made from records with several annotators.

A record has `id`, `entity_a_summary` (two texts or more, one an annotator) and
`entity_b_summary` (one text or more): what sets A apart, and what sets B apart. The texts of `MADE`
may be there or not; the first annotator's summaries are what they are made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from claimscore.errors import InputError
from claimscore.records.files import find_files
from claimscore.records.readers import place, read

#: Texts that a data set may bring; the engine makes those that a record lacks.
MADE = ("syn_low_contrast", "syn_high_contrast", "paraphrase_a", "paraphrase_b")

_A, _A_OTHER, _B = "entity_a_summary[0]", "entity_a_summary[1]", "entity_b_summary[0]"

#: The two texts of each comparison (CASPR paper, Table 3), least contrast first, paraphrases last.
COMPARISONS: dict[str, tuple[str, str]] = {
    "syn_low": (_A, "syn_low_contrast"),
    "ref_similar": (_A, _A_OTHER),
    "ref_contrastive": (_A, _B),
    "syn_high": (_A, "syn_high_contrast"),
    "syn_contrast": ("paraphrase_a", "paraphrase_b"),
}

#: What each made text is made from.
MADE_FROM = {
    "syn_low_contrast": _A,
    "syn_high_contrast": _A,
    "paraphrase_a": _A,
    "paraphrase_b": _B,
}


class Annotated(NamedTuple):
    """A pair of entities: the texts it has, by name."""

    id: str
    texts: Mapping[str, str]

    @property
    def lacking(self) -> tuple[str, ...]:
        """The texts of `MADE` that it does not have."""
        return tuple(name for name in MADE if name not in self.texts)


class Pair(NamedTuple):
    """Two texts to compare."""

    comparison: str
    id: str
    summary_a: str
    summary_b: str


class Missing(NamedTuple):
    """A pair that cannot be compared, and why."""

    comparison: str
    id: str
    reason: str


def read_annotated(source: str) -> list[Annotated]:
    """The records of a JSONL or Parquet file; `InputError` for one that cannot be used."""
    records: list[Annotated] = []
    seen: set[str] = set()
    for file in find_files(source):
        for line, record in read(file):
            try:
                found = _annotated(record)
            except ValueError as exc:
                raise InputError(f"{place(file, line)}: {exc}") from None
            if found.id in seen:
                raise InputError(f"{place(file, line)}: the id {found.id!r} is there twice")
            seen.add(found.id)
            records.append(found)
    if len(records) < 2:
        raise InputError(f"{source}: {len(records)} records are too few to compare; give two")
    return records


def _annotated(record: Mapping[str, Any]) -> Annotated:
    name = record.get("id")
    if not isinstance(name, str | int) or name == "":
        raise ValueError("id must be there, a text or an integer")
    a = _texts(record, "entity_a_summary", 2)
    b = _texts(record, "entity_b_summary", 1)
    made = {key: _text(record[key], key) for key in MADE if record.get(key) is not None}
    return Annotated(str(name), {_A: a[0], _A_OTHER: a[1], _B: b[0], **made})


def _texts(record: Mapping[str, Any], column: str, least: int) -> Sequence[str]:
    found = record.get(column)
    if not isinstance(found, list) or len(found) < least:
        count = "two texts, one an annotator" if least == 2 else "one text"
        raise ValueError(f"{column} must be a list of at least {count}")
    return [_text(text, column) for text in found[:least]]


def _text(value: object, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column} must hold texts that are not empty")
    return value


def build_pairs(
    records: Sequence[Annotated],
    made: Mapping[tuple[str, str], str],
    reasons: Mapping[tuple[str, str], str],
) -> Iterator[Pair | Missing]:
    """Comparison by comparison a pair a record; what it lacks is taken from `made`.

    `made` and `reasons` are by record and name of the text: what the engine made, or why not.
    """
    for comparison, names in COMPARISONS.items():
        for record in records:
            known = {name: record.texts.get(name) or made.get((record.id, name)) for name in names}
            summary_a, summary_b = (known[name] for name in names)
            if summary_a and summary_b:
                yield Pair(comparison, record.id, summary_a, summary_b)
            else:
                lacking = next(name for name in names if not known[name])
                yield Missing(comparison, record.id, reasons[record.id, lacking])
