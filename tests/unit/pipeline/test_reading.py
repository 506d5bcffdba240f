"""A run that is taken up again reads its input only where it must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run
from claimscore.records import dataset as dataset_module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    record = {"summary_a": "It is warm.", "summary_b": "It is old.", "summary": "It is."}
    lines = [json.dumps({"id": f"r{i}", **record}) for i in range(5)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, each time."""
    seen: list[str] = []
    read = dataset_module.read

    def counted(file: Any) -> Any:
        seen.append(file.name)
        return read(file)

    monkeypatch.setattr(dataset_module, "read", counted)
    return seen


def config(source: Path, *metrics: str) -> RunConfig:
    out = source.parent
    return RunConfig(
        input=str(source),
        out=out / "run",
        cache_dir=out / "cache",
        metrics=metrics or ("ds",),
        chunk_records=2,
    )


def test_the_input_is_read_once_in_two_passes(source: Path, reads: list[str]) -> None:
    """Validated, copied, and not looked into by a later call."""
    run(config(source))
    assert len(reads) == 2
    first = (source.parent / "run" / "scores.parquet").read_bytes()
    run(config(source))
    assert len(reads) == 2
    assert (source.parent / "run" / "scores.parquet").read_bytes() == first


def test_a_metric_more_is_checked(source: Path, reads: list[str]) -> None:
    """It may need a column that nobody asked for."""
    run(config(source))
    with pytest.raises(ConfigError, match="summary_common"):
        run(config(source, "ds3"))
    assert len(reads) > 2


def test_missing_parts_are_written(source: Path, reads: list[str]) -> None:
    """Of a run that was killed while it copied."""
    run(config(source))
    manifest = source.parent / "run" / ".state" / "manifest.log"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if '"step":"records"' not in line))
    run(config(source))
    assert len(reads) == 4


def test_other_records_are_refused(source: Path) -> None:
    """However well the old ones are known."""
    run(config(source))
    source.write_text(source.read_text().replace("warm", "cold"))
    with pytest.raises(ConfigError, match="made from other records"):
        run(config(source))
