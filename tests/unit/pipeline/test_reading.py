"""A run that is taken up again reads its input only where it must."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline import run as run_module
from claimscore.pipeline.run import run, score
from claimscore.records import dataset as dataset_module


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A run of five records in three chunks."""
    path = tmp_path / "pairs.jsonl"
    record = {"summary_a": "It is warm.", "summary_b": "It is old.", "summary": "It is."}
    path.write_text("".join(json.dumps({"id": f"r{i}", **record}) + "\n" for i in range(5)))
    return RunConfig(str(path), tmp_path / "run", ("ds",), chunk_records=2)


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


def test_the_input_is_read_in_two_passes(
    config: RunConfig, reads: list[str], tmp_path: Path
) -> None:
    """A later call reads it once, to see that it is the same; twice where records are missing (of a
    run that was killed while it copied them)."""
    scores = tmp_path / "run" / "scores.parquet"
    run(config)
    first = scores.read_bytes()
    run(config)
    assert (len(reads), scores.read_bytes()) == (3, first)
    manifest = tmp_path / "run" / ".state" / "manifest.log"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if '"step":"records"' not in line))
    run(config)
    assert (len(reads), scores.read_bytes()) == (5, first)
    source = Path(config.input)
    with pytest.raises(ConfigError, match="summary_common"):
        run(RunConfig(config.input, config.out, ("ds3",), chunk_records=2))
    source.write_text(source.read_text().replace("warm", "cold"))
    with pytest.raises(ConfigError, match="made from other records"):
        run(config)


PRICED = {"max_cost": 1.0, "model": "openai:no-such-model"}


@pytest.mark.parametrize(
    ("key", "llm", "says"),
    [(None, {"model": "openai:gpt-4o-mini"}, "OPENAI_API_KEY is"), ("k", PRICED, "--max-cost: ")],
)
def test_a_run_that_can_ask_nothing_is_refused_before_models_are_loaded(
    key: str | None,
    llm: dict[str, Any],
    says: str,
    config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    asking = dataclasses.replace(config, metrics=("caspr",), llm=LLMConfig(**llm))
    run(dataclasses.replace(asking, metrics=("ds",), out=f"{config.out}-ds"))
    monkeypatch.setattr(run_module, "local_models", lambda *_: pytest.fail("models are loaded"))
    with pytest.raises(ConfigError, match=says):
        run(asking)
    with pytest.raises(ConfigError, match=says):
        score(dataclasses.replace(asking, out=f"{config.out}-ds"))
