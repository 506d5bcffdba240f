"""Tables of documents and summaries that a training reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from claimscore.errors import InputError
from claimscore.records.files import find_files
from claimscore.records.readers import place, read


class TextColumns(NamedTuple):
    """The columns of a table of documents and summaries."""

    document: str = "source"
    summary: str = "summary"
    label: str | None = None


def read_rows(
    tables: Sequence[str], needed: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """File and line, and the row, of JSONL, CSV or Parquet files (or globs).

    `InputError` names file and line where a needed column is missing.
    """
    for table in tables:
        for file in find_files(table):
            for line, record in read(file):
                where = place(file, line)
                for column in needed:
                    if column not in record:
                        raise InputError(
                            f"{where}: no column {column}; the row has: {', '.join(record)}; name "
                            "others with --document, --summary or --label"
                        )
                yield where, record
