"""`claimscore map` from an object store."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore
from claimscore.errors import RejectedError
from claimscore.storage import open_storage
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, completion

ROWS = pl.DataFrame({"n": range(30), "text": [f"review {n}" for n in range(30)]})


async def say(request: Request) -> Completion:
    """Repeats what stands after "Say"; `review 7` is refused."""
    text = request.messages[-1].content.removeprefix("Say ")
    if text == "review 7":
        raise RejectedError("not nice", "content")
    return completion(text.upper())


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prompt's file; and no waiting for the disk, as there are no power cuts in tests."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    path = tmp_path / "prompt.toml"
    path.write_text('name = "plain"\nversion = "v1"\nuser = "Say $text"\n')
    return path


def mapped(prompt: Path, table: Any, out: Any, say: Any = say, **options: Any) -> Any:
    config = claimscore.MapConfig(input=table, out=out, prompt=prompt, chunk_rows=10, **options)
    return claimscore.map(config, provider=FakeProvider(say))


def _as(ending: str) -> bytes:
    buffer = io.BytesIO()
    (ROWS.write_parquet if ending == "parquet" else ROWS.write_ndjson)(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_object_is_read_as_the_file_that_a_disk_would_have(
    ending: str, s3: str, prompt: Path, tmp_path: Path
) -> None:
    open_storage(s3).write(f"in/rows.{ending}", _as(ending))
    (tmp_path / f"rows.{ending}").write_bytes(_as(ending))
    here = mapped(prompt, tmp_path / f"rows.{ending}", tmp_path / "here.parquet")
    there = mapped(prompt, f"{s3}/in/rows.{ending}", tmp_path / "there.parquet")
    for name in ("{}.parquet", "{}.failures.parquet"):
        here_bytes = (tmp_path / name.format("here")).read_bytes()
        assert (tmp_path / name.format("there")).read_bytes() == here_bytes
    assert there.frame().collect().equals(here.frame().collect())
