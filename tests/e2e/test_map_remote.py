"""`claimscore map` from and to an object store."""

import io
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

import claimscore
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.map.map_files import map_status
from claimscore.runs.remote import Objects
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, completion
from tests.support.object_store import put

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


async def talkative(request: Request) -> Completion:
    """Refuses nothing."""
    return completion(request.messages[-1].content)


def _as(ending: str) -> bytes:
    buffer = io.BytesIO()
    (ROWS.write_parquet if ending == "parquet" else ROWS.write_ndjson)(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_the_object_is_the_file_that_a_disk_would_have(
    ending: str, s3: str, prompt: Path, tmp_path: Path
) -> None:
    put(f"{s3}/in/rows.{ending}", _as(ending))
    (tmp_path / f"rows.{ending}").write_bytes(_as(ending))
    out = f"{s3}/out/answers.parquet"
    here = mapped(prompt, tmp_path / f"rows.{ending}", tmp_path / "answers.parquet")
    there = mapped(prompt, f"{s3}/in/rows.{ending}", out)
    folder = Objects(f"{s3}/out")
    assert sorted(folder.names()) == ["answers.failures.parquet", "answers.parquet"]
    for name in folder.names():
        assert folder.get(name) == (tmp_path / name).read_bytes()
    assert there.summary["out"] == out == there.path
    assert there.frame().collect().equals(here.frame().collect())
    assert there.failures().collect().equals(here.failures().collect())
    assert (map_status(out) or {})["complete"]
    again = mapped(prompt, f"{s3}/in/rows.{ending}", out, talkative, retry_failed=True)
    assert again.failed_rows == 0
    assert folder.names() == ["answers.parquet"]


def test_a_stop_leaves_the_parts_beside_the_file(
    s3: str, prompt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = f"{s3}/answers.parquet", 0

    async def until_15(request: Request) -> Completion:
        nonlocal asked
        asked += 1
        if asked > 15:
            while not (map_status(out) or {})["rows"]["done"]:
                await anyio.sleep(0.01)
            raise ConfigError("enough")
        return await talkative(request)

    with pytest.raises(ConfigError, match="enough"):
        mapped(prompt, ROWS, out, until_15)
    assert "answers.parquet" not in Objects(s3).names()
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "empty"))
    state = map_status(out) or {}
    assert not state["complete"]
    assert str(tmp_path / "elsewhere") in state["folder"]
    done = mapped(prompt, ROWS, out, talkative)
    assert done.rows == 30
    assert done.summary["requests"] == 15, "the answers of the first machine came along"
    assert done.summary["spent_in_all"]["requests"] > 30
    assert Objects(s3).names() == ["answers.parquet"]


def test_an_object_of_others_is_not_replaced(s3: str, prompt: Path) -> None:
    put(f"{s3}/theirs.parquet", _as("parquet"))
    with pytest.raises(ConfigError, match=f"^{s3}/theirs.parquet is there already"):
        mapped(prompt, ROWS, f"{s3}/theirs.parquet")
    assert Objects(s3).get("theirs.parquet") == _as("parquet")
    with pytest.raises(ConfigError, match="no such kind of address"):
        mapped(prompt, ROWS, "https://host/x.parquet")
