"""SummaC-ZS, SummaC-Conv and MNLI-doc: goldens, what holds for every image, and the tables."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric, summac_conv, summac_zs
from claimscore.metrics.base import Score
from claimscore.metrics.summac import OPERATORS, VARIANTS
from claimscore.metrics.summac_convolution import as_weights, bin_edges, histograms
from tests.support.frames import tables
from tests.support.summac_goldens import LONG, block_rows, golden, probabilities, state

#: The code's `use_ent` and `use_con` by our name.
FLAGS = {"ent=1/con=1": "code", "ent=1/con=0": "paper", "ent=0/con=1": "contradiction"}
SETTINGS = list(itertools.product(OPERATORS, OPERATORS, VARIANTS))

images = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, (*shape, 3), elements=st.floats(0, 1, width=32))
)
steady = settings(max_examples=30)


def test_goldens_with_every_operator_and_variant() -> None:
    data = golden()
    for case in data["cases"]:
        image = probabilities(case)
        for key, expected in case["zs"].items():
            op1, op2, flags = key.split("/", 2)
            found = summac_zs(image, op1=op1, op2=op2, variant=FLAGS[flags])
            assert found == pytest.approx(expected, abs=data["tolerance"]), (case["name"], key)
        assert summac_zs(image) == pytest.approx(case["zs_paper"], abs=data["tolerance"])
        assert summac_zs(image, variant="code") == pytest.approx(case["zs_default"], abs=1e-5)


@steady
@given(images, st.randoms())
def test_invariants_of_zero_shot(image: np.ndarray, rng: Any) -> None:
    """Blocks in any order and a document twice are the same; values stay in their range."""
    rows, columns = list(range(image.shape[0])), list(range(image.shape[1]))
    rng.shuffle(rows)
    rng.shuffle(columns)
    for op1, op2, variant in SETTINGS:
        options = {"op1": op1, "op2": op2, "variant": variant}
        value = summac_zs(image, **options)
        assert value is not None
        for same in (image[rows][:, columns], np.concatenate([image, image])):
            assert summac_zs(same, **options) == pytest.approx(value, abs=1e-12)
        assert (-1 if variant == "code" else 0) <= value <= 1


@pytest.mark.parametrize("empty", [[], [[], []], np.zeros((3, 0, 3))])
def test_nothing_to_compare_is_none(empty: object) -> None:
    """The code gives 0.0, and 0.200109 with the published weights: numbers like any other."""
    assert summac_zs(empty) is None  # type: ignore[arg-type]
    assert summac_conv(empty, state(23)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        ([[[0.5, 0.5]]], {}, "not \\[1, 1, 2\\]"),
        ([[[0.1] * 3], [[0.1] * 3] * 2], {}, "every document block"),
        ([[[0.5, float("nan"), 0.1]]], {}, "from 0 to 1"),
        ([[[1.5, 0.1, 0.1]]], {}, "from 0 to 1"),
        ([[["a", "b", "c"]]], {}, "numbers"),
        ([[[0.1] * 3]], {"op1": "median"}, "op1 is one of max"),
        ([[[0.1] * 3]], {"op2": ""}, "op2 is one of max"),
        ([], {"variant": "best"}, "variant is one of paper"),
    ],
)
def test_what_cannot_be_scored_is_refused(image: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summac_zs(image, **options)


# SummaC-Conv


@steady
@given(
    arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1, width=32)),
    st.sampled_from(["percentile", "even50", "even7", "even1"]),
)
def test_histograms_are_numpys(values: np.ndarray, bins: str) -> None:
    image = np.zeros((len(values), 1, 3))
    image[:, 0, 0] = values
    expected, _ = np.histogram(values, bins=bin_edges(bins))
    assert histograms(image, bin_edges(bins), "e")[0].tolist() == expected.tolist()


def test_categories_stand_in_the_order_of_the_code() -> None:
    """Entailment, contradiction, neutral, though an image has neutral second."""
    found = histograms(np.array([[[0.1, 0.5, 0.9]]]), bin_edges("even3"), "ecn")
    assert found.tolist() == [[1, 0, 0, 0, 0, 1, 0, 1, 0]]


def test_even_bins_are_the_codes() -> None:
    assert list(bin_edges("even50")) == [*np.arange(0, 1, 1 / 50), 1.0]
    assert [len(bin_edges(f"even{n}")) for n in range(1, 200)] == list(range(2, 201))


def test_only_the_first_ten_sentences_count_in_the_code() -> None:
    image, weights = np.random.default_rng(16).random((5, 11, 3)), state(23)
    first_ten = summac_conv(image[:, :10], weights)
    assert summac_conv(image, weights, variant="code") == first_ten
    assert summac_conv(image, weights) != first_ten


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bins": "even50"}, ConfigError, "take 23 numbers a sentence"),
        ({"labels": "ec"}, ConfigError, "of labels ec are 46"),
        ({"bins": "even0"}, ValueError, "percentile or evenN"),
        ({"bins": "odd"}, ValueError, "percentile or evenN"),
        ({"labels": "ce"}, ValueError, "labels is one of e, c"),
        ({"aggregate": "sum"}, ValueError, "aggregate is one of"),
        ({"variant": "best"}, ValueError, "variant is one of"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        summac_conv([], state(23), **options)


# The metrics over tables


def saved_weights(path: Path, width: int = 23, **told: str) -> Path:
    as_weights(state(width)).save(path, told)
    return path


def one(records: list[dict[str, Any]], metric: str = "summac-zs", **rows: Any) -> Score:
    (score,) = load_metric(metric).score(tables(records, **rows))
    return score


IMAGE = [[[0.9, 0.1, 0.0]]]


def test_a_short_text_has_no_block_in_the_code_alone() -> None:
    record = {"id": "r", "source": LONG, "summary": "Short."}
    reason = "no sentence of more than 10 characters in summary"
    assert one([record], "summac-zs:variant=code", block_nli=[]).reason == reason
    assert one([record], block_nli=block_rows("r", IMAGE)).value == pytest.approx(0.9)


def test_a_failure_of_another_cut_costs_nothing() -> None:
    """`failures` does not say which cut it was; what has its rows is scored."""
    failed = {"id": "r", "stage": "block_nli", "message": "does not fit"}
    record = {"id": "r", "source": LONG, "summary": LONG}
    score = one([record], failures=[failed], block_nli=block_rows("r", IMAGE))
    assert score.value == pytest.approx(0.9)


def test_mnli_doc_is_the_document_that_entails_most() -> None:
    rows = block_rows("r", [[[0.2, 0.3, 0.5]], [[0.7, 0.2, 0.1]]], ("document", "document"))
    score = one([{"id": "r", "sources": [LONG, LONG], "summary": "S."}], "mnli-doc", block_nli=rows)
    assert score.value == pytest.approx(0.7)
    assert score.components["n_documents"] == 2
    assert score.components["contradiction"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "cuts"),
    [
        ("", ("sentence", "sentence")),
        (":granularity=2sents", ("2sents", "2sents")),
        (":granularity=paragraph-sentence", ("paragraph", "sentence")),
        (":variant=code", ("sentence_code", "sentence_code")),
        (":variant=code:blocks=all", ("sentence", "sentence")),
        (":splitter=punkt:blocks=code", ("sentence_punkt_code", "sentence_punkt_code")),
    ],
)
def test_options_choose_what_the_pass_reads(options: str, cuts: tuple[str, str]) -> None:
    (need,) = load_metric(f"summac-zs{options}").requires.passes
    assert need == ("block_nli", (f"source.{cuts[0]}", f"summary.{cuts[1]}"))


def test_conv_does_what_its_file_says(tmp_path: Path) -> None:
    path = saved_weights(
        tmp_path / "w.safetensors", 40, bins="even20", labels="ec", granularity="2sents-sentence"
    )
    metric = load_metric(f"summac-conv:weights={path}")
    assert metric.requires.passes[0].over == ("source.2sents", "summary.sentence")
    facts = {"bins": "even20", "labels": "ec", "variant": "paper", "blocks": "all"}
    assert (dict(metric.facts) | facts) == dict(metric.facts)
    assert dict(metric.facts)["weights"] == as_weights(state(40)).digest
    code = load_metric(f"summac-conv:weights={path}:variant=code")
    assert code.requires.passes[0].over == ("source.2sents_code", "summary.sentence_code")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "needs weights: summac-conv:weights=FILE"),
        (":weights=/nowhere/w.bin", "/nowhere/w.bin: "),
        (":bins=even50", "is no option"),
        (":variant=codes", "variant is one of trained, paper, code"),
        (":op1=max", "is no option"),
    ],
)
def test_wrong_options_of_conv_are_refused_before_anything(
    tmp_path: Path, options: str, message: str
) -> None:
    path = saved_weights(tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match=message):
        load_metric(f"summac-conv{options.replace('weights=W', f'weights={path}')}").check()
