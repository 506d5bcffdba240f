"""What one map is asked for, and what it says when it has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.prompts import Prompt, Spec, load_prompt_file
from claimscore.storage import is_remote
from claimscore.types import JSON


@dataclasses.dataclass(frozen=True, eq=False)
class MapConfig:
    """Everything that one `claimscore map` was asked for.

    `input` is a file, a glob, an address, "-" (JSONL on standard input) or a polars frame; `out`
    a file, or its address in an object store; `prompt` a
    TOML file, a `Prompt`, or the name of one in `prompts_dir` or ours (`tone`, `tone=v2`). Rows
    are kept in groups of `chunk_rows`; the result's bytes depend on it.
    """

    input: str | Path | pl.DataFrame = dataclasses.field(repr=False)
    prompt: str | Path | Prompt
    out: str | Path
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    cache_dir: Path | None = None
    retry_failed: bool = False
    chunk_rows: int = 1_000
    prompts_dir: Path | None = None

    def __post_init__(self) -> None:
        if not str(self.out).endswith(".parquet"):
            raise ConfigError(f"--out {self.out}: the file is Parquet; let it end in .parquet")
        if self.chunk_rows < 1:
            raise ConfigError(f"chunk_rows must be at least 1, not {self.chunk_rows}")

    @property
    def is_remote(self) -> bool:
        """Whether the result goes to an object store."""
        return is_remote(self.out)

    @property
    def path(self) -> Path:
        """The file to write, on this machine."""
        return Path(self.out)

    def load_prompt(self) -> Prompt:
        """The prompt, from its file where it is one."""
        if isinstance(self.prompt, Prompt):
            return self.prompt
        name = str(self.prompt)
        if isinstance(self.prompt, Path) or name.endswith(".toml") or Path(name).is_file():
            return load_prompt_file(Path(name), self.prompts_dir)
        return Spec.parse(name).load(self.prompts_dir)


@dataclasses.dataclass(frozen=True)
class MapResult:
    """A finished file: how many rows it has, and how many failed, by kind."""

    path: Path | str
    rows: int
    failed: Mapping[str, int]
    summary: JSON

    @property
    def failed_rows(self) -> int:
        return sum(self.failed.values())

    @property
    def answered_rows(self) -> int:
        return self.rows - self.failed_rows

    def frame(self) -> pl.LazyFrame:
        """The rows: the input's columns, the answers, `request_key` and `error`."""
        return pl.scan_parquet(self.path, glob=False)

    def failures(self) -> pl.LazyFrame:
        """The rows without an answer: row number, kind, message, attempts, key, raw answer."""
        if not self.failed:
            return NO_FAILURES.lazy()
        return pl.scan_parquet(self.summary["failures"], glob=False)


#: The failures file of a map in which nothing failed.
NO_FAILURES = pl.DataFrame(
    schema={
        "row": pl.Int64,
        "kind": pl.String,
        "message": pl.String,
        "attempts": pl.Int32,
        "request_key": pl.String,
        "raw": pl.String,
    }
)
