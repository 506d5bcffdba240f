"""`claimscore evaluate summac-grid`: SummaC-ZS by granularity and by operators.

Laban et al. 2022, SummaC: the choice of granularity (Table 5), and of the operators over the
document and over the summary. One run a table computes one NLI image for each two
granularities; the operators are taken from it. Scores become numbers as in `evaluate summac`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.blocks import GRANULARITIES, SPLITTERS
from claimscore.config import NLI_OPTIONS, EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.evaluation.ratings_table import read_table
from claimscore.evaluation.result import EvaluationResult, Section
from claimscore.evaluation.summac_benchmark import (
    MEASURE_TITLES,
    SUMMAC_SCHEMA,
    BenchmarkSettings,
    Protocol,
    SummacConfig,
    summac_benchmark,
)
from claimscore.metrics import load_metric
from claimscore.metrics.base import Metric
from claimscore.metrics.summac.pair_matrices import CUT_VALUES
from claimscore.metrics.summac.zero_shot import OPERATORS
from claimscore.option import argument, like, nested, option
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.run import run

#: The granularities of the paper's table, for either side.
PAPER_GRANULARITIES = ("sentence", "2sents", "paragraph", "document")

_BLOCKS = ("document_blocks", "summary_blocks")

#: What a row of the grid has instead of the name of a score.
CELL_SCHEMA: dict[str, pl.DataType] = dict.fromkeys((*_BLOCKS, "op1", "op2"), pl.String())
GRID_SCHEMA = CELL_SCHEMA | {name: of for name, of in SUMMAC_SCHEMA.items() if name != "score"}
SPEED_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(_BLOCKS, pl.String()),
    "documents": pl.Int64(),
    **dict.fromkeys(("seconds", "documents_per_minute"), pl.Float64()),
}


@dataclasses.dataclass(frozen=True)
class GridConfig(BenchmarkSettings):
    """The grid, its data and its model."""

    tables: tuple[str, ...] = argument(
        help="Labelled records with source and summary: JSONL, CSV or Parquet."
    )
    out: Path = option(
        kind="folder", short="o", panel="Essential", help="Folder of the runs and the results."
    )
    document_blocks: tuple[str, ...] = option(
        PAPER_GRANULARITIES, help="Granularities of the documents to compare."
    )
    summary_blocks: tuple[str, ...] = option(
        PAPER_GRANULARITIES, help="Granularities of the summaries to compare."
    )
    variant: str = option(
        "paper",
        choices=("paper", "code", "contradiction"),
        help="Score of a pair of blocks, as metric summac-zs has it.",
    )
    splitter: str = option("rules", choices=SPLITTERS, help="Method that finds sentences.")
    blocks: str = option(
        "variant",
        choices=CUT_VALUES["blocks"],
        help="Blocks to read: all, or those of the published code; default: as --variant.",
    )
    encoders: EncoderConfig = nested(EncoderConfig, only=NLI_OPTIONS)
    samples: int = like(BenchmarkSettings, "samples", default=1000, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _BLOCKS:
            names = getattr(self, name)
            unknown = [name for name in names if name not in GRANULARITIES]
            if unknown or not names:
                known = ", ".join(GRANULARITIES)
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option}: {', '.join(unknown) or 'nothing'}; known: {known}")
        if len({self.run_folder(table) for table in self.tables}) < len(self.tables):
            raise ConfigError("two tables have the same file name; each gets a folder of its own")

    def run_folder(self, table: str) -> Path:
        """The folder of the table's run: its scores need not be computed again."""
        return self.out / "runs" / Path(table).stem

    def benchmark(self, scores: Sequence[str]) -> SummacConfig:
        """The settings of `evaluate summac` over the runs."""
        shared = (field.name for field in dataclasses.fields(BenchmarkSettings))
        folders = tuple(str(self.run_folder(table)) for table in self.tables)
        return SummacConfig(
            folders, tuple(scores), **{name: getattr(self, name) for name in shared}
        )


