"""BERTScore as a function of texts, as a metric, and in a run with references."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import claimscore.metrics
from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from claimscore.metrics.bert_score import BERTScore, bertscore
from claimscore.metrics.rouge import by_rouge_score
from claimscore.pipeline.run import run
from claimscore.pipeline.run import score as add_metrics
from tests.support.frames import tables
from tests.support.shared_data import shared
from tests.support.tiny_models import save_tiny_encoder

steady = settings(deadline=None, max_examples=15)
some_texts = st.text(st.characters(codec="utf-8"), max_size=12).map("a{}".format)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of a tiny encoder."""
    return save_tiny_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def golden():
    return json.loads(shared("data/bertscore/golden.json").read_text())["cases"]


# The function


@pytest.mark.parametrize("layer", [1, 2])
def test_equal_to_the_package(golden, layer):
    """bert-score 0.3.13 to the digits that were printed, in both layers."""
    found = bertscore(
        [case["candidate"] for case in golden],
        [case["reference"] for case in golden],
        model=str(shared("data/ls_score/tiny_bert")),
        layer=layer,
    )
    expected = [[case[f"layer{layer}"][key] for case in golden] for key in "PRF"]
    assert np.abs(np.stack(found) - expected).max() <= 1e-6


def test_rescaling_and_what_the_golden_file_says_of_it(golden):
    """100·(1 − F') of a baseline of 0.5 is the file's rescaled BS⁻¹, of none its raw one."""
    texts = [[case[key] for case in golden] for key in ("candidate", "reference")]
    options = {"model": str(shared("data/ls_score/tiny_bert")), "layer": 2}
    raw = bertscore(*texts, **options)
    rescaled = bertscore(*texts, baseline=(0.5, 0.5, 0.5), **options)
    for found, key in (
        (raw, "bs_inverse_layer2_no_rescale"),
        (rescaled, "bs_inverse_layer2_rescaled_with_baseline_F_0.5"),
    ):
        expected = [case[key] for case in golden]
        assert np.abs(100 * (1 - found.f1) - expected).max() <= 2e-4  # four printed digits


def test_each_number_has_its_own_baseline(tiny):
    """(x − b)/(1 − b), with precision's, recall's and F1's b."""
    texts = ["the hotel was clean"], ["we had a great stay"]
    raw = bertscore(*texts, model=str(tiny), layer=2)
    found = bertscore(*texts, model=str(tiny), layer=2, baseline=(0.1, 0.2, 0.3))
    for ours, before, b in zip(found, raw, (0.1, 0.2, 0.3), strict=True):
        assert ours == pytest.approx((before - b) / (1 - b))


@steady
@given(st.lists(some_texts, min_size=1, max_size=4))
def test_any_text_and_its_invariants(tiny, texts):
    """1 for equal texts, P and R change places with the texts, F1 between them, any script."""
    turned = texts[1:] + texts[:1]
    options = {"model": str(tiny), "layer": 2}
    same, there, back = (
        bertscore(*pair, **options) for pair in ((texts, texts), (texts, turned), (turned, texts))
    )
    assert np.abs(np.stack(same) - 1).max() <= 1e-6
    assert np.abs(there.precision - back.recall).max() <= 1e-6
    assert np.abs(there.f1 - back.f1).max() <= 1e-6
    assert (np.minimum(there.precision, there.recall) <= there.f1 + 1e-9).all()
    assert (there.f1 <= np.maximum(there.precision, there.recall) + 1e-9).all()


def test_no_pairs_no_numbers(tiny):
    """Empty lists are no error."""
    assert [values.shape for values in bertscore([], [], model=str(tiny), layer=1)] == [(0,)] * 3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        pytest.param((["a"], ["a", "b"]), {}, "1 candidates, but 2 references", id="lengths"),
        pytest.param((["a", " "], ["a", "b"]), {}, "candidate 1 is empty", id="empty"),
        pytest.param(("a", "b"), {}, "lists of texts", id="single texts"),
        pytest.param((["a"], ["b"]), {"baseline": (0, 0, 1)}, "below 1", id="baseline of 1"),
        pytest.param((["a"], ["b"]), {"baseline": (0.5, 0.5)}, "three numbers", id="two numbers"),
    ],
)
def test_what_has_no_bertscore_is_refused(tiny, arguments, options, message):
    """No made-up number."""
    with pytest.raises(ValueError, match=message):
        bertscore(*arguments, model=str(tiny), layer=1, **options)


def test_a_model_that_is_not_there_is_named():
    """As anywhere."""
    with pytest.raises(ConfigError, match="nowhere"):
        bertscore(["a"], ["b"], model="./nowhere")


def test_notebooks_reach_it_by_name(tiny):
    """`claimscore.metrics.bertscore` and its result."""
    assert claimscore.metrics.bertscore is bertscore
    assert claimscore.metrics.BERTScore is BERTScore


# The metric


