"""The files that a map ends with: what was made of the rows, and how it was made.

The settings stand in the file itself, so it knows what it is wherever it is moved, and the
bytes depend on nothing else but the rows.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import polars as pl

from claimscore.atomic import atomic_path
from claimscore.errors import ConfigError
from claimscore.pipeline.mapping.questions import ERROR_COLUMN
from claimscore.rundir import polars_errors as polars_errors
from claimscore.rundir.settings import merge
from claimscore.storage import Folder
from claimscore.types import JSON

#: Where the settings stand in the Parquet metadata.
METADATA_KEY = "claimscore.map"

ROW_GROUP = 10_000

#: A Parquet file ends with the length of its footer in four bytes, and these four.
_MAGIC, _TAIL_BYTES = b"PAR1", 8

#: What users call the settings that can differ.
CALLED = {
    "records.digest": "the content of INPUT",
    "records.count": "the rows of INPUT",
    "prompt.name": "the name in --prompt",
    "prompt.digest": "--prompt",
    "llm.provider": "--llm",
    "llm.model": "--llm",
    "llm.namespace": "--base-url",
}


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a finished file says of itself."""

    path: Path
    settings: JSON
    rows: int
    failed: Mapping[str, int]
    columns: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None where there is no file; `ConfigError` where it is somebody else's."""
        if not path.exists():
            return None
        with polars_errors(path):
            metadata = pl.read_parquet_metadata(path)
        try:
            return cls._of(path, metadata)
        except (KeyError, ValueError, TypeError):
            raise ConfigError(
                f"{path} is there already and was not written by `claimscore map`; name another "
                "--out, or move it away"
            ) from None

    @classmethod
    def of_object(cls, folder: Folder, key: str) -> Self:
        """What a file in an object store says; only its end is got.

        `FileNotFoundError` where there is none, `ConfigError` where it is somebody else's.
        """
        address = str(folder.address(key))
        with folder.open(key) as stream:
            footer = _footer(stream)
        try:
            return cls._of(Path(address), pl.read_parquet_metadata(io.BytesIO(footer)))
        except (KeyError, ValueError, TypeError, pl.exceptions.PolarsError):
            raise ConfigError(f"{address} was not written by `claimscore map`") from None

    @classmethod
    def _of(cls, path: Path, metadata: Mapping[str, str]) -> Self:
        said = json.loads(metadata[METADATA_KEY])
        columns = tuple(said["columns"])
        return cls(path, said["settings"], said["rows"], said["failed"], columns)

    def schema(self) -> dict[str, pl.DataType]:
        """The columns that came from the input."""
        found = pl.scan_parquet(self.path, glob=False).collect_schema()
        return {name: found[name] for name in self.columns}

    def failed_rows(self) -> Iterator[pl.DataFrame]:
        """The input's columns of the rows with an error, in pieces."""
        rows = pl.scan_parquet(self.path, glob=False).select(*self.columns, ERROR_COLUMN)
        failed = rows.filter(pl.col(ERROR_COLUMN).is_not_null()).drop(ERROR_COLUMN)
        with polars_errors(self.path):
            yield from failed.collect_batches(chunk_size=ROW_GROUP)

    def failure_examples(self) -> dict[str, str]:
        """The first message of each kind of failure; empty where the file of them is gone."""
        path = failures_path(self.path)
        if not (self.failed and path.exists()):
            return {}
        with polars_errors(path):
            rows = pl.scan_parquet(path, glob=False).group_by("kind", maintain_order=True)
            return dict(rows.agg(pl.col("message").first()).collect().iter_rows())

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """`ConfigError` with the difference where the file was made with other settings."""
        differences = merge(self.settings, settings).differences
        if differences:
            shown = "; ".join(as_called(difference) for difference in differences)
            raise ConfigError(
                f"{self.path} was made with other settings: {shown}; name another --out, or go "
                "back to the old settings"
            )


def _footer(stream: BinaryIO) -> bytes:
    """The end of a Parquet file, as a file with nothing before it; not one where it is none."""
    end = max(stream.seek(0, io.SEEK_END) - _TAIL_BYTES, 0)
    stream.seek(end)
    tail = stream.read()
    stream.seek(max(end - int.from_bytes(tail[:4], "little"), 0))
    return _MAGIC + stream.read()


def as_called(difference: str) -> str:
    """A difference by the names that users know."""
    name, colon, rest = difference.partition(":")
    return CALLED.get(name, name) + colon + rest


def failures_path(out: Path) -> Path:
    """FILE.failures.parquet beside FILE.parquet."""
    return out.with_name(f"{out.stem}.failures.parquet")


def write_result(rows: pl.LazyFrame, path: Path, said: Mapping[str, Any]) -> None:
    """Write rows and what is said of them, by a rename at the end; never all of it in memory."""
    metadata = {METADATA_KEY: json.dumps(said, sort_keys=True)}
    with atomic_path(path) as temporary, polars_errors(path):
        rows.sink_parquet(
            temporary,
            compression="zstd",
            row_group_size=ROW_GROUP,
            maintain_order=True,
            metadata=metadata,
        )
