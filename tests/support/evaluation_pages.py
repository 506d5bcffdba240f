"""Pages of evaluations and of `compare`, made of names that a test chooses."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from claimscore.evaluation.comparison import CompareConfig, compare
from claimscore.evaluation.comparison_tables import sections_of, signature_of
from claimscore.evaluation.correlations import CorrelateConfig, correlate
from claimscore.evaluation.label_items import LabelConfig, draw, write_sheet
from claimscore.evaluation.labels import LabelsConfig, evaluate_labels
from claimscore.evaluation.result import EvaluationResult
from claimscore.report.evaluation_page import write_evaluation_page
from tests.support.compared_runs import write_run
from tests.support.labelled_runs import write_judged_run
from tests.support.rated_tables import rated_rows, write_jsonl

COMMAND = "claimscore evaluate x"


def write_result_page(result: EvaluationResult, path: Path, command: str) -> Path:
    write_evaluation_page(path, result.title, command, result.signature(), result.sections)
    return path


def write_compare_page(config: CompareConfig, path: Path, command: str) -> Path:
    result = compare(config)
    write_evaluation_page(path, "Runs compared", command, signature_of(result), sections_of(result))
    return path


def hostile_runs(folder: Path, word: str) -> list[Path]:
    """Two runs in which every text that others could choose has `word` in it."""
    ids = [f"{word} {number}" for number in range(6)]
    first = ids[0]
    return [
        write_run(
            folder / f"run{place}",
            ids,
            {f"m {word}": [float(number * place) for number in range(1, 6)] + [None]},
            claims={
                (first, "a"): [
                    f"The pool is {warm} warm {word} {word * place}",
                    f"{word} only in {place} {warm * 3}",
                ],
                (first, "b"): [f"{word} both"],
            },
            facts={(first, "summary"): [(word, f"{word} {place}")]},
            columns={"group": [word] * 6, f"c {word}": [f"{word} {place}"] * 6},
            settings={"additive": {"llm": {"model": f"{word} {place}".replace("\0", "")}}},
            signature=f"{word}|x:{word}{place}",
        )
        for place, warm in ((1, "very"), (2, "not"))
    ]


def correlate_page(folder: Path, name: str) -> Path:
    """Every name is `name`: of the scores, the ratings, the columns."""
    rows = [
        {
            f"s {name}": row["good"],
            f"r {name}": row["ratings"]["fluency"],
            f"c {name}": row["article"],
            "system": row["system"],
        }
        for row in rated_rows(6)
    ]
    config = CorrelateConfig(
        str(write_jsonl(folder / "t.jsonl", rows)),
        (f"s {name}",),
        (f"r {name}",),
        case=f"c {name}",
        samples=20,
    )
    return write_result_page(correlate(config), folder / "correlate.html", f"{COMMAND} {name}")


def compare_page(folder: Path, name: str) -> Path:
    """Two runs whose texts, ids, settings and columns have `name` in them."""
    for old in folder.glob("run?"):
        shutil.rmtree(old)
    runs = hostile_runs(folder, name)
    config = CompareConfig(tuple(map(str, runs)), by="group", samples=20)
    return write_compare_page(config, folder / "compare.html", f"{COMMAND} {name}")


def labels_page(folder: Path, name: str) -> Path:
    """Labels of people of a run, and files, that have `name` in them."""
    claims = [(f"{name} {n}", ("supported", "unmentioned")[n % 2], n / 8) for n in range(8)]
    shutil.rmtree(folder / "judged", ignore_errors=True)
    run = write_judged_run(folder / "judged", {f"{name} {n}": claims for n in range(6)})
    sheet = folder / "labels.csv"
    rows = draw(LabelConfig(str(run), n=30)).with_columns(label=pl.lit("supported"))
    write_sheet(rows, sheet)
    config = LabelsConfig(str(run), (str(sheet),), samples=20)
    return write_result_page(evaluate_labels(config), folder / "labels.html", f"{COMMAND} {name}")


PAGES = [
    pytest.param(labels_page, id="labels"),
    pytest.param(correlate_page, id="correlate"),
    pytest.param(compare_page, id="compare"),
]
