"""`papers.summac`: the benchmark's protocol, golden thresholds, and the grid."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from claimscore.metrics import load_metric
from claimscore.stats.agreement import best_threshold, weighted_accuracy, weighted_auc
from papers.summac import GRID, evaluate, main, records
from tests.support.rated_tables import labelled_rows, write_jsonl

SCORED = pl.DataFrame(labelled_rows())


def part(dataset: str, split: str) -> tuple[pl.Series, pl.Series]:
    rows = SCORED.filter(dataset=dataset, split=split)
    return rows["good"], rows["label"]


@pytest.mark.parametrize(("notebook", "picked"), [(False, "val"), (True, "test")])
def test_the_threshold_comes_from_val_or_as_in_the_notebook(notebook: bool, picked: str):
    of = evaluate(SCORED, "good", notebook)
    for dataset in ("frank", "mine"):
        scores, labels = (column.to_numpy() for column in part(dataset, "test"))
        positive, once = labels.astype(bool), np.ones((1, len(labels)))
        predicted = scores > best_threshold(*part(dataset, picked))
        accuracy, auc = (draws[0] for draws in of[dataset])
        assert accuracy == pytest.approx(weighted_accuracy(predicted, positive)(once)[0])
        assert auc == pytest.approx(weighted_auc(scores, positive)(once)[0])
    for place in (0, 1):
        mean = (of["frank"][place][0] + of["mine"][place][0]) / 2
        assert of["overall"][place][0] == pytest.approx(mean)


def test_a_set_with_one_split_is_halved_by_documents():
    rows = pl.DataFrame(
        [
            {"dataset": "d", "split": "val", "source": f"S {n // 2}", "summary": "s", "label": 1}
            for n in range(40)
        ]
    ).with_row_index("id")
    made = records(rows, None)
    assert set(made["split"]) == {"val", "test"}
    assert made.group_by("source").agg(pl.col("split").n_unique())["split"].max() == 1
    assert records(rows, 3).group_by("split").len()["len"].to_list() == [3, 3]
    both = rows.with_columns(split=pl.Series(["val", "test"] * 20))
    assert records(both, None)["split"].sort().to_list() == ["test"] * 20 + ["val"] * 20


def test_the_grid_is_of_metrics_that_there_are():
    assert len({load_metric(name).name for name in GRID}) == 4 * 4 * 3 * 3


def test_from_records_to_tables(tmp_path: Path, capsys: Any):
    rows = [
        {
            **{"id": f"{split}{n}", "dataset": "frank", "split": split, "label": n % 2},
            "source": f"Room {n} is clean and its bed is soft.",
            "summary": [f"The pool {n} is warm.", f"Room {n} is clean."][n % 2],
        }
        for split in ("val", "test")
        for n in range(8)
    ]
    path = write_jsonl(tmp_path / "records.jsonl", rows)
    out = tmp_path / "out"
    main([str(path), "--out", str(out), "--metrics", "rouge-1:against=source"])
    table = (out / "balanced accuracy.md").read_text(encoding="utf-8").splitlines()
    ours = next(line for line in table if line.startswith("| rouge-1"))
    assert [cell.strip() for cell in ours.split("|")[2:-1]] == ["100.0", "100.0"]
    zero_shot = next(line for line in table if line.startswith("| SummaC-ZS, published"))
    assert [cell.strip() for cell in zero_shot.split("|")[2:-1]] == ["79.0", ""]
    assert "16 rows, 0 of them lack some score." in capsys.readouterr().out
    write_jsonl(path, [row | {"label": 1} for row in rows])
    with pytest.raises(SystemExit):
        main([str(path), "--out", str(tmp_path / "o"), "--metrics", "rouge-1:against=source"])
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: frank, rouge-1:against=source: both labels must occur")
