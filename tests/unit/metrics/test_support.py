"""Metrics of support: hand-computed matrices of claims and texts."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from tests.support.frames import support_rows, tables

Row = dict[str, Any]
#: Two claims by three sources; .5 counts as supported.
REVIEWS = [[0.9, 0.5, 0.1], [0.2, 0.4, 0.3]]
TEXTS = {"id": "x", "summary": "S.", "source": "D.", "references": ["R."]}


def claims(**of_sides: int) -> list[Row]:
    return [
        {"id": "x", "side": side, "sentence_index": 0, "claim_index": index, "text": f"t{index}"}
        for side, n in of_sides.items()
        for index in range(n)
    ]


def score(name: str, claims: Sequence[Row], support: Sequence[Row]) -> Any:
    metric = load_metric(name)
    (found,) = metric.score(tables([TEXTS], claims=claims, support=support))
    if found.value is not None:
        assert metric.range[0] <= found.value <= metric.range[1]
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("faithfulness", 1 / 2, id="one claim of two has a source"),
        pytest.param("faithfulness:score=mean", (0.9 + 0.4) / 2, id="best source each"),
        pytest.param("faithfulness:threshold=0.4", 1.0, id="a lower threshold"),
        pytest.param("faithfulness:threshold=0.95", 0.0, id="a higher threshold"),
        pytest.param("claim-support-share", (2 / 3 + 0) / 2, id="two of three sources, none"),
        pytest.param("claim-support-share:score=probability", 2.4 / 6, id="all cells"),
        pytest.param("source-coverage", 2 / 3, id="two sources are reflected"),
        pytest.param("source-coverage:score=probability", (0.9 + 0.5 + 0.3) / 3, id="best claims"),
    ],
)
def test_several_sources(name: str, value: float) -> None:
    assert score(name, claims(summary=2), support_rows("x", REVIEWS)).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("faithfulness:score=soft-minimum", 0.5169299, id="(mean of .9⁻², .4⁻²)^−½"),
        pytest.param("faithfulness:score=net-mean", (0.72 + 0.27) / 2, id="best net source each"),
        pytest.param("faithfulness:score=net-soft-minimum", 0.3575259, id="of .72 and .27"),
        pytest.param("faithfulness:score=probability", 0.5169299, id="the way by default"),
        pytest.param("claim-support-share:score=net-mean", 1.99 / 6, id="all net cells"),
        pytest.param("claim-support-share:score=probability", 2.4 / 6, id="all cells"),
        pytest.param("source-coverage:score=net-mean", (0.72 + 0.5 + 0.27) / 3, id="net claims"),
    ],
)
def test_ways_to_join_probabilities(name: str, value: float) -> None:
    rows = support_rows("x", REVIEWS, contradiction=[[0.2, 0, 0], [0, 0.5, 0.1]])
    assert score(name, claims(summary=2), rows).value == pytest.approx(value, rel=1e-6)


SCORES = ("mean", "soft-minimum", "net-mean", "net-soft-minimum")


@drawn(
    st.lists(st.tuples(*[st.integers(0, 64).map(lambda n: n / 64)] * 2), min_size=1, max_size=5),
    st.data(),
)
def test_a_soft_minimum_lies_between_the_least_claim_and_the_mean(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Whatever the order of the claims; a claim of 0 makes it 0."""

    def values(pairs: list[tuple[float, float]], known: bool = True) -> list[float]:
        rows = support_rows("x", [[p] for p, _ in pairs], [[c] for _, c in pairs])
        rows = [row if known else row | {"contradiction": None} for row in rows]
        made = claims(summary=len(pairs))
        return [score(f"faithfulness:score={name}", made, rows).value for name in SCORES]

    mean, soft, net_mean, net_soft = ours = values(pairs)
    assert min(p for p, _ in pairs) <= soft + 1e-9 <= mean + 2e-9
    assert min(p * (1 - c) for p, c in pairs) <= net_soft + 1e-9 <= net_mean + 2e-9
    assert (soft == 0) == any(p == 0 for p, _ in pairs)
    assert net_soft <= soft + 1e-9
    assert values(data.draw(st.permutations(pairs))) == pytest.approx(ours)
    unknown = values(pairs, known=False)  # two labels: there is no contradiction
    assert unknown == [mean, soft, mean, soft]


