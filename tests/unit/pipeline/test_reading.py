"""What a run cannot be made of is refused before anything is asked or loaded."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline import run as run_module
from claimscore.pipeline.run import run, score
from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A run of five records in three chunks."""
    path = tmp_path / "pairs.jsonl"
    record = {"summary_a": "It is warm.", "summary_b": "It is old.", "summary": "It is."}
    path.write_text("".join(json.dumps({"id": f"r{i}", **record}) + "\n" for i in range(5)))
    return RunConfig(str(path), tmp_path / "run", ("ds",), chunk_records=2)


def test_a_metric_that_the_records_cannot_have(config: RunConfig) -> None:
    run(config)
    with pytest.raises(ConfigError, match="summary_common"):
        run(RunConfig(config.input, config.out, ("ds3",), chunk_records=2))
    source = Path(str(config.input))
    source.write_text(source.read_text().replace("warm", "cold"))
    with pytest.raises(ConfigError, match="the content of the input: was"):
        run(config)


def test_words_for_a_missing_text_are_named_of_columns_that_are_read(
    tmp_path: Path, cli: Command
) -> None:
    rows = [
        {"source": "Old.", "summary_a": "N/A", "summary_b": text}
        for text in ("NULL", "Old.", "nan", "NULL")
    ]
    path, metric = write_jsonl(tmp_path / "r.jsonl", rows), "rouge-1:against=source"
    call = ("run", path, "-o", tmp_path / "r", "-m", metric, "--columns", "summary=summary_b")
    said = cli(*call).err
    assert said.count("words for a missing text") == 1
    assert "words for a missing text, read as none: 3 in summary (NULL, nan)\n" in said
    scores = cli("status", tmp_path / "r", "--json").json()["metrics"][metric]
    assert (scores["n"], scores["null"]) == (1, 3)


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
