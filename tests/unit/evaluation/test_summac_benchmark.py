"""`evaluate summac`: the benchmark's protocol and the notebook's."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.published import SUMMAC_TEST, summac_figure
from claimscore.evaluation.summac_benchmark import SummacConfig, SummacResult, summac_benchmark
from claimscore.records.columns import in_first_half
from claimscore.stats.classification import balanced_accuracy, best_threshold, roc_auc
from tests.support.rated_tables import labelled_rows, write_jsonl


def found(rows: list[dict], folder: Path, **options: object) -> SummacResult:
    path = str(write_jsonl(folder / "t.jsonl", rows))
    chosen = {"scores": ("good", "poor"), "samples": 500}
    return summac_benchmark(SummacConfig((path,), **{**chosen, **options}))


def part(rows: list[dict], **wanted: object) -> tuple[list[float], list[int]]:
    chosen = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    return [row["good"] for row in chosen], [row["label"] for row in chosen]


def value(result: SummacResult, dataset: str, measure: str = "balanced_accuracy") -> dict:
    (row,) = result.rows.filter(score="good", dataset=dataset, measure=measure).to_dicts()
    return row


def test_threshold_from_validation_value_from_test(tmp_path: Path):
    rows = labelled_rows()
    result = found(rows, tmp_path)
    for dataset in ("frank", "mine"):
        validation = part(rows, dataset=dataset, split="val")
        test = part(rows, dataset=dataset, split="test")
        threshold = best_threshold(*validation)
        row = value(result, dataset)
        assert row["threshold"] == threshold
        assert row["value"] == pytest.approx(balanced_accuracy(*test, threshold))
        assert value(result, dataset, "roc_auc")["value"] == pytest.approx(roc_auc(*test))
        assert row["positives"] == pytest.approx(sum(test[1]) / 60)
        assert (row["threshold_on"], row["scored_on"]) == ("val", "test")
    for measure in ("balanced_accuracy", "roc_auc"):
        mean = sum(value(result, name, measure)["value"] for name in ("frank", "mine")) / 2
        assert value(result, "overall", measure)["value"] == pytest.approx(mean)


def test_two_tables_are_one_benchmark(tmp_path: Path):
    """Validation and test may stand in two files, the split named `cut`, no set named."""
    rows = [row for row in labelled_rows() if row["dataset"] == "mine"]
    named = {"val": "valid", "test": "test"}
    whole = [{k: v for k, v in row.items() if k != "dataset"} for row in rows]
    expected = found(whole, tmp_path).rows
    assert expected["dataset"].unique().to_list() == ["t"]
    paths = []
    for split in ("val", "test"):
        (tmp_path / split).mkdir()
        part = [
            {**row, "cut": named[split], "split": None} for row in whole if row["split"] == split
        ]
        paths.append(str(write_jsonl(tmp_path / split / "t.jsonl", part)))
    config = SummacConfig(tuple(paths), ("good", "poor"), split="cut", samples=500)
    assert summac_benchmark(config).rows.equals(expected)


def test_the_notebook_scores_what_it_tuned_on(tmp_path: Path):
    rows = labelled_rows()
    paper = found(rows, tmp_path)
    notebook = found(rows, tmp_path, protocol="notebook")
    test = part(rows, dataset="frank", split="test")
    assert "threshold picked on the rows it scores" in notebook.markdown()
    assert notebook.to_json()["protocol"] == "notebook"
    row = value(notebook, "frank")
    assert row["threshold"] == best_threshold(*test)
    assert row["value"] == pytest.approx(balanced_accuracy(*test, row["threshold"]))
    assert row["value"] >= value(paper, "frank")["value"]
    assert (row["threshold_on"], row["scored_on"]) == ("test", "test")


def test_the_notebook_takes_all_rows_where_there_is_no_test(tmp_path: Path):
    rows = [row for row in labelled_rows() if row["split"] == "val"]
    row = value(found(rows, tmp_path, protocol="notebook"), "mine")
    assert (row["n"], row["scored_on"]) == (60, "all rows")


def test_halves_by_parity(tmp_path: Path):
    rows = [row for row in labelled_rows() if row["split"] == "val"][1:]
    result = found(rows, tmp_path, split_by="even")
    scores, labels = part(rows, dataset="mine")
    threshold = best_threshold(scores[::2], labels[::2])
    row = value(result, "mine")
    assert row["threshold"] == threshold
    assert row["value"] == pytest.approx(balanced_accuracy(scores[1::2], labels[1::2], threshold))
    assert (row["threshold_on"], row["scored_on"], row["n"]) == ("even rows", "odd rows", 30)
    assert "threshold from the even rows, scores of the odd rows" in result.markdown()


def articles(n: int = 90) -> list[dict]:
    """Rows of one split, three in a row on one article, label and score alternating by row."""
    rows = [row for row in labelled_rows(n) if row["split"] == "val"]
    return [{**row, "id": str(i), "source": f"article {i // 3}"} for i, row in enumerate(rows)]


def test_halves_of_a_column(tmp_path: Path):
    rows = articles()
    row = value(found(rows, tmp_path, split_by="source"), "mine")
    first = [r for r in rows if r["dataset"] == "mine" and in_first_half(r["source"], 0)]
    second = [r for r in rows if r["dataset"] == "mine" and not in_first_half(r["source"], 0)]
    assert {r["source"] for r in first}.isdisjoint(r["source"] for r in second)
    assert (row["n_threshold"], row["n"]) == (len(first), len(second))
    assert row["threshold"] == best_threshold(*part(first))
    assert row["value"] == pytest.approx(balanced_accuracy(*part(second), row["threshold"]))
    names = ("first half by source", "second half by source")
    assert (row["threshold_on"], row["scored_on"]) == names


def test_halves_of_a_column_do_not_depend_on_the_order(tmp_path: Path):
    rows = articles()
    values = [
        value(found(table, tmp_path, split_by="id", **more), "mine")["value"]
        for table, more in (
            (rows, {}),
            (rows[::-1], {}),
            (rows, {"seed": 5}),
            ([row for row in rows if row["dataset"] == "mine"], {}),
            (rows, {"split_seed": 1}),
        )
    ]
    assert values[0] == values[1] == values[2] == values[3] != values[4]


def test_missing_scores(tmp_path: Path):
    rows = labelled_rows()
    rows[3]["good"] = None
    with pytest.raises(InputError, match="1 rows have no good"):
        found(rows, tmp_path)
    result = found(rows, tmp_path, drop_missing=True)
    assert result.left_out == 1
    assert "1 rows left out" in result.markdown()
    assert result.rows.filter(dataset="frank")["n_threshold"].drop_nulls().unique().item() == 59


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        pytest.param({"split": "val"}, {}, "needs rows of split val and of split test", id="split"),
        pytest.param({"split": None}, {}, "has .* empty values", id="no split"),
        pytest.param({}, {"split_by": "even"}, "has both splits", id="split_by"),
        pytest.param({}, {"split_by": "article"}, "no column article", id="halves column"),
        pytest.param({"label": 2}, {}, "must hold 0 or 1", id="label"),
        pytest.param({"label": 1}, {}, "both labels must occur", id="one label"),
        pytest.param({}, {"split": "part"}, "no column part", id="split column"),
        pytest.param({}, {"protocol": "book"}, "none of paper, notebook", id="protocol"),
        pytest.param({}, {"samples": 0}, "--samples", id="samples"),
    ],
)
def test_what_cannot_be_evaluated(tmp_path: Path, change: dict, options: dict, message: str):
    rows = [{**row, **change} for row in labelled_rows()]
    with pytest.raises(ConfigError, match=message):
        found(rows, tmp_path, **options)


def test_published_rows_are_plain_means():
    for model, measures in SUMMAC_TEST.items():
        for measure, figures in measures.items():
            assert sum(figures[:6]) / 6 == pytest.approx(figures[6], abs=6e-4), (model, measure)
    assert summac_figure("SummaC-ZS", "balanced_accuracy", "CoGenSumm") == 0.704
    assert summac_figure("SummaC-Conv", "roc_auc", "overall") == 0.778
    assert summac_figure("SummaC-ZS", "roc_auc", "mine") is None