def test_signatures_tell_the_ways_apart() -> None:
    facts = {name: dict(load_metric(f"faithfulness:score={name}").facts) for name in SCORES}
    assert [facts[name]["score"] for name in SCORES] == list(SCORES)
    assert load_metric("faithfulness:score=probability").facts in [
        load_metric(f"faithfulness:score={name}").facts for name in SCORES
    ]


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for name in ("claim-recall", "claim-f1", "claim-support-share", "source-coverage")
        for way in ("soft-minimum", "net-soft-minimum")
    ],
)
def test_a_gap_spoils_no_recall_and_no_share_of_sources(name: str, way: str) -> None:
    with pytest.raises(ConfigError, match="score is one of share, probability, mean, net-mean"):
        load_metric(f"{name}:score={way}")


def test_counts_and_probabilities_of_claims() -> None:
    """A claim that one source supports and another contradicts is supported."""
    rows = support_rows(
        "x", [[0.9, 0.1], [0.1, 0.2], [0.3, 0.0]], contradiction=[[0, 0.9], [0.1, 0.6], [0.4, 0.1]]
    )
    found = score("faithfulness", claims(summary=3), rows)
    assert found.value == pytest.approx(1 / 3)
    assert found.components == {
        "supported": 1,
        "contradicted": 1,
        "unmentioned": 1,
        "unsure": 1,
        "mean_probability": pytest.approx((0.9 + 0.2 + 0.3) / 3),
        "least_probability": pytest.approx(0.2),
        "texts": 2,
        "repeats": "once",
        "n_repeats_summary": 0,
    }


@pytest.mark.parametrize(
    ("name", "repeats", "value", "by_claim"),
    [
        pytest.param("faithfulness", "once", 1 / 2, None, id="the repeat does not count"),
        pytest.param("faithfulness", "each", 2 / 3, None, id="it counts"),
        pytest.param("claim-support-share", "once", 1 / 4, [0.5, None, 0.0], id="a gap"),
        pytest.param("claim-support-share", "each", 1 / 3, [0.5, 0.5, 0.0], id="no gap"),
    ],
)
def test_a_repeated_claim_counts_once_unless_each_is_asked_for(
    name: str, repeats: str, value: float, by_claim: list[float | None] | None
) -> None:
    """Three claims by two sources; the second claim says what the first does."""
    given = claims(summary=3)
    given[1]["text"] = "The T0!"
    rows = support_rows("x", [[0.9, 0.1], [0.9, 0.1], [0.3, 0.0]])
    option = "" if repeats == "once" else f":repeats={repeats}"
    found = score(f"{name}{option}", given, rows)
    assert found.value == pytest.approx(value)
    assert {"repeats": repeats, "n_repeats_summary": 1}.items() <= found.components.items()
    assert found.components.get("by_claim") == by_claim
    assert ("repeats", repeats) in load_metric(f"{name}{option}").facts


def test_recall_looks_for_the_claims_of_references_in_the_summary() -> None:
    rows = [
        *support_rows("x", [[0.9], [0.8], [0.1], [0.1]]),
        *support_rows("x", [[0.7], [0.2]], sides=("references", "summary")),
    ]
    given = claims(summary=4, references=2), rows
    assert score("claim-recall", *given).value == pytest.approx(1 / 2)
    found = score("claim-f1", *given)
    n_repeats = {"n_repeats_summary": 0, "n_repeats_references": 0}
    assert found.components == {"precision": 0.5, "recall": 0.5, "repeats": "once", **n_repeats}
    assert found.value == pytest.approx(1 / 2)
    nothing = [row | {"verdict": "unmentioned"} for row in rows]
    assert score("claim-f1", given[0], nothing).value == 0.0


def test_other_ways_of_reading_do_not_mix() -> None:
    reads = {"model.best": 0.9, "window.best": 0.1, "model.all": 0.2}
    rows = [row for read, p in reads.items() for row in support_rows("x", [[p]], read=read)]
    assert score("faithfulness", claims(summary=1), rows).value == 1.0
    assert score("faithfulness:read=window", claims(summary=1), rows).value == 0.0
    assert score("faithfulness:evidence=all", claims(summary=1), rows).value == 0.0


@pytest.mark.parametrize("threshold", ["high", "1.5", "nan"])
def test_a_threshold_is_a_probability(threshold: str) -> None:
    with pytest.raises(ConfigError, match="threshold is one of model, a number from 0 to 1"):
        load_metric(f"faithfulness:threshold={threshold}")
