"""What keeps a run from beginning is said before it, and nothing is left behind."""

from pathlib import Path

import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("summac-conv", "summac-conv:weights"),
        ("llm-judge,qa", "llm-judge, qa: judge, questions, answers: --llm builtin "),
        ("ls-score", "name its folder with --ls-model"),
        ("perplexity", "with --causal-lm"),
        ("bart-score", "with --seq2seq-lm"),
        ("blanc", "--masked-lm"),
        ("rouge", "is rouge-1 or .* meant"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, metric: str, message: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"source": "A.", "summary": "B."}')
    with pytest.raises(ConfigError, match=message):
        run(RunConfig(tmp_path / "in.jsonl", tmp_path / "run", metric))
    assert not (tmp_path / "run").exists()


def test_a_language_model_is_no_factcc(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"source": "A.", "summary": "B."}')
    encoders = EncoderConfig(verifier="llm")
    with pytest.raises(ConfigError, match="metric factcc: --verifier llm judges claims"):
        run(RunConfig(tmp_path / "in.jsonl", tmp_path / "run", "factcc", encoders=encoders))
