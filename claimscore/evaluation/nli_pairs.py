"""Labelled sentence pairs of any file, as `claimscore evaluate nli` reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.errors import InputError
from claimscore.pipeline.encoders.protocols import LABEL_NAMES, NLI_LABELS
from claimscore.records.columns import kind
from claimscore.records.files import InputFile, find_files
from claimscore.records.readers import Record, place, read

#: What SNLI has where its annotators did not agree.
NO_LABEL = ("", "-")

PAIRS_SCHEMA: dict[str, pl.DataType] = {
    "set": pl.String(),
    "line": pl.Int64(),
    "premise": pl.String(),
    "hypothesis": pl.String(),
    "label": pl.String(),
    "group": pl.String(),
    "half": pl.String(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """Where a file holds what; `halves` is the column whose values are drawn into halves."""

    premise: str = "premise"
    hypothesis: str = "hypothesis"
    label: str = "label"
    group: str | None = None
    halves: str | None = None


class Pairs(NamedTuple):
    """Rows of `PAIRS_SCHEMA`, and how many were left out because something was missing."""

    rows: pl.DataFrame
    left_out: int


class _MissingError(ValueError):
    """A value is not there, which `drop_missing` forgives."""


def read_nli_pairs(sources: Sequence[str], columns: Columns, *, drop_missing: bool) -> Pairs:
    """The pairs of some files, each file a set that is named by its stem.

    Labels may be spelled as models spell them (`LABEL_NAMES`); the frame has our names.
    `InputError` names file and line where a column is missing, a text is empty or no text, or a
    label is missing or unknown; `drop_missing` leaves out rows whose text or label is missing.
    """
    files = list(dict.fromkeys(file for source in sources for file in find_files(source)))
    rows: list[tuple[object, ...]] = []
    left_out = 0
    for file, name in zip(files, _names(files), strict=True):
        before = len(rows)
        for line, record in read(file):
            try:
                rows.append((name, line, *_pair(record, columns)))
            except _MissingError as exc:
                if not drop_missing:
                    hint = "; --drop-missing leaves such rows out"
                    raise InputError(f"{place(file, line)}: {exc}{hint}") from None
                left_out += 1
            except ValueError as exc:
                raise InputError(f"{place(file, line)}: {exc}") from None
        if len(rows) == before:
            raise InputError(f"{file.name}: there are no labelled pairs in it")
    return Pairs(pl.DataFrame(rows, schema=PAIRS_SCHEMA, orient="row"), left_out)


def _names(files: Sequence[InputFile]) -> Iterator[str]:
    """Stems, or whole names where two files share one."""
    stems = [Path(file.file_name.removesuffix(".gz")).stem for file in files]
    for file, stem in zip(files, stems, strict=True):
        yield stem if stems.count(stem) == 1 else file.name


def _pair(record: Record, columns: Columns) -> tuple[str | None, ...]:
    found: dict[str, str] = {}
    readers: dict[str, Callable[[object], str]] = {
        "premise": _text,
        "hypothesis": _text,
        "label": _label,
    }
    for role, reader in readers.items():
        column = getattr(columns, role)
        if column not in record:
            known = ", ".join(record) or "none"
            raise ValueError(f"no column {column}; there are: {known} (--{role} names another)")
        try:
            found[role] = reader(record[column])
        except _MissingError as exc:
            raise _MissingError(f"column {column} {exc}") from None
        except ValueError as exc:
            raise ValueError(f"column {column} {exc}") from None
    named = [_named(record, column) for column in (columns.group, columns.halves)]
    return (*found.values(), *named)


def _text(value: object) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _MissingError("is empty")
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {kind(value)}")
    return value


def _label(value: object) -> str:
    if value is None or (isinstance(value, str) and value.strip() in NO_LABEL):
        raise _MissingError("has no label")
    if not isinstance(value, str):
        raise ValueError(
            f"holds {kind(value)}, not a name: which number means which label differs between "
            f"data sets; write {', '.join(NLI_LABELS)}"
        )
    label = LABEL_NAMES.get(value.strip().lower())
    if label is None:
        raise ValueError(f"holds the unknown label {value!r}; known: {', '.join(NLI_LABELS)}")
    return label


def _named(record: Record, column: str | None) -> str | None:
    """The value of a column that groups rows, as text."""
    if column is None:
        return None
    if column not in record:
        raise ValueError(f"no column {column}; there are: {', '.join(record)}")
    value = record[column]
    if isinstance(value, list | dict):
        raise ValueError(f"column {column} must hold a text or a number, not {kind(value)}")
    return "none" if value is None else str(value)
