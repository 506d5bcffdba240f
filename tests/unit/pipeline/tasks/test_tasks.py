"""The tasks as pure functions: texts -> units, answers -> rows."""

import json
import math
from typing import Any

import pytest

from claimscore.errors import ParseError
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import SideText, TaskInput, Unit, value_probabilities
from claimscore.types import TokenLogprob

# -- answers


@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        ("decompose", {"claims": ["Fine.", " "]}, "empty"),
        ("decompose", {"claims": ["Fine."], "ambiguous": ["\n"]}, "empty"),
        ("paraphrase", {"paraphrase": "\n"}, "empty"),
        ("negate", {"negation": ""}, "empty"),
        ("facts", {"facts": [{"subject": "", "description": "x"}]}, "empty"),
        ("facts", {"facts": [{"subject": "x", "description": " "}]}, "empty"),
        ("questions", {"questions": [{"question": "", "answer": "x"}]}, "empty"),
        ("questions", {"questions": [{"question": "x", "answer": "\n"}]}, "empty"),
        ("answers", {"answerable": True, "answer": " "}, "empty"),
        ("judge", {"score": 0}, "from 1 to 5, not 0"),
        ("judge", {"score": 6}, "from 1 to 5, not 6"),
    ],
)
def test_an_answer_that_says_nothing(task: str, answer: dict[str, Any], message: str) -> None:
    """It becomes a new sample, then a failure row; never an empty claim in a table."""
    with pytest.raises(ParseError, match=message):
        TASKS[task].check(answer)


def test_an_answer_may_have_nothing_to_say() -> None:
    """An empty list is an answer, not a failure; what is not answerable has no answer, whatever
    the model wrote beside it."""
    TASKS["decompose"].check({"claims": []})
    assert TASKS["decompose"].rows(Unit("r", "a", "Wow!", "Wow!", 0), {"claims": []}) == []
    TASKS["questions"].check({"questions": []})
    TASKS["answers"].check({"answerable": False, "answer": ""})
    unit = Unit("r1", "summary", "t", "t", 3, more={"question": "Q?"})
    for answerable, expected in ((False, None), (True, "warm")):
        (row,) = TASKS["answers"].rows(unit, {"answerable": answerable, "answer": " warm "})
        assert json.loads(row["answer"]) == {"answer": expected}
        assert (row["index"], row["question"]) == (3, "Q?")


def tokens(*texts: str, **top: float) -> list[TokenLogprob]:
    """Tokens of an answer; the probabilities stand at the one that is the digit."""
    others = tuple((name.replace("_", " "), math.log(p)) for name, p in top.items())
    return [
        TokenLogprob(text, math.log(0.5), others if any(c.isdigit() for c in text) else ())
        for text in texts
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            tokens('{"', "score", '":', " ", "4", "}", **{"4": 0.5, "5": 0.25, "x": 0.25}),
            {"4": 0.5, "5": 0.25},
            id="a digit of its own",
        ),
        pytest.param(
            tokens('{"score": ', "4", "}", **{"4": 0.5, "_4": 0.125, "3": 0.25}),
            {"3": 0.25, "4": 0.625},
            id="two tokens say the same",
        ),
        pytest.param(
            tokens('{"score":', " 4}", **{"_4}": 0.5, "_5}": 0.5}),
            {"4": 0.5, "5": 0.5},
            id="signs around it",
        ),
        pytest.param(
            tokens('{"score": ', "4", "}", "<|im_end|>", **{"44": 0.3, "4.": 0.1, "0": 0.1}),
            {"4": 0.5},
            id="what is no score",
        ),
        pytest.param(tokens('{"score": ', "3", "}"), None, id="of another answer"),
        pytest.param(tokens('{"sc', 'ore": 4}'), None, id="not a token of its own"),
        pytest.param([], None, id="none"),
    ],
)
def test_score_probabilities(found: list[TokenLogprob], expected: dict[str, float] | None) -> None:
    probabilities = value_probabilities("score", list("12345"), "4", found)
    assert probabilities == (expected and pytest.approx(expected))


def test_an_ambiguous_claim_of_another_text_is_misplaced_too() -> None:
    misplaced = TASKS["decompose"].misplaced
    assert misplaced is not None
    late = {"claims": [], "ambiguous": ["Dinner came late."]}
    assert misplaced(["The pool was warm.", "Dinner came late."], {0: late, 1: late}) == {0}


def test_a_whole_text_has_no_context() -> None:
    given = TaskInput([SideText("r", "a", "It is old. It is big.")], "summary", {})
    (unit,) = TASKS["decompose"].units(given)
    wanted = frozenset({"text", "before", "after"})
    assert unit.fields(wanted) == {"text": "It is old. It is big.", "before": "", "after": ""}


def test_the_context_of_a_sentence_is_the_first_one_and_its_neighbours() -> None:
    """The first sentence says whom a text is about."""
    text = "Zero is old. One is old. Two is old. Three is old. Four is old. Five is old."
    units = list(TASKS["decompose"].units(TaskInput([SideText("r", "a", text)], "sentence", {})))
    shown = [unit.fields(frozenset({"before", "after"})) for unit in units]
    assert shown[0] == {"before": "", "after": "One is old."}
    assert shown[2] == {"before": "Zero is old. One is old.", "after": "Three is old."}
    before = "Zero is old. Two is old. Three is old. Four is old."
    assert shown[5] == {"before": before, "after": ""}


# -- rows


def test_the_negated_claims_of_a_sentence_are_joined_again() -> None:
    """One row of level `sentence` follows the claims of each sentence, for each sample by itself,
    with all their words."""
    task = TASKS["negate"]
    rows = [
        {**row, "sample": sample}
        for sentence, claim, text in ((0, 0, "not warm"), (0, 1, "not big"), (1, 0, "no hotel"))
        for sample in (0, 1)
        for row in task.rows(
            Unit("r1", "a", "...", "...", sentence, claim),
            {"negation": f"Room {sample} is {text}."},
        )
    ]
    assert task.join is not None
    joined = task.join(rows)
    assert [(row["level"], row["sentence_index"], row["sample"]) for row in joined] == [
        *(("claim", 0, 0), ("claim", 0, 0), ("sentence", 0, 0)),
        *(("claim", 0, 1), ("claim", 0, 1), ("sentence", 0, 1)),
        *(("claim", 1, 0), ("sentence", 1, 0), ("claim", 1, 1), ("sentence", 1, 1)),
    ]
    assert all(words in joined[2]["text"] for words in ("Room 0", "not warm", "not big"))
    assert joined[2]["claim_index"] is None


@pytest.mark.parametrize("name", list(TASKS))
def test_every_tasks_rows_fit_its_table(name: str) -> None:
    answers = {
        "decompose": {"claims": ["a"]},
        "paraphrase": {"paraphrase": "a"},
        "negate": {"negation": "a"},
        "facts": {"facts": [{"subject": "a", "description": "b"}]},
        "judge": {"score": 4, "probabilities": None},
        "questions": {"questions": [{"question": "a?", "answer": "b"}]},
        "answers": {"answerable": True, "answer": "b"},
        "verify": {"verdict": "supported", "evidence": "x", "probabilities": {"supported": 1.0}},
    }
    task = TASKS[name]
    more = dict.fromkeys((*task.fields, "read"), "x")
    rows = task.rows(Unit("r1", "summary", "t", "t", 0, 0, more, (0, 0, 0)), answers[name])
    assert task.table.frame(rows).height == 1
    assert set(rows[0]) <= set(task.table.schema)
