"""SummaC-ZS: the reference code's goldens, and what holds for every image."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from claimscore.metrics import summac_zs
from claimscore.metrics.summac import summac_zs_grid
from claimscore.metrics.summac.zero_shot import SETTINGS
from tests.support.summac_goldens import golden, probabilities

#: The code's `use_ent` and `use_con` by our name.
FLAGS = {
    "ent=1/con=1": "code",
    "ent=1/con=0": "paper",
    "ent=0/con=1": "contradiction",
}

images = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, (*shape, 3), elements=st.floats(0, 1, width=32))
)


def test_goldens_with_every_operator_and_variant() -> None:
    """27 settings of 16 images to the file's tolerance."""
    data = golden()
    for case in data["cases"]:
        image = probabilities(case)
        for key, expected in case["zs"].items():
            op1, op2, flags = key.split("/", 2)
            found = summac_zs(image, op1=op1, op2=op2, variant=FLAGS[flags])
            assert found == pytest.approx(expected, abs=data["tolerance"]), (case["name"], key)
        assert summac_zs(image) == pytest.approx(case["zs_paper"], abs=data["tolerance"])
        assert summac_zs(image, variant="code") == pytest.approx(case["zs_default"], abs=1e-5)


def test_the_maxima_of_the_code_are_independent() -> None:
    """The entailing and the contradicting block may be two: 0.9 − 0.8, not the best difference."""
    image = [[[0.9, 0.05, 0.05]], [[0.1, 0.1, 0.8]]]
    assert summac_zs(image, variant="code") == pytest.approx(0.1)
    assert summac_zs(image, variant="paper") == pytest.approx(0.9)


@settings(max_examples=30)
@given(images)
def test_the_grid_is_every_single_call(image: np.ndarray) -> None:
    """One image, all settings, the same numbers."""
    grid = summac_zs_grid(image)
    assert grid is not None
    assert tuple(grid) == SETTINGS
    for (op1, op2, variant), value in grid.items():
        assert value == summac_zs(image, op1=op1, op2=op2, variant=variant)


@settings(max_examples=30)
@given(images, st.randoms())
def test_the_order_of_blocks_is_irrelevant(image: np.ndarray, rng) -> None:  # type: ignore[no-untyped-def]
    """Document blocks and summary sentences may come in any order."""
    rows, columns = list(range(image.shape[0])), list(range(image.shape[1]))
    rng.shuffle(rows)
    rng.shuffle(columns)
    for op1, op2, variant in SETTINGS:
        found = summac_zs(image[rows][:, columns], op1=op1, op2=op2, variant=variant)
        expected = summac_zs(image, op1=op1, op2=op2, variant=variant)
        assert found == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30)
@given(images)
def test_a_document_twice_is_the_document(image: np.ndarray) -> None:
    """Repeated blocks change no minimum, mean or maximum over the document."""
    for op1, variant in itertools.product(("max", "mean", "min"), ("paper", "code")):
        twice = summac_zs(np.concatenate([image, image]), op1=op1, variant=variant)
        assert twice == pytest.approx(summac_zs(image, op1=op1, variant=variant), abs=1e-12)


@settings(max_examples=30)
@given(images)
def test_values_stay_in_their_range(image: np.ndarray) -> None:
    """[0, 1], with the code's difference [−1, 1]; never above what the best block has."""
    grid = summac_zs_grid(image)
    assert grid is not None
    for setting, value in grid.items():
        assert (-1 if setting.variant == "code" else 0) <= value <= 1
        if setting.variant == "paper":
            assert value <= image[:, :, 0].max()


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param([], id="no document block"),
        pytest.param([[], []], id="no summary sentence"),
        pytest.param(np.zeros((3, 0, 3)), id="array without summary"),
    ],
)
def test_nothing_to_compare_is_none(empty: object) -> None:
    """The code gives 0.0 there, a number like any other."""
    assert summac_zs(empty) is None  # type: ignore[arg-type]
    assert summac_zs_grid(empty) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        pytest.param([[[0.5, 0.5]]], {}, "not \\[1, 1, 2\\]", id="two categories"),
        pytest.param([[[0.1] * 3], [[0.1] * 3] * 2], {}, "every document block", id="ragged"),
        pytest.param([[[0.5, float("nan"), 0.1]]], {}, "from 0 to 1", id="nan"),
        pytest.param([[[1.5, 0.1, 0.1]]], {}, "from 0 to 1", id="above one"),
        pytest.param([[["a", "b", "c"]]], {}, "numbers", id="text"),
        pytest.param([[[0.1] * 3]], {"op1": "median"}, "op1 is one of max", id="op1"),
        pytest.param([[[0.1] * 3]], {"op2": ""}, "op2 is one of max", id="op2"),
        pytest.param([], {"variant": "best"}, "variant is one of paper", id="variant"),
    ],
)
def test_what_cannot_be_scored_is_refused(image, options, message) -> None:  # type: ignore[no-untyped-def]
    """Never a number from a wrong shape, a NaN or an unknown option."""
    with pytest.raises(ValueError, match=message):
        summac_zs(image, **options)
