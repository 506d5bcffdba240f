"""`claimscore status` of a map: by its file, or by the unfinished work beside it."""

import json
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

import claimscore
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline.map.job import MapProgress, estimate_map
from claimscore.pipeline.map.map_files import METADATA_KEY
from claimscore.types import Completion, Request
from tests.e2e.test_map_stops import PROMPT, Breaks, say
from tests.support.command_line import Command
from tests.support.engine_doubles import FakeProvider

N_ROWS = 10


def run_map(folder: Path, provider: FakeProvider, on_progress: Any = None) -> Path:
    """Ten rows in chunks of three, asked one by one, of which the fifth is refused."""
    llm = claimscore.LLMConfig(max_concurrency=1)
    claimscore.map(config(folder, llm=llm), provider=provider, on_progress=on_progress)
    return folder / "out.parquet"


def config(folder: Path, **options: Any) -> claimscore.MapConfig:
    (folder / "prompt.toml").write_text(PROMPT)
    texts = [f"row {i}" if i != 4 else "bad" for i in range(N_ROWS)]
    return claimscore.MapConfig(
        input=pl.DataFrame({"text": texts}),
        prompt=folder / "prompt.toml",
        out=folder / "out.parquet",
        chunk_rows=3,
        **options,
    )


def test_an_unfinished_map(tmp_path: Path, cli: Command) -> None:
    """Named by the file that is not there yet, or by the folder of its parts."""
    with pytest.raises(StoppedEarly):
        run_map(tmp_path, Breaks(7, StoppedEarly("stopped here")))
    out, parts = tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
    for path in (out, parts):
        found = cli("status", path, "--json").json()
        assert (found["out"], found["complete"], found["running"]) == (str(parts), False, False)
        rows = found["rows"]
        assert 0 < rows["done"] < rows["total"] == rows["done"] + rows["left"] == N_ROWS
        assert found["spent"]["requests"] >= 7
    shown = cli("status", out, "--watch").out
    assert f"{rows['done']} of 10 done" in shown
    assert "not running; the same `claimscore map` goes on" in shown


def test_a_finished_map(tmp_path: Path, cli: Command) -> None:
    out = run_map(tmp_path, FakeProvider(say))
    found = cli("status", out, "--json").json()
    assert found["complete"]
    assert found["rows"] == {"total": 10, "done": 10, "failed": 1, "left": 0}
    assert found["failures"] == [{"stage": "map", "kind": "content", "count": 1}]
    assert cli("status", out).out.splitlines() == [
        f"{out}: complete",
        "rows    10 of 10 done, 1 of them failed",
        "failed  1 x map: content",
        "next    the same command with --retry-failed tries the failed ones again",
    ]


def test_a_map_at_work(tmp_path: Path, cli: Command) -> None:
    seen: list[Any] = []
    looked = anyio.Event()
    note = tmp_path / "out.parquet.parts" / ".state" / "now.json"

    def look(progress: MapProgress) -> None:
        if progress.phase == "running" and note.exists() and not seen:
            seen.append(cli("status", tmp_path / "out.parquet", "--json").json())
            looked.set()

    async def say_when_looked_at(request: Request) -> Completion:
        await looked.wait()
        return await say(request)

    run_map(tmp_path, FakeProvider(say_when_looked_at), look)
    assert (seen[0]["running"], seen[0]["last_call"]["phase"]) == (True, "running")
    assert seen[0]["rows"] == {"total": 10, "done": 0, "failed": 0, "left": 10}


def test_what_is_no_map(tmp_path: Path, cli: Command) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "other.parquet")
    for name, said in (("other", "was not written by `claimscore map`"), ("none", "none.parquet")):
        found = cli("status", tmp_path / f"{name}.parquet")
        assert (found.status, said in found.err, found.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("settings", "rows", "failed") for value in (None, [3], "x")),
        *(("rows", value) for value in (-1, float("nan"), True, {})),
        *(("failed", {"refused": value}) for value in (None, -1, "x", 11)),
        *(("settings", {"seed": value}) for value in (None, float("nan"))),
    ],
    ids=str,
)
def test_metadata_that_no_map_wrote(name: str, value: Any, tmp_path: Path, cli: Command) -> None:
    """One line that names the file, by `status` and by another call of `map`."""
    out = run_map(tmp_path, FakeProvider(say))
    facts = json.loads(pl.read_parquet_metadata(out)[METADATA_KEY]) | {name: value}
    metadata = {METADATA_KEY: json.dumps(facts)}
    pl.read_parquet(out).write_parquet(out, metadata=metadata)
    message = f"{out}: its metadata is not what `claimscore map` wrote; name another --out"
    assert message in cli("status", out).err
    with pytest.raises(ConfigError, match="its metadata is not what"):
        run_map(tmp_path, FakeProvider(say))


def test_what_a_finished_file_would_cost(tmp_path: Path) -> None:
    """Nothing; with --retry-failed its failed rows."""
    run_map(tmp_path, FakeProvider(say))

    def requests(**options: Any) -> int:
        given = config(tmp_path, **options)
        return estimate_map(given, provider=FakeProvider(say)).requests

    assert requests() == 0
    assert requests(retry_failed=True) == 1
