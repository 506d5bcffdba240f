"""BARTScore's directions from likelihoods, and in a run with a tiny model."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest
import torch

from claimscore.config import EncoderConfig, RunConfig
from claimscore.metrics import load_metric
from claimscore.metrics.bart_score import bart_score
from claimscore.pipeline.encoders.language_models import load_seq2seq
from claimscore.pipeline.run import run
from tests.support.frames import tables
from tests.support.tiny_models import TEXTS, save_tiny_seq2seq


def rows(given_side, side, means, tokens=4):
    return [
        {
            "id": "x",
            "measure": "bart_score",
            "side": side,
            "given_side": given_side,
            "given_index": index,
            "name": name,
            "value": value,
        }
        for index, mean in means.items()
        for name, value in (("log_likelihood", mean * tokens), ("tokens", tokens))
    ]


ROWS = [
    *rows("source", "summary", {0: -1.0}),
    *rows("references", "summary", {0: -2.0, 1: -3.0}),
    *rows("summary", "references", {0: -4.0, 1: -1.0}, tokens=9),
]


def score(spec, text_scores=ROWS, failures=(), **record):
    record = {"id": "x", "summary": "s", "source": "d", "references": ["p", "q"], **record}
    (found,) = load_metric(spec).score(tables([record], text_scores=text_scores, failures=failures))
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param("", -1.0, id="source to summary"),
        pytest.param(":direction=precision", -2.5, id="references to summary, mean"),
        pytest.param(":direction=precision:multi=max", -2.0, id="references to summary, max"),
        pytest.param(":direction=recall", -2.5, id="summary to references, mean"),
        pytest.param(":direction=recall:multi=max", -1.0, id="summary to references, max"),
        pytest.param(":direction=f", (-3.0 - 2.0) / 2, id="mean of both, mean of references"),
        pytest.param(":direction=f:multi=max", -2.0, id="mean of both, best reference"),
    ],
)
def test_directions(options, expected):
    """A text's value is its mean over tokens; F is the mean of both directions of a reference."""
    found = score(f"bart-score{options}")
    assert found.value == pytest.approx(expected)


def test_the_parts_of_f_are_shown():
    """Precision and recall of each reference."""
    found = score("bart-score:direction=f")
    assert found.components["precision"] == {0: -2.0, 1: -3.0}
    assert found.components["recall"] == {0: -4.0, 1: -1.0}


def test_a_mean_needs_a_token():
    """0/0 is no score."""
    with pytest.raises(ValueError, match="none"):
        bart_score(0, 0)


@pytest.mark.parametrize(
    ("options", "record", "text_scores", "failures", "reason"),
    [
        pytest.param("", {}, [], [], "no likelihoods", id="no rows"),
        pytest.param(":direction=f", {}, ROWS[:-1], [], "no likelihoods", id="half a direction"),
        pytest.param(
            "",
            {},
            rows("source", "summary", {0: math.nan}),
            [],
            "a likelihood is not a finite number",
            id="nan",
        ),
    ],
)
def test_records_without_a_score_are_null_with_a_reason(
    options, record, text_scores, failures, reason
):
    """No number in the place of a missing one."""
    found = score(f"bart-score{options}", text_scores, failures, **record)
    assert (found.value, found.reason) == (None, reason)


def test_a_run_with_a_tiny_model(tmp_path):
    """All directions from one call; each pair of texts is one row of the model's table."""
    torch.set_num_threads(1)
    encoders = EncoderConfig(
        seq2seq_lm=str(save_tiny_seq2seq(tmp_path / "bart")), offline=True, device="cpu"
    )
    record = {"id": "x", "summary": TEXTS[0], "sources": [TEXTS[1], TEXTS[2]]}
    source = tmp_path / "records.jsonl"
    source.write_text(json.dumps(record | {"references": [TEXTS[3]]}))
    names = ("bart-score", "bart-score:direction=f")
    config = RunConfig(input=str(source), out=tmp_path / "run", metrics=names, encoders=encoders)
    run(config)
    scores = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    found = dict(scores.select("metric", "value").iter_rows())
    model = load_seq2seq(encoders)
    pairs = [(TEXTS[1], TEXTS[0]), (TEXTS[2], TEXTS[0]), (TEXTS[3], TEXTS[0]), (TEXTS[0], TEXTS[3])]
    means = [total / tokens for total, tokens in model.log_likelihoods(*zip(*pairs, strict=True))]
    assert found["bart-score"] == pytest.approx((means[0] + means[1]) / 2, abs=1e-5)
    assert found["bart-score:direction=f"] == pytest.approx((means[2] + means[3]) / 2, abs=1e-5)
