"""A metric whose model no option names."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run


@pytest.mark.parametrize(
    ("metric", "option"), [("perplexity", "--causal-lm"), ("bart-score", "--seq2seq-lm")]
)
def test_a_run_is_refused_with_the_option(tmp_path: Path, metric: str, option: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"summary": "A.", "source": "B."}')
    with pytest.raises(ConfigError, match=option):
        run(RunConfig(input=str(tmp_path / "in.jsonl"), out=tmp_path / "run", metrics=(metric,)))
