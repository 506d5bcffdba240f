"""Whatever keeps a run from beginning is said at once, and nothing is left behind."""

from pathlib import Path

import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError, Obstacles
from claimscore.pipeline.run import run


def test_all_obstacles_are_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"article": "A."}')
    metrics = "perplexity,bart-score,blanc,ls-score,llm-judge,qa,summac-conv"
    with pytest.raises(Obstacles) as caught:
        run(RunConfig(tmp_path / "in.jsonl", tmp_path / "run", metrics))
    expected = (
        "no column summary ",
        "summac-conv:weights",
        "llm-judge, qa: judge, questions, answers: --llm builtin ",
        "name its folder with --ls-model",
        "with --causal-lm",
        "with --seq2seq-lm",
        "--masked-lm",
    )
    assert len(caught.value.messages) == len(expected)
    for part in expected:
        assert sum(part in message for message in caught.value.messages) == 1
    assert not (tmp_path / "run").exists()


def test_all_unknown_metrics_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(Obstacles, match=r"is rouge-1 or.*\n.*is caspr meant"):
        run(RunConfig("in.jsonl", tmp_path / "run", "rouge,casper"))


def test_a_language_model_is_no_factcc(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"source": "A.", "summary": "B."}')
    encoders = EncoderConfig(verifier="llm")
    with pytest.raises(ConfigError, match="metric factcc: --verifier llm judges claims"):
        run(RunConfig(tmp_path / "in.jsonl", tmp_path / "run", "factcc", encoders=encoders))
