"""Pages of evaluations and of `compare`, made of names that a test chooses."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from claimscore.config import RunConfig
from claimscore.evaluation.caspr_experiment import (
    COMPARISONS,
    MEANS_SCHEMA,
    RHO_SCHEMA,
    CasprConfig,
    CasprResult,
    MissingPair,
)
from claimscore.evaluation.compare.comparison import CompareConfig, compare
from claimscore.evaluation.correlations import CorrelateConfig, correlate
from claimscore.evaluation.label_items import LabelConfig, draw, write_sheet
from claimscore.evaluation.labels import LabelsConfig, evaluate_labels
from claimscore.evaluation.summac_benchmark import SUMMAC_SCHEMA, SummacConfig, summac_benchmark
from claimscore.evaluation.summac_grid import CELL_SCHEMA, SPEED_SCHEMA, GridConfig, GridResult
from claimscore.report.evaluation.benchmark_pages import write_result_page
from claimscore.report.evaluation.compare_page import write_compare_page
from tests.support.compared_runs import write_run
from tests.support.labelled_runs import write_judged_run
from tests.support.rated_tables import labelled_rows, rated_rows, write_jsonl

COMMAND = "claimscore evaluate x"
E, N, C = "entailment", "neutral", "contradiction"


class Run(NamedTuple):
    """What `CasprResult.run` is asked for."""

    out: Path


def hostile_runs(folder: Path, word: str) -> list[Path]:
    """Two runs in which every text that others could choose has `word` in it."""
    ids = [f"{word} {number}" for number in range(6)]
    first = ids[0]
    labels = {(first, "a", 0, "b", 0): E, (first, "b", 0, "a", 0): N}
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
            labels=labels if place == 1 else labels | {(first, "a", 0, "b", 0): C},
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
            f"y {name}": row["system"],
        }
        for row in rated_rows(6)
    ]
    config = CorrelateConfig(
        str(write_jsonl(folder / "t.jsonl", rows)),
        (f"s {name}",),
        (f"r {name}",),
        case=f"c {name}",
        system=f"y {name}",
        samples=20,
    )
    path = folder / "correlate.html"
    write_result_page(correlate(config), path, f"{COMMAND} {name}")
    return path


def summac_page(folder: Path, name: str) -> Path:
    rows = [
        row | {"dataset": f"{row['dataset']} {name}", f"s {name}": row["good"]}
        for row in labelled_rows()
    ]
    config = SummacConfig((str(write_jsonl(folder / "t.jsonl", rows)),), (f"s {name}",), samples=20)
    path = folder / "summac.html"
    write_result_page(summac_benchmark(config), path, f"{COMMAND} {name}")
    return path


def grid_page(folder: Path, name: str) -> Path:
    operators = ("max", "mean", "min")
    bounds = dict.fromkeys(("low", "high", "low_corrected", "high_corrected"), 0.5)
    blocks = dict.fromkeys(("document_blocks", "summary_blocks"), "sentence")
    places = itertools.product(
        ("balanced_accuracy", "roc_auc"),
        (f"a {name}", "b", "overall"),
        enumerate(itertools.product(operators, operators)),
    )
    rows = [
        {"op1": op1, "op2": op2, "dataset": dataset, "measure": measure, "value": 0.5 + n / 100}
        | blocks
        | bounds
        for measure, dataset, (n, (op1, op2)) in places
    ]
    schema = {**CELL_SCHEMA, **{k: v for k, v in SUMMAC_SCHEMA.items() if k != "score"}}
    speed = [("sentence", "sentence", None, None, None)]
    config = GridConfig((f"t {name.replace('/', '_')[:40]}.jsonl",), folder)
    speeds = pl.DataFrame(speed, schema=SPEED_SCHEMA, orient="row")
    path = folder / "summac_grid.html"
    found = GridResult(config, pl.DataFrame(rows, schema=schema), speeds, 3)
    write_result_page(found, path, f"{COMMAND} {name}")
    return path


def caspr_result(folder: Path, name: str, n: int = 6) -> CasprResult:
    means, scores = [], []
    for place, comparison in enumerate(COMPARISONS):
        published = (9.5, 0.5) if place == 2 else (None, None)
        row = (name, comparison, n, 0, 10.0 * place + 2.5, 1.0, 1.0, 3.0, *published)
        means.append(dict(zip(MEANS_SCHEMA, row, strict=True)))
        of_pair = {"comparison": comparison, "pair": name, "metric": name, "reason": None}
        of_pair["signature"] = f"{name}|v1"
        scores += [of_pair | {"value": float(10 * place + number)} for number in range(n)]
    scores.append(scores[0] | {"value": None, "reason": f"why {name}"})
    rho = {"metric": name, "n": n, "spearman": 0.5, "low": 0.1, "high": 0.9, "p_value": 0.1}
    return CasprResult(
        CasprConfig(RunConfig(f"in {name}", folder, ("ds",)), drop_missing=True),
        Run(folder / "run"),  # type: ignore[arg-type]
        n,
        2,
        (MissingPair("syn_low", name, f"no text {name}"),),
        pl.DataFrame(scores),
        pl.DataFrame(means, schema=MEANS_SCHEMA),
        pl.DataFrame([rho | {"published": 0.4}], schema=RHO_SCHEMA),
    )


def caspr_page(folder: Path, name: str) -> Path:
    result = caspr_result(folder, name)
    path = folder / "caspr.html"
    write_result_page(result, path, f"{COMMAND} {name}")
    return path


def compare_page(folder: Path, name: str) -> Path:
    """Two runs whose texts, ids, settings and columns have `name` in them."""
    for old in folder.glob("run?"):
        shutil.rmtree(old)
    runs = hostile_runs(folder, name)
    path = folder / "compare.html"
    config = CompareConfig(tuple(map(str, runs)), by="group", samples=20)
    write_compare_page(compare(config), path, f"{COMMAND} {name}")
    return path


def labels_page(folder: Path, name: str) -> Path:
    """Labels of people of a run, and files, that have `name` in them."""
    claims = [(f"{name} {n}", ("supported", "unmentioned")[n % 2], n / 8) for n in range(8)]
    shutil.rmtree(folder / "judged", ignore_errors=True)
    run = write_judged_run(folder / "judged", {f"{name} {n}": claims for n in range(6)})
    sheet = folder / "labels.csv"
    rows = draw(LabelConfig(str(run), n=30)).with_columns(label=pl.lit("supported"))
    write_sheet(rows, sheet)
    config = LabelsConfig(str(run), (str(sheet),), samples=20)
    path = folder / "labels.html"
    write_result_page(evaluate_labels(config), path, f"{COMMAND} {name}")
    return path


PAGES = [
    pytest.param(labels_page, id="labels"),
    pytest.param(correlate_page, id="correlate"),
    pytest.param(summac_page, id="summac"),
    pytest.param(grid_page, id="grid"),
    pytest.param(caspr_page, id="caspr"),
    pytest.param(compare_page, id="compare"),
]
