"""What one `claimscore map` was asked for, and which of it determines the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.option import argument, like, option, take_texts
from claimscore.pipeline.llm.providers.base import Provider, provider_settings
from claimscore.prompts import Prompt, Spec, load_prompt_file
from claimscore.types import JSON


@dataclasses.dataclass(frozen=True, eq=False)
class MapConfig:
    """Everything that one `claimscore map` was asked for.

    `input` is a file, a glob, an address, "-" (JSONL on standard input), or rows in memory as
    `RunConfig` takes them. `out` is a file, or its address in an object store. `prompt` is a TOML
    file, a `Prompt`, or the name of one in `prompts_dir` or ours (`tone`, `tone=v2`). Rows are
    asked and kept in chunks of `chunk_rows` (None: 1,000, of more than 10,000 rows 5,000); the
    bytes of the result depend on it.
    """

    input: str | Path | Any = argument(
        repr=False, help="Table: JSONL, Parquet or CSV; - is JSONL on standard input."
    )
    prompt: str | Path | Prompt = option(
        short="p",
        metavar="FILE|NAME[=VERSION]",
        panel="Essential",
        help="Prompt file, or name in --prompts-dir; $NAME in it is a column.",
    )
    out: str | Path = option(
        kind="output",
        short="o",
        panel="Essential",
        help="Parquet file to write, or s3://bucket/a.parquet.",
    )
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    cache_dir: Path | None = like(RunConfig, "cache_dir")
    retry_failed: bool = like(RunConfig, "retry_failed")
    take_over: bool = like(RunConfig, "take_over")
    chunk_rows: int | None = None
    prompts_dir: Path | None = like(RunConfig, "prompts_dir")

    def __post_init__(self) -> None:
        take_texts(self)
        if task := next(iter(self.llm.by_task), None):
            raise ConfigError(f"{task}=: a map has one model and no tasks; leave {task}= out")
        if not str(self.out).endswith(".parquet"):
            raise ConfigError(f"--out {self.out}: the file is Parquet; let it end in .parquet")
        if self.chunk_rows is not None and self.chunk_rows < 1:
            raise ConfigError(f"chunk_rows must be at least 1, not {self.chunk_rows}")

    def rows_of_a_chunk(self, count: int) -> int:
        """The rows of a chunk of an input with so many."""
        return self.chunk_rows or (1_000 if count <= 10_000 else 5_000)

    def load_prompt(self) -> Prompt:
        """The prompt, from its file where it is one."""
        if isinstance(self.prompt, Prompt):
            return self.prompt
        name = str(self.prompt)
        if isinstance(self.prompt, Path) or name.endswith(".toml") or Path(name).is_file():
            return load_prompt_file(Path(name))
        return Spec.parse(name).load(self.prompts_dir)


def map_settings(
    config: MapConfig, prompt: Prompt, provider: Provider, digest: str, count: int
) -> JSON:
    """Everything that determines the file, for an input of `count` rows and that digest."""
    return {
        "records": {"digest": digest, "count": count},
        "chunk_records": config.rows_of_a_chunk(count),
        "prompt": {"name": prompt.name, "digest": prompt.digest},
        "llm": provider_settings(provider),
    }
