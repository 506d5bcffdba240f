"""BERTScore as a function of texts."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.metrics import bertscore
from tests.support.shared_data import shared
from tests.support.tiny_models import save_tiny_encoder

steady = settings(deadline=None, max_examples=15)
some_texts = st.text(st.characters(codec="utf-8"), max_size=12).map("a{}".format)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def golden():
    return json.loads(shared("data/bertscore/golden.json").read_text())["cases"]


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


def test_what_has_no_bertscore_is_refused(tiny):
    with pytest.raises(ValueError, match="1 candidates, but 2 references"):
        bertscore(["a"], ["a", "b"], model=str(tiny), layer=1)
    with pytest.raises(ValueError, match="candidate 1 is empty"):
        bertscore(["a", " "], ["a", "b"], model=str(tiny), layer=1)
    with pytest.raises(ConfigError, match="nowhere"):
        bertscore(["a"], ["b"], model="./nowhere")