def row(index, f1, **more):
    numbers = {"precision": f1 - 0.1, "recall": f1 + 0.1, "f1": f1, "layer": 2}
    sides = {"candidate_side": "summary", "reference_side": "references"}
    return {"id": "x", **sides, "reference_index": index, **numbers, **more}


def scored(spec, rows, failures=(), **record):
    record = {"id": "x", "summary": "s", "references": ["p", "q"], **record}
    chunk = tables([record], token_scores=rows, failures=failures)
    (found,) = load_metric(spec).score(chunk)
    return found


def test_the_best_reference_counts_or_the_mean():
    """As bert-score does with several references, or their mean."""
    rows = [row(1, 0.8), row(0, 0.5)]
    assert scored("bertscore", rows).value == 0.8
    assert scored("bertscore:multi=mean", rows).value == pytest.approx(0.65)
    assert scored("bertscore:measure=recall", rows).value == pytest.approx(0.9)
    assert scored("bertscore:measure=precision", rows).components["values"] == {
        0: pytest.approx(0.4),
        1: pytest.approx(0.7),
    }


def test_the_baseline_of_the_measure_is_taken():
    """Rescaled where the model has a baseline."""
    baselines = {"baseline_precision": 0.2, "baseline_recall": 0.4, "baseline_f1": 0.5}
    rows = [row(0, 0.75, **baselines), row(1, 0.5, **baselines)]
    assert scored("bertscore", rows).value == pytest.approx(0.5)
    assert scored("bertscore:measure=recall", rows).value == pytest.approx(0.75)
    assert scored("bertscore:measure=precision", rows).value == pytest.approx(0.5625)


def test_rows_of_other_sides_are_not_taken():
    """Two summaries, or the source."""
    others = [row(0, 0.9, reference_side="source"), row(0, 0.9, candidate_side="a")]
    assert scored("bertscore", [row(0, 0.5), row(1, 0.5), *others]).value == 0.5
    assert scored("bertscore:against=source", others, source="p").value == 0.9


@pytest.mark.parametrize(
    ("record", "rows", "failures", "reason"),
    [
        pytest.param({}, [], [], "no token scores", id="no rows"),
        pytest.param({}, [row(0, 0.5)], [], "no token scores", id="one of two is missing"),
        pytest.param({"references": [""]}, [], [], "no text in references", id="blank reference"),
        pytest.param(
            {},
            [row(0, float("nan")), row(1, 0.5)],
            [],
            "the BERTScore f1 is not a number",
            id="nan",
        ),
    ],
)
def test_records_without_a_score_are_null_with_a_reason(record, rows, failures, reason):
    """Whatever is missing is said; no number takes its place."""
    found = scored("bertscore", rows, failures, **record)
    assert (found.value, found.reason) == (None, reason)


def test_failures_of_other_sides_do_not_matter():
    """A failure against the source leaves the references alone."""
    failures = [{"id": "x", "stage": "token_scores", "side": "source", "message": "too long"}]
    assert scored("bertscore", [row(0, 0.5), row(1, 0.5)], failures).value == 0.5


# A run


@pytest.fixture
def config(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    records = [
        {"id": "1", "summary": "the hotel was clean", "references": ["clean hotel", "the pool"]},
        {"id": "2", "summary": "breakfast was good", "references": ["breakfast was good"]},
        {"id": "3", "summary": "the rooms", "references": []},
    ]
    source = tmp_path / "records.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    return RunConfig(
        input=str(source),
        out=tmp_path / "run",
        metrics=("rouge-1", "bertscore"),
        encoders=EncoderConfig(token_encoder=str(tiny), token_layer=2, offline=True),
        cache_dir=tmp_path / "cache",
    )


def test_a_run_over_records_with_references(config, tiny):
    """Both metrics, no LLM asked; adding a measure later asks no model again."""
    summary = run(config).summary
    assert summary["last_call"]["requests"] == 0
    assert summary["last_call"]["nli_pairs"] == 3
    assert not (config.out / "claims").exists()
    scores = pl.read_parquet(config.out / "scores.parquet")
    found = {(i, m): v for i, m, v in scores.select("id", "metric", "value").iter_rows()}
    texts = [("the hotel was clean", "clean hotel"), ("the hotel was clean", "the pool")]
    expected = bertscore(*zip(*texts, strict=True), model=str(tiny), layer=2).f1.max()
    assert found["1", "bertscore"] == pytest.approx(expected, abs=1e-6)
    assert found["1", "rouge-1"] == max(by_rouge_score("rouge-1", *pair).f1 for pair in texts)
    assert found["2", "bertscore"] == pytest.approx(1, abs=1e-6)
    assert found["2", "rouge-1"] == 1
    reasons = scores.filter(pl.col("id") == "3")["reason"].to_list()
    assert reasons == ["no text in references"] * 2
    later = add_metrics(config.out, ("bertscore:measure=recall", "rouge-l:measure=recall"))
    assert later.summary["last_call"]["nli_pairs"] == 0
    assert later.summary["metrics"]["bertscore:measure=recall"]["n"] == 2
