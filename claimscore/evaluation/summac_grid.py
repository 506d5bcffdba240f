"""`claimscore evaluate summac-grid`: SummaC-ZS by granularity and by operators.

Laban et al. 2022, SummaC: the choice of granularity (Table 5), and of the operators over the
document and over the summary. One run a table computes one NLI image for each two
granularities; the operators are taken from it. Scores become numbers as in `evaluate summac`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.blocks import GRANULARITIES
from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.evaluation.sections import Section
from claimscore.evaluation.summac import (
    MEASURES,
    SUMMAC_SCHEMA,
    Protocol,
    SummacConfig,
    summac_benchmark,
)
from claimscore.evaluation.table import read_table
from claimscore.metrics import load_metric
from claimscore.metrics.base import Metric
from claimscore.metrics.summac.image import OPERATORS
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.run import run

#: The granularities of the paper's table, for either side.
PAPER_GRANULARITIES = ("sentence", "2sents", "paragraph", "document")

#: What a row of the grid has instead of the name of a score.
CELL_SCHEMA: dict[str, pl.DataType] = {
    "document_blocks": pl.String(),
    "summary_blocks": pl.String(),
    "op1": pl.String(),
    "op2": pl.String(),
}
SPEED_SCHEMA: dict[str, pl.DataType] = {
    "document_blocks": pl.String(),
    "summary_blocks": pl.String(),
    "documents": pl.Int64(),
    "seconds": pl.Float64(),
    "documents_per_minute": pl.Float64(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class GridConfig:
    """The grid, its data and its model; the rest as in `SummacConfig`."""

    tables: tuple[str, ...]
    out: Path
    document_blocks: tuple[str, ...] = PAPER_GRANULARITIES
    summary_blocks: tuple[str, ...] = PAPER_GRANULARITIES
    variant: str = "paper"
    splitter: str = "rules"
    blocks: str = "code"
    encoders: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    dataset: str = "dataset"
    split: str | None = None
    label: str = "label"
    halves: str | None = None
    half_seed: int = 0
    protocol: Protocol = "paper"
    drop_missing: bool = False
    samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for option, names in (
            ("--document-blocks", self.document_blocks),
            ("--summary-blocks", self.summary_blocks),
        ):
            unknown = [name for name in names if name not in GRANULARITIES]
            if unknown or not names:
                known = ", ".join(GRANULARITIES)
                raise ConfigError(f"{option}: {', '.join(unknown) or 'nothing'}; known: {known}")
        folders = [self.run_folder(table) for table in self.tables]
        if len(set(folders)) < len(folders):
            raise ConfigError("two tables have the same file name; each gets a folder of its own")
        self.benchmark(["a score"])

    def run_folder(self, table: str) -> Path:
        """Where the table's run is: what it scores need not be computed again."""
        return self.out / "runs" / Path(table).stem

    def benchmark(self, scores: Sequence[str]) -> SummacConfig:
        """`evaluate summac` over the runs."""
        return SummacConfig(
            tables=tuple(str(self.run_folder(table)) for table in self.tables),
            scores=tuple(scores),
            dataset=self.dataset,
            split=self.split,
            label=self.label,
            halves=self.halves,
            half_seed=self.half_seed,
            protocol=self.protocol,
            drop_missing=self.drop_missing,
            samples=self.samples,
            seed=self.seed,
        )


class Cell(NamedTuple):
    """One setting of SummaC-ZS: blocks of either side, operators over either side."""

    document_blocks: str
    summary_blocks: str
    op1: str
    op2: str


class GridResult(NamedTuple):
    """`rows` as of `evaluate summac` with `CELL_SCHEMA` in the place of the score.

    `speed` has a row for each two granularities: `SPEED_SCHEMA`, null where the folder had all
    NLI already. Loading the model does not count, cutting texts and writing the table do.
    """

    rows: pl.DataFrame
    speed: pl.DataFrame
    left_out: int
    protocol: Protocol


