"""`summac-zs`, `summac-conv` and `mnli-doc` over tables: options, nulls, signatures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric, summac_conv
from claimscore.metrics.base import ChunkTables, Score, signature
from claimscore.metrics.summac.weights import as_weights
from claimscore.tables import TABLES
from tests.support.frames import tables
from tests.unit.metrics.summac.test_convolution import state

LONG = "a text of more than ten characters"


def block_rows(record: str, image: Any, cuts: tuple[str, str] = ("sentence", "sentence")) -> Any:
    return [
        {
            "id": record,
            "premise_side": "source",
            "premise_cut": cuts[0],
            "premise_index": i,
            "hypothesis_side": "summary",
            "hypothesis_cut": cuts[1],
            "hypothesis_index": j,
            **dict(zip(("entailment", "neutral", "contradiction"), cell, strict=True)),
        }
        for i, row in enumerate(np.asarray(image, dtype=np.float64).tolist())
        for j, cell in enumerate(row)
    ]


def chunk(images: Mapping[str, Any], **more: Any) -> ChunkTables:
    """Records with texts, and the images' rows in an order of their own."""
    rows = [row for name, image in images.items() for row in block_rows(name, image)]
    records = [{"id": name, "source": LONG, "summary": LONG} for name in images]
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    return tables(records, block_nli=shuffled, **more)


def saved_weights(path: Path, width: int = 23, **settings: str) -> Path:
    as_weights(state(width)).save(path, settings)
    return path


@pytest.mark.parametrize("options", ["", ":aggregate=all", ":variant=paper", ":aggregate=min"])
def test_conv_is_the_function_whatever_the_record_before(tmp_path: Path, options: str) -> None:
    """Histograms of several records are made at once and do not mix."""
    path = saved_weights(tmp_path / "w.safetensors")
    rng = np.random.default_rng(2)
    images = {str(i): rng.random((i + 1, 12 - i, 3)).astype(np.float32) for i in range(4)}
    named = dict(item.split("=") for item in options.split(":")[1:])
    for score in load_metric(f"summac-conv:weights={path}{options}").score(chunk(images)):
        expected = summac_conv(images[score.id], path, **named)
        assert score.value == pytest.approx(expected, abs=1e-12)
        assert len(score.components["sentence_scores"]) == images[score.id].shape[1]  # type: ignore[arg-type]


def test_components_say_what_the_score_is_made_of() -> None:
    """Sentence scores in the order of the summary, and how many blocks there were."""
    image = [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], [[0.4, 0.1, 0.5], [0.5, 0.5, 0.0]]]
    (score,) = load_metric("summac-zs").score(chunk({"r": image}))
    assert score.value == pytest.approx(0.7)
    assert score.components["sentence_scores"] == pytest.approx([0.9, 0.5])
    assert score.components["n_document_blocks"] == 2
    assert score.components["n_summary_blocks"] == 2


def one(records: list[dict[str, Any]], metric: str = "summac-zs", **rows: Any) -> Score:
    (score,) = load_metric(metric).score(tables(records, **rows))
    return score


FAILED = {"id": "r", "stage": "block_nli", "message": "does not fit"}
IMAGE = [[[0.9, 0.1, 0.0]]]


@pytest.mark.parametrize(
    ("record", "rows", "reason"),
    [
        pytest.param(
            {"source": LONG, "summary": "Short."},
            {},
            "no sentence of more than 10 characters in summary",
            id="short",
        ),
        pytest.param({"source": LONG, "summary": LONG}, {}, "no NLI rows", id="no rows"),
        pytest.param(
            {"source": LONG, "summary": LONG},
            {"block_nli": block_rows("r", [IMAGE[0] * 2, IMAGE[0] * 2])[:3]},
            "NLI rows are missing: 3 of 4",
            id="missing row",
        ),
        pytest.param(
            {"source": LONG, "summary": LONG},
            {"block_nli": block_rows("r", [[[0.9, float("nan"), 0.0]]])},
            "an NLI probability is not a number from 0 to 1",
            id="nan",
        ),
        pytest.param(
            {"source": LONG, "summary": LONG},
            {"block_nli": block_rows("r", IMAGE, ("2sents", "sentence"))},
            "no NLI rows",
            id="another cut",
        ),
    ],
)
def test_what_is_missing_is_null_with_a_reason(
    record: dict[str, Any], rows: dict[str, Any], reason: str
) -> None:
    """Never the reference code's 0.0."""
    score = one([{"id": "r", **record}], **rows)
    assert score == Score("r", None, reason, {})


def test_a_failure_of_another_cut_costs_nothing() -> None:
    """`failures` does not say which cut it was; what has its rows is scored."""
    record = {"id": "r", "source": LONG, "summary": LONG}
    score = one([record], failures=[FAILED], block_nli=block_rows("r", IMAGE))
    assert score.value == pytest.approx(0.9)