class GridCell(NamedTuple):
    """One setting of SummaC-ZS: blocks of either side, operators over either side."""

    document_blocks: str
    summary_blocks: str
    op1: str
    op2: str


@dataclasses.dataclass(frozen=True)
class GridResult(EvaluationResult):
    """`rows` as of `evaluate summac` with `CELL_SCHEMA` in the place of the score.

    `speed` has a row for each two granularities: `SPEED_SCHEMA`, null where the folder had all
    NLI already. The loading of the model does not count, cutting texts and writing the table do.
    """

    name = "summac_grid"
    title = "SummaC-ZS grid"

    config: GridConfig
    rows: pl.DataFrame
    speed: pl.DataFrame
    left_out: int

    @property
    def protocol(self) -> Protocol:
        return self.config.protocol

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"summac_grid": self.rows, "summac_speed": self.speed}

    def facts(self) -> dict[str, Any]:
        return {"protocol": self.protocol, "left_out": self.left_out}

    def sections(self) -> Sequence[Section]:
        """For each measure and data set (and their mean): granularities by operators, percent."""
        operators = [(op1, op2) for op1 in OPERATORS for op2 in OPERATORS]
        shown = [f"{op1}, {op2}" for op1, op2 in operators]
        speeds = {row[:2]: row[-1] for row in self.speed.iter_rows()}
        notes = ["columns: operator over the document, operator over the summary"]
        if self.left_out:
            notes.append(f"{self.left_out:,} rows left out for missing scores")
        if None in speeds.values():
            notes.append("documents a minute: only where this call computed NLI")
        sections = []
        for (measure, dataset), rows in self.rows.group_by(
            "measure", "dataset", maintain_order=True
        ):
            found = {row[:4]: row[-1] for row in rows.select(*CELL_SCHEMA, "value").iter_rows()}
            table = [
                (
                    ", ".join(pair),
                    *(f"{100 * found[*pair, *operator]:.1f}" for operator in operators),
                    "-" if speed is None else f"{speed:,.0f}",
                )
                for pair, speed in speeds.items()
            ]
            title = f"{MEASURE_TITLES[str(measure)]}, %, {dataset}: protocol {self.protocol}"
            header = ("document, summary", *shown, "documents/min")
            sections.append(Section(title, header, table, tuple(notes)))
        return sections


def summac_grid(
    config: GridConfig, on_progress: Callable[[Progress], None] | None = None
) -> GridResult:
    """Score the tables with every setting by one run each, and evaluate all settings.

    Raises as `run` and `summac_benchmark` do.
    """
    for table in config.tables:
        read_table(table, [config.label]).numbers(config.label)  # before anything is computed
    blocks = (dict.fromkeys(config.document_blocks), dict.fromkeys(config.summary_blocks))
    grid = itertools.starmap(GridCell, itertools.product(*blocks, OPERATORS, OPERATORS))
    cells = {_metric(config, cell): cell for cell in grid}
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
        names[row["score"]]._asdict() | {n: value for n, value in row.items() if n != "score"}
        for row in result.rows.iter_rows(named=True)
    ]
    steps = {cell[:2]: metric.requires.passes[0].step for metric, cell in cells.items()}
    speed = [
        (*pair, n, seconds, 60 * n / seconds) if n and seconds else (*pair, None, None, None)
        for pair, step in steps.items()
        for n, seconds in [work.get(step, (0, 0.0))]
    ]
    return GridResult(
        config,
        pl.DataFrame(rows, schema=GRID_SCHEMA),
        pl.DataFrame(speed, schema=SPEED_SCHEMA, orient="row"),
        result.left_out,
    )


def _metric(config: GridConfig, cell: GridCell) -> Metric:
    document, summary, op1, op2 = cell
    granularity = document if document == summary else f"{document}-{summary}"
    return load_metric(
        f"summac-zs:granularity={granularity}:splitter={config.splitter}:blocks={config.blocks}:"
        f"op1={op1}:op2={op2}:variant={config.variant}"
    )
