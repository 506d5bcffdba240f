"""Planted errors: what is planted is of no kind but its own, and nowhere in the article."""

from __future__ import annotations

import pytest

planted = pytest.importorskip("benchmarks.planted_errors").planted

ARTICLE = (
    "The mayor of Leeds was elected in 2019. She had already lost in 2011. As always Anna Hill did "
    "not vote."
)
OTHER = "In 1987 the bridge of Bristol had cost 44 million. Nobody in Wells knew why at that time."


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "The mayor of Leeds was elected in 1987."),
        ("negation", "The mayor of Leeds was not elected in 2019."),
        ("true change of a number", "She had already lost in 2011."),
        ("true change of a name", "As always Anna Hill did not vote."),
    ],
)
def test_one_thing_is_changed(kind: str, text: str) -> None:
    summary = "The mayor of Leeds was elected in 2019."
    assert planted(summary, ARTICLE, OTHER, OTHER)[kind] == text


def test_names_and_sentences_come_from_elsewhere() -> None:
    summary = "The mayor of Leeds was elected in 2019."
    made = planted(summary, ARTICLE, OTHER, OTHER)
    assert made["name"] in {
        summary.replace("Leeds", name) for name in ("Bristol", "Wells", "Nobody")
    }
    assert made["invented sentence"] in {f"{summary} {s}." for s in OTHER.rstrip(".").split(". ")}
    assert planted(summary, ARTICLE, ARTICLE, "")["number"] is None