def test_mnli_doc_is_the_entailment_of_the_whole() -> None:
    """Of several documents the one that entails most."""
    rows = block_rows("r", [[[0.2, 0.3, 0.5]], [[0.7, 0.2, 0.1]]], ("document", "document"))
    score = one([{"id": "r", "sources": [LONG, LONG], "summary": "S."}], "mnli-doc", block_nli=rows)
    assert score.value == pytest.approx(0.7)
    assert score.components["n_documents"] == 2
    assert score.components["contradiction"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("spec", "over"),
    [
        ("summac-zs", ("source.sentence", "summary.sentence")),
        ("summac-zs:granularity=2sents", ("source.2sents", "summary.2sents")),
        ("summac-zs:granularity=paragraph-sentence", ("source.paragraph", "summary.sentence")),
        (
            "summac-zs:splitter=punkt:blocks=all",
            ("source.sentence_punkt_all", "summary.sentence_punkt_all"),
        ),
    ],
)
def test_options_choose_what_the_pass_reads(spec: str, over: tuple[str, ...]) -> None:
    """`a-b` is document and summary, as the authors' code spells it."""
    (need,) = load_metric(spec).requires.passes
    assert need.kind == "block_nli"
    assert need.over == over


def test_the_signature_names_all_that_changes_the_value(tmp_path: Path) -> None:
    """Cut, operators, variant, and the weights by their digest."""
    metric = load_metric("summac-zs:op1=mean")
    assert signature(metric, {"nli": "m@1", "claimscore": "9"}) == (
        "summac-zs:op1=mean|v1|granularity:sentence|splitter:rules-1|blocks:code|op1:mean|"
        "op2:mean|variant:paper|nli:m@1|claimscore:9"
    )
    path = saved_weights(tmp_path / "w.safetensors")
    facts = dict(load_metric(f"summac-conv:weights={path}").facts)
    assert facts["weights"] == as_weights(state(23)).digest
    assert (facts["bins"], facts["labels"], facts["variant"]) == ("percentile", "e", "code")


def test_conv_does_what_its_file_says_unless_told_otherwise(tmp_path: Path) -> None:
    """Bins, categories and granularity are those of the training."""
    path = saved_weights(
        tmp_path / "w.safetensors", 40, bins="even20", labels="ec", granularity="2sents-sentence"
    )
    metric = load_metric(f"summac-conv:weights={path}")
    assert metric.requires.passes[0].over == ("source.2sents", "summary.sentence")
    assert dict(metric.facts)["bins"] == "even20"
    other = load_metric(f"summac-conv:weights={path}:granularity=paragraph:bins=even40:labels=e")
    assert other.requires.passes[0].over == ("source.paragraph", "summary.paragraph")
    assert dict(other.facts)["bins"] == "even40"


def test_bins_that_no_file_names_follow_from_the_numbers(tmp_path: Path) -> None:
    """23 a category are the released bins, all else even ones."""
    for width, bins in ((23, "percentile"), (50, "even50")):
        path = saved_weights(tmp_path / f"{width}.safetensors", width)
        assert dict(load_metric(f"summac-conv:weights={path}").facts)["bins"] == bins


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param("", "needs weights: summac-conv:weights=FILE", id="none"),
        pytest.param(":weights=/nowhere/w.bin", "/nowhere/w.bin: ", id="no file"),
        pytest.param(":weights=W:bins=odd", "bins is percentile or evenN", id="bins"),
        pytest.param(":weights=W:bins=even50", "take 23 numbers a sentence", id="width"),
        pytest.param(":weights=W:labels=x", "labels is one of e, c, n", id="labels"),
        pytest.param(":weights=W:granularity=word", "granularity is one of", id="granularity"),
        pytest.param(":weights=W:splitter=none", "splitter is one of rules, punkt", id="splitter"),
        pytest.param(":op1=max", "is no option", id="not an option"),
    ],
)
def test_wrong_options_of_conv_are_refused_before_anything(
    tmp_path: Path, options: str, message: str
) -> None:
    """One line that says what fits."""
    path = saved_weights(tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match=message):
        load_metric(f"summac-conv{options.replace('weights=W', f'weights={path}')}").check()


def test_many_records_are_scored_in_a_moment(tmp_path: Path) -> None:
    """5,000 records of 5 by 2 pairs: no Python loop over pairs."""
    n, pairs = 5_000, 10
    index = np.arange(n * pairs)
    values = np.random.default_rng(0).random((3, n * pairs), dtype=np.float32)
    rows = pl.DataFrame(
        {
            "id": np.repeat(np.arange(n).astype(str), pairs),
            "premise_index": index % pairs // 2,
            "hypothesis_index": index % 2,
            **dict(zip(("entailment", "neutral", "contradiction"), values, strict=True)),
        }
    )
    for role, side in (("premise", "source"), ("hypothesis", "summary")):
        rows = rows.with_columns(
            pl.lit(side).alias(f"{role}_side"), pl.lit("sentence").alias(f"{role}_cut")
        )
    frames = {name: table.empty() for name, table in TABLES.items()}
    frames["block_nli"] = rows
    frames["records"] = pl.DataFrame({"id": np.arange(n).astype(str)}).with_columns(
        source=pl.lit(LONG), summary=pl.lit(LONG)
    )
    path = saved_weights(tmp_path / "w.safetensors")
    started = time.process_time()
    for name in ("summac-zs", f"summac-conv:weights={path}"):
        assert len(load_metric(name).score(ChunkTables(frames.__getitem__))) == n
    assert time.process_time() - started < 20
