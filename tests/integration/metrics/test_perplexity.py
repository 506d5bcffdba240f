"""Perplexity from sums of log-probabilities, and in a run with a tiny model."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics.perplexity import PERPLEXITY, perplexity
from claimscore.pipeline.run import run
from tests.support.frames import tables
from tests.support.tiny_models import TEXTS, save_tiny_causal


def rows(log_likelihood, tokens, side="summary", measure="perplexity"):
    numbers = {"log_likelihood": log_likelihood, "tokens": tokens}
    return [
        {"id": "x", "measure": measure, "side": side, "name": name, "value": value}
        for name, value in numbers.items()
    ]


def score(text_scores, failures=(), **record):
    chunk = tables(
        [{"id": "x", "summary": "s", **record}], text_scores=text_scores, failures=failures
    )
    (found,) = PERPLEXITY.score(chunk)
    return found


@given(st.integers(1, 5000), st.integers(2, 10**6))
def test_a_uniform_model_has_the_vocabulary_as_perplexity(tokens, vocabulary):
    """exp of the mean, however long the text."""
    assert perplexity(-tokens * math.log(vocabulary), tokens) == pytest.approx(vocabulary)


def test_limits_of_the_formula():
    """1 for certainty, infinite beyond a float, nothing of nothing."""
    assert perplexity(0, 3) == 1
    assert perplexity(-1e6, 1) == math.inf
    with pytest.raises(ValueError, match="none"):
        perplexity(0, 0)


def test_the_row_of_the_summary_is_taken():
    """Other sides and measures are others'."""
    others = [*rows(-1, 1, side="source"), *rows(-1, 1, measure="ls")]
    found = score([*others, *rows(-2 * math.log(7), 2)])
    assert found.value == pytest.approx(7)
    assert found.components["tokens"] == 2


@pytest.mark.parametrize(
    ("record", "text_scores", "failures", "reason"),
    [
        pytest.param({}, [], [], "no likelihood of the summary", id="no row"),
        pytest.param(
            {}, rows(0, 0), [], "the summary is one token, with none before it", id="one token"
        ),
        pytest.param({}, rows(-1e6, 1), [], "the perplexity is not a finite number", id="infinite"),
    ],
)
def test_records_without_a_score_are_null_with_a_reason(record, text_scores, failures, reason):
    """No number in the place of a missing one."""
    found = score(text_scores, failures, **record)
    assert (found.value, found.reason) == (None, reason)


@pytest.fixture
def config(tmp_path):
    source = tmp_path / "records.jsonl"
    summaries = [TEXTS[0], "a", "", TEXTS[1], TEXTS[0]]
    lines = [json.dumps({"id": str(i), "summary": text}) for i, text in enumerate(summaries)]
    source.write_text("\n".join(lines))
    encoders = EncoderConfig(offline=True, device="cpu")
    return RunConfig(
        input=str(source), out=tmp_path / "run", metrics=("perplexity",), encoders=encoders
    )


def test_a_run_with_a_tiny_model(config, tmp_path):
    """Numbers where there are some, reasons elsewhere; the signature names the model."""
    import dataclasses

    torch.set_num_threads(1)
    folder = save_tiny_causal(tmp_path / "gpt2")
    encoders = dataclasses.replace(config.encoders, causal_lm=str(folder))
    summary = run(dataclasses.replace(config, encoders=encoders)).summary["metrics"]["perplexity"]
    assert (summary["n"], summary["null"]) == (3, 2)
    assert set(summary["reasons"]) == {
        "no text in summary",
        "the summary is one token, with none before it",
    }
    assert f"causal_lm:{folder}@" in summary["signature"]


def test_without_a_model_the_run_is_refused(config):
    """The option is named, and no folder is left behind with half a run."""
    with pytest.raises(ConfigError, match="--causal-lm"):
        run(config)
