"""Inconsistent summaries made by rule: always another text, always the same one."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.training.inconsistent import (
    RULES,
    entity_edits,
    inconsistent_summary,
    make_negatives,
    negation_edits,
    number_edits,
    pronoun_edits,
)

SOURCE = (
    "Angela Merkel met Emmanuel Macron in Paris on Monday, 3 May 2010. The Bank of England said "
    "that 250 people were there. They had been waiting for two hours in June."
)


def results(edits, summary: str, source: str = SOURCE) -> list[str]:  # type: ignore[no-untyped-def]
    return [edit.apply(summary) for edit in edits(summary, source)]


@pytest.mark.parametrize(
    ("edits", "summary", "expected"),
    [
        pytest.param(
            entity_edits,
            "Merkel was in London.",
            [
                "Merkel was in Angela Merkel.",
                "Merkel was in Emmanuel Macron.",
                "Merkel was in Paris.",
                "Merkel was in Bank of England.",
            ],
            id="an entity for the document's",
        ),
        pytest.param(
            entity_edits,
            "Then Angela Merkel came.",
            ["Then Emmanuel Macron came.", "Then Paris came.", "Then Bank of England came."],
            id="not for a name that shares a word",
        ),
        pytest.param(
            number_edits,
            "There were 300 in 2010.",
            ["There were 3 in 2010.", "There were 250 in 2010."],
            id="a count for a count, never for a year",
        ),
        pytest.param(number_edits, "In 2011.", ["In 2010."], id="a year for a year"),
        pytest.param(number_edits, "On Friday.", ["On Monday."], id="a day for a day"),
        pytest.param(number_edits, "At 12:15 it was.", [], id="no part of a time of day"),
        pytest.param(negation_edits, "He is here.", ["He is not here."], id="negated"),
        pytest.param(negation_edits, "He is not here.", ["He is here."], id="affirmed"),
        pytest.param(negation_edits, "He didn't come.", ["He did come."], id="contracted"),
        pytest.param(negation_edits, "He won’t come.", ["He will come."], id="won’t"),
        pytest.param(negation_edits, "Nothing to see", [], id="no auxiliary"),
        pytest.param(pronoun_edits, "She came.", ["He came."], id="she"),
        pytest.param(pronoun_edits, "I came.", ["We came."], id="I"),
        pytest.param(pronoun_edits, "Her dog.", [], id="her is left alone"),
    ],
)
def test_each_rule_by_hand(edits, summary: str, expected: list[str]) -> None:  # type: ignore[no-untyped-def]
    assert results(edits, summary) == expected


def test_numbers_that_the_document_lacks_come_from_the_list() -> None:
    assert "In July." in results(number_edits, "In August.", "no month")
    assert "It had nine rooms." in results(number_edits, "It had two rooms.", "no number")
    assert results(number_edits, "It cost 5 euros.", "no number") == []


@settings(max_examples=60)
@given(st.text(max_size=80), st.text(max_size=80), st.integers(0, 50))
def test_the_result_is_another_text_and_repeatable(summary: str, source: str, seed: int) -> None:
    made = inconsistent_summary(summary, source, seed=seed)
    assert made == inconsistent_summary(summary, source, seed=seed)
    assert made is None or made.text != summary


def test_every_rule_is_drawn_where_all_apply() -> None:
    summary = "She said that Angela Merkel is 40."
    rules = {
        made.rule
        for seed in range(60)
        if (made := inconsistent_summary(summary, SOURCE, seed=seed))
    }
    assert rules == set(RULES)


def records(*summaries: str) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": [str(i) for i in range(len(summaries))],
            "source": [SOURCE] * len(summaries),
            "summary": list(summaries),
        }
    )


def test_a_table_of_negatives_depends_on_each_record_alone() -> None:
    table = records("She is here.", "Nothing to change", "There were 300.")
    made = make_negatives(table, seed=3)
    assert made["id"].to_list() == ["0-negative", "2-negative"]
    assert made["label"].to_list() == [0, 0]
    assert set(made["rule"]) <= set(RULES)
    assert make_negatives(table.reverse(), seed=3).reverse().equals(made)
    assert not set(made["summary"]) & set(table["summary"])
