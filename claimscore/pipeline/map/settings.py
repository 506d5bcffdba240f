"""What one `claimscore map` was asked for, and which of it determines the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.option import argument, check_least, like, option, take_texts
from claimscore.pipeline.llm.providers.base import Provider, provider_settings
from claimscore.prompts import Prompt, Spec, load_prompt_file
from claimscore.types import JSON

#: A prompt, its file, or its name.
PromptSource = str | Path | Prompt


@dataclasses.dataclass(frozen=True, eq=False)
class MapConfig:
    """Everything that one `claimscore map` was asked for.

    `input` is a file, a glob, an address, "-" (JSONL on standard input), or rows in memory as
    `RunConfig` takes them. `out` is a file, or its address in an object store. `prompt` is a TOML
    file, a `Prompt`, or the name of one in `prompts_dir` or ours (`tone`, `tone=v2`); or several,
    each of which reads the columns of those before it. Rows are asked and kept in chunks of
    `chunk_rows` (None: 1,000, of more than 10,000 rows 5,000; a quarter of it for several prompts);
    the bytes of the result depend on it.
    """

    input: str | Path | Any = argument(
        repr=False, help="Table: JSONL, Parquet or CSV; - is JSONL on standard input."
    )
    prompt: PromptSource | Sequence[PromptSource] = option(
        short="p",
        metavar="FILE|NAME[=VERSION]",
        panel="Essential",
        repeated=True,
        help="Prompt file, or name in --prompts-dir; $NAME in it is a column. May be repeated: a "
        "later one reads earlier answers.",
    )
    out: str | Path = option(
        kind="output",
        short="o",
        panel="Essential",
        help="Parquet file to write, or s3://bucket/a.parquet.",
    )
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    limit: int | None = like(RunConfig, "limit")
    cache_dir: Path | None = like(RunConfig, "cache_dir")
    retry_failed: bool = like(RunConfig, "retry_failed")
    chunk_rows: int | None = None
    prompts_dir: Path | None = like(RunConfig, "prompts_dir")

    def __post_init__(self) -> None:
        take_texts(self)
        if task := next(iter(self.llm.by_task), None):
            raise ConfigError(f"{task}=: a map has one model and no tasks; leave {task}= out")
        if not str(self.out).endswith(".parquet"):
            raise ConfigError(f"--out {self.out}: the file is Parquet; let it end in .parquet")
        check_least(self, chunk_rows=1, limit=1)
        if not self._several:
            raise ConfigError("prompt: name one at least")

    @property
    def _several(self) -> Sequence[PromptSource]:
        return (self.prompt,) if isinstance(self.prompt, PromptSource) else self.prompt

    def rows_of_a_chunk(self, count: int) -> int:
        """The rows of a chunk of an input with so many."""
        rows = 1_000 if count <= 10_000 else 5_000
        return self.chunk_rows or (rows if len(self._several) == 1 else rows // 4)

    def load_prompts(self) -> list[Prompt]:
        """The prompts, from their files where they are some."""
        return [self._load(prompt) for prompt in self._several]

    def _load(self, prompt: PromptSource) -> Prompt:
        if isinstance(prompt, Prompt):
            return prompt
        name = str(prompt)
        if isinstance(prompt, Path) or name.endswith(".toml") or Path(name).is_file():
            return load_prompt_file(Path(name))
        return Spec.parse(name).load(self.prompts_dir)


#: The settings of a file, by digest and count of its rows, and whether the input has `more`.
Settings = Callable[[JSON], JSON]


def map_settings(
    config: MapConfig, prompts: Sequence[Prompt], provider: Provider, records: JSON
) -> JSON:
    """Everything that determines the file; `records` as of `Settings`."""
    return {
        "records": records,
        "chunk_records": config.rows_of_a_chunk(records["count"]),
        "prompt": {
            "name": ", ".join(prompt.name for prompt in prompts),
            "digest": ", ".join(prompt.digest for prompt in prompts),
        },
        "llm": provider_settings(provider),
    }


def wants_more(records: JSON, limit: int | None) -> bool:
    """Whether the input has rows that were left out of these and are wanted now."""
    return bool(records.get("more")) and (limit is None or limit > records["count"])
