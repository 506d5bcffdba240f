"""`evaluate support`: hand-computed measures of a few labelled rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation import support_benchmark
from claimscore.evaluation.support_benchmark import SupportConfig, evaluate_support
from claimscore.records.columns import in_first_half

#: Two documents, one in each half of seed 0.
FIRST = next(name for name in map(str, range(99)) if in_first_half(name, 0))
SECOND = next(name for name in map(str, range(99)) if not in_first_half(name, 0))
SOURCE = "The red kettle boils water quickly."


def row(id: str, case: str, label: int, score: float | None, **more: Any) -> dict[str, Any]:
    texts = {"source": SOURCE, "summary": "The red kettle is quick."}
    return {"id": id, "case": case, "label": label, "s": score, **texts, **more}


#: Of the twins one is in the right order, one the wrong way round, one a tie.
ROWS = [
    row("a", FIRST, 1, 0.8),
    row("a1", FIRST, 0, 0.3, twin="a", kind="number"),
    row("a2", FIRST, 0, 0.8, twin="a", kind=["name", "number"]),
    row("b", SECOND, 1, 0.4),
    row("b1", SECOND, 0, 0.6, twin="b", kind="name"),
]


def table(folder: Path, rows: list[dict[str, Any]], name: str = "mine") -> str:
    path = folder / f"{name}.jsonl"
    listed = [{**r, "kind": [k] if isinstance(k := r.get("kind", []), str) else k} for r in rows]
    path.write_text("".join(json.dumps(r) + "\n" for r in listed), encoding="utf-8")
    return str(path)


def evaluate(folder: Path, rows: list[dict[str, Any]], **options: Any) -> Any:
    config = SupportConfig(table(folder, rows), ("s",), samples=50, **options)
    return evaluate_support(config)


def measures(result: Any, score: str = "s", kind: str | None = None) -> dict[str, Any]:
    (found,) = (
        r for r in result.tables["support"].to_dicts() if r["score"] == score and r["kind"] == kind
    )
    return found


def test_measures_by_hand(tmp_path: Path) -> None:
    """Supported .8, .4 against .3, .8, .6: three and a half pairs of six in order.

    The first half is best told apart above .3, the second not at all.
    """
    found = measures(evaluate(tmp_path, ROWS))
    assert found["auc"] == pytest.approx((1 + 0.5 + 1 + 1 + 0 + 0) / 6)
    assert found["ordered"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["ordered_low"] == 0.0  # documents are drawn: twice the second one
    assert (found["n"], found["n_documents"], found["n_twins"]) == (5, 2, 3)
    assert found["positives"] == pytest.approx(2 / 5)


def test_the_threshold_is_that_of_the_other_half(tmp_path: Path) -> None:
    """Scores that are ten times as high in one half: each half's own threshold would be perfect."""
    rows = [
        row(f"{case}{label}", case, label, times * (1 + label))
        for case, times in ((FIRST, 1), (SECOND, 10))
        for label in (0, 1)
    ]
    assert measures(evaluate(tmp_path, rows))["balanced_accuracy"] == pytest.approx(0.5)
    equal = [r | {"s": r["label"]} for r in rows]
    assert measures(evaluate(tmp_path, equal))["balanced_accuracy"] == 1.0


def test_a_kind_of_errors_is_compared_with_all_supported_rows(tmp_path: Path) -> None:
    result = evaluate(tmp_path, ROWS)
    found = measures(result, kind="name")
    assert (found["n"], found["n_twins"], found["ordered"]) == (4, 2, pytest.approx(0.25))
    assert found["auc"] == pytest.approx((0.5 + 1 + 0 + 0) / 4)
    assert [section.title for section in result.sections] == [
        "All rows",
        "twins in the right order by kind of error",
    ]


def test_word_overlap_and_rouge_stand_beside_the_scores(tmp_path: Path) -> None:
    """The rows share their texts, so all tie but the one that has no word of its source."""
    rows = [*ROWS, row("c", FIRST, 0, 0.1, summary="A blue car.")]
    result = evaluate(tmp_path, rows)
    scores = result.tables["support"]["score"].unique(maintain_order=True).to_list()
    assert scores == ["word overlap", "ROUGE-1 precision", "s"]
    assert measures(result, "word overlap")["auc"] == pytest.approx((3 * 0.5 + 1) / 4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([row("a", FIRST, 2, 0.1)], "label must hold 0 or 1", id="a label"),
        pytest.param([row("a", FIRST, 1, None), *ROWS[1:]], "1 rows have no s", id="no score"),
        pytest.param(ROWS[:3], "has rows of one label only", id="one half"),
        pytest.param(ROWS[:1], "both labels must occur", id="one label"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(tmp_path, rows)
    with pytest.raises(ConfigError, match="--scores"):
        SupportConfig("x", ())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:3], "rows of one label only"),
        ([*ROWS, row("c", FIRST, 1, 0.9, kind="good")], "of kind good: both labels must occur"),
    ],
)
def test_one_label_is_refused_before_a_verifier_works(
    rows: list[dict[str, Any]],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(support_benchmark, "verify", lambda *_, **__: pytest.fail("it works"))
    with pytest.raises(InputError, match=message):
        evaluate(tmp_path, rows, verifiers=("nli",))


def test_rows_without_a_score_are_left_out_and_counted(tmp_path: Path) -> None:
    result = evaluate(tmp_path, [*ROWS, row("c", FIRST, 1, None)], drop_missing=True)
    assert result.facts["left_out"] == 1
    assert measures(result)["n"] == 5