def summac_grid(
    config: GridConfig, on_progress: Callable[[Progress], None] | None = None
) -> GridResult:
    """Score the tables with every setting by one run each, and evaluate all settings.

    Raises as `run` and `summac_benchmark` do.
    """
    for table in config.tables:
        read_table(table, [config.label]).numbers(config.label)  # before anything is computed
    cells = {_metric(config, cell): cell for cell in _cells(config)}
    names = {metric.name: cell for metric, cell in cells.items()}
    work: dict[str, tuple[int, float]] = {}
    for table in config.tables:
        summary = run(
            RunConfig(
                table,
                config.run_folder(table),
                tuple(names),
                encoders=config.encoders,
                seed=config.seed,
            ),
            on_progress=on_progress,
        ).summary
        for step, done in summary["last_call"]["passes"].items():
            documents, seconds = work.get(step, (0, 0.0))
            work[step] = (documents + done["records"], seconds + done["seconds"])
    result = summac_benchmark(config.benchmark(list(names)))
    rows = [
        (*names[row["score"]], *(row[name] for name in SUMMAC_SCHEMA if name != "score"))
        for row in result.rows.iter_rows(named=True)
    ]
    schema = {**CELL_SCHEMA, **{k: v for k, v in SUMMAC_SCHEMA.items() if k != "score"}}
    steps = {
        (cell.document_blocks, cell.summary_blocks): metric.requires.passes[0].step
        for metric, cell in cells.items()
    }
    speed = [(*pair, *_speed(*work.get(step, (0, 0.0)))) for pair, step in steps.items()]
    return GridResult(
        pl.DataFrame(rows, schema=schema, orient="row"),
        pl.DataFrame(speed, schema=SPEED_SCHEMA, orient="row"),
        result.left_out,
        result.protocol,
    )


def _cells(config: GridConfig) -> list[Cell]:
    return [
        Cell(document, summary, op1, op2)
        for document in dict.fromkeys(config.document_blocks)
        for summary in dict.fromkeys(config.summary_blocks)
        for op1 in OPERATORS
        for op2 in OPERATORS
    ]


def _metric(config: GridConfig, cell: Cell) -> Metric:
    document, summary, op1, op2 = cell
    granularity = document if document == summary else f"{document}-{summary}"
    return load_metric(
        f"summac-zs:granularity={granularity}:splitter={config.splitter}:blocks={config.blocks}:"
        f"op1={op1}:op2={op2}:variant={config.variant}"
    )


def _speed(documents: int, seconds: float) -> tuple[int | None, float | None, float | None]:
    if not documents or not seconds:
        return None, None, None
    return documents, seconds, 60 * documents / seconds


def grid_sections(result: GridResult) -> Iterator[Section]:
    """For each measure and data set (and their mean): granularities by operators, in percent."""
    titles = dict(zip(MEASURES, ("Balanced accuracy", "ROC-AUC"), strict=True))
    operators = [(op1, op2) for op1 in OPERATORS for op2 in OPERATORS]
    header = ("document, summary", *(f"{op1}, {op2}" for op1, op2 in operators), "documents/min")
    speeds = {row[:2]: row[-1] for row in result.speed.iter_rows()}
    notes = ["columns: operator over the document, operator over the summary"]
    if result.left_out:
        notes.append(f"{result.left_out:,} rows left out for missing scores")
    if None in speeds.values():
        notes.append("documents a minute: only where this call computed NLI")
    for (measure, dataset), rows in result.rows.group_by("measure", "dataset", maintain_order=True):
        found = {tuple(row[:4]): row[-1] for row in rows.select(*CELL_SCHEMA, "value").iter_rows()}
        table = [
            (
                ", ".join(pair),
                *(f"{100 * found[*pair, *operator]:.1f}" for operator in operators),
                "-" if speed is None else f"{speed:,.0f}",
            )
            for pair, speed in speeds.items()
        ]
        title = f"{titles[str(measure)]}, %, {dataset}: protocol {result.protocol}"
        yield Section(title, header, table, tuple(notes))
