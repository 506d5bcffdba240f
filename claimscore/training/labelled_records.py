"""Labelled documents and summaries, and their NLI matrices, for the training of SummaC-Conv.

Finished runs have the matrices already: then no model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.errors import ConfigError, InputError
from claimscore.metrics.base import ChunkTables, PassRequirement
from claimscore.metrics.summac.convolution import Counts, histograms
from claimscore.metrics.summac.pair_matrices import PairMatrices, Values, read_pair_matrices
from claimscore.pipeline.encoders.protocols import PairClassifier
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.pair_nli import BLOCK_NLI_PASS
from claimscore.records.columns import in_first_half
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.tables import TABLES
from claimscore.training.inconsistent import make_negatives

#: Records whose matrices are computed at a time.
PART_RECORDS = 64


class TextColumns(NamedTuple):
    """The columns of a table of documents and summaries."""

    document: str = "source"
    summary: str = "summary"
    label: str | None = None


LABELLED = TextColumns(label="label")

_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


class LabelledRecords(NamedTuple):
    """Records (`id`, `label`), the matrices of those that have one, and the model that judged."""

    records: pl.DataFrame
    matrices: PairMatrices
    nli: str


class FirstHalf(NamedTuple):
    """The first half of a table by a column, as `evaluate summac --split-by` draws it."""

    column: str
    seed: int

    def has(self, value: object, where: str) -> bool:
        """Whether a row with this value is in it; `InputError` where the value is missing."""
        if value is None or (isinstance(value, str) and not value):
            raise InputError(f"{where} is empty; --split-by needs a value in every row")
        texts = value if isinstance(value, list | pl.Series) else [value]
        return in_first_half("\n\n".join(map(str, texts)), self.seed)


def read_label(value: object, where: str) -> int:
    """1 (consistent) or 0, however it is written; `InputError` for anything else."""
    label = _LABELS.get(str(value).lower().removesuffix(".0"))
    if label is None:
        raise InputError(f"{where} must be 1 (consistent) or 0, not {value!r}")
    return label


# Files of texts


def read_rows(
    tables: Sequence[str], needed: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """File and line, and the row, of JSONL, CSV or Parquet files (or globs).

    `InputError` names file and line where a needed column is missing.
    """
    for table in tables:
        for file in find_files(table):
            for line, record in read(file):
                where = place(file, line)
                for column in needed:
                    if column not in record:
                        raise InputError(
                            f"{where}: no column {column}; the row has: {', '.join(record)}; name "
                            "others with --document, --summary or --label"
                        )
                yield where, record


def read_labelled(
    tables: Sequence[str],
    columns: TextColumns = LABELLED,
    *,
    negatives_seed: int | None = None,
    half: FirstHalf | None = None,
) -> pl.DataFrame:
    """The rows of JSONL, CSV or Parquet files (or globs): id, source, summary, label (0 or 1).

    With `half`, only its rows. With a seed, the rows labelled 1 (all, where there are no labels)
    are consistent, and each gets a rule-made inconsistent one. Several documents of a row are
    joined by an empty line.
    `InputError` names file, line and column of what cannot be used.
    """
    document, summary, label = columns
    needed = [document, summary, *([label] if negatives_seed is None and label else [])]
    found: list[tuple[str, str, str, int]] = []
    for where, row in read_rows(tables, [*needed, *([half.column] if half else [])]):
        if half and not half.has(row[half.column], f"{where}: {half.column}"):
            continue
        value = read_label(row.get(str(label), 1), f"{where}: {label}")
        texts = (joined_text(row[name], f"{where}: {name}") for name in (document, summary))
        found.append((str(len(found)), *texts, value))  # type: ignore[arg-type]  # two texts
    schema = {**dict.fromkeys(("id", "source", "summary"), pl.String()), "label": pl.Int64()}
    records = pl.DataFrame(found, schema=schema, orient="row")
    if records.is_empty():
        raise InputError(f"{', '.join(tables)}: no row to train on")
    if negatives_seed is None:
        return records
    negatives = make_negatives(records.filter(pl.col("label") == 1), seed=negatives_seed)
    if negatives.is_empty():
        raise InputError(f"{', '.join(tables)}: no rule can make a summary of it inconsistent")
    return pl.concat([records, negatives.select(records.columns)])


def joined_text(value: object, where: str) -> str:
    """A text, or texts joined by empty lines; `InputError` for anything else."""
    texts: list[Any] = value if isinstance(value, list) else [value or ""]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where} must be text")
    return "\n\n".join(texts)


def make_matrices(
    records: pl.DataFrame,
    need: PassRequirement,
    classifier: PairClassifier,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairMatrices:
    """The matrices of the records by the model; one with stored results is asked for new pairs."""
    frames = [TABLES["block_nli"].empty()]
    for start in range(0, records.height, PART_RECORDS):
        given = PassInput(
            model=classifier,
            need=need,
            records=records.slice(start, PART_RECORDS),
            read=lambda table: TABLES[table].empty(),
            broken=frozenset(),
            listen=lambda pairs: lambda done: None,
        )
        frames.append(BLOCK_NLI_PASS.compute(given).rows["block_nli"])
        progress(min(start + PART_RECORDS, records.height), records.height)
    return _matrices(records, pl.concat(frames), need)


def _matrices(records: pl.DataFrame, rows: pl.DataFrame, need: PassRequirement) -> PairMatrices:
    return read_pair_matrices(
        ChunkTables({"records": records, "block_nli": rows}.__getitem__), need
    )


# Finished runs


def are_runs(tables: Sequence[str]) -> bool:
    """Whether the tables are run directories; `InputError` where some are and some are not."""
    runs = [table for table in tables if Path(table).is_dir()]
    if runs and len(runs) < len(tables):
        raise InputError(f"{runs[0]} is a folder and others are files; name one kind")
    return bool(runs)


def read_runs(
    tables: Sequence[str], label: str, need: PassRequirement, half: FirstHalf | None = None
) -> LabelledRecords:
    """The records of run directories and the matrices that the pass of `need` made there.

    `ConfigError` where that pass is not finished, or the runs have it from different models.
    """
    parts = [_read_run(Path(table), label, need, half) for table in tables]
    models = sorted({model for _, models in parts for model in models})
    if len(models) > 1:
        raise ConfigError(f"the runs have the NLI of different models: {', '.join(models)}")
    records, rows = (
        pl.concat(
            frame.with_columns(id=pl.format("{}/{}", pl.lit(number), "id"))
            for number, frame in enumerate(frames)
        )
        for frames in zip(*(frames for frames, _ in parts), strict=True)
    )
    if records.is_empty():
        raise InputError(f"{', '.join(tables)}: no row to train on")
    return LabelledRecords(records, _matrices(records, rows, need), models[0] if models else "")


def _read_run(
    path: Path, label: str, need: PassRequirement, half: FirstHalf | None
) -> tuple[tuple[pl.DataFrame, pl.DataFrame], list[str]]:
    """Records and rows of `block_nli`, and the models that judged them."""
    directory = RunDirectory.reader(path)
    done, wanted = directory.steps_done(need.step), directory.n_chunks
    if done < wanted or not wanted:
        raise ConfigError(
            f"{path}: NLI of {' with '.join(need.over)} is there for {done} of {wanted} parts; run "
            "it to the end with a metric that needs it, such as summac-zs"
        )
    with damage_as_error(path):
        records = directory.scan("records").collect()
        for column in (label, half.column) if half else (label,):
            if column not in records.columns:
                known = ", ".join(records.columns)
                raise InputError(f"{path}: no column {column}; there are: {known}")
        labels = [read_label(value, f"{path}: {label}") for value in records[label]]
        if half:
            drawn = [half.has(value, f"{path}: {half.column}") for value in records[half.column]]
            chosen = pl.Series(drawn, dtype=pl.Boolean)
        else:
            chosen = pl.repeat(True, records.height, eager=True)
        records = records.select("id", label=pl.Series(labels, dtype=pl.Int64)).filter(chosen)
        cuts = [item.partition(".")[2] for item in need.over]
        rows = directory.scan("block_nli").filter(premise_cut=cuts[0], hypothesis_cut=cuts[1])
        kept = rows.join(records.lazy().select("id"), on="id", how="semi").collect()
    models = kept.select(pl.format("{}@{}", "model", "revision").unique()).to_series()
    return (records, kept), models.to_list()


# Histograms


class ConvExample(NamedTuple):
    """One record's histograms `[n_sentences, H]` and its label (1: consistent)."""

    counts: Counts
    label: int


class PaddedExamples(NamedTuple):
    """Examples as arrays: counts `[N, R, H]`, used `[N, R]` (which rows are real), labels `[N]`."""

    counts: NDArray[np.float32]
    used: NDArray[np.bool_]
    labels: NDArray[np.int64]


def examples(found: LabelledRecords, edges: Values, labels: str) -> Iterator[ConvExample]:
    """The histograms of the records that have a matrix, in the records' order."""
    for record, label in found.records.select("id", "label").iter_rows():
        matrix = found.matrices.whole.get(record)
        if matrix is not None:
            yield ConvExample(histograms(matrix, edges, labels), label)


def pad_examples(
    found: Sequence[ConvExample], width: int, most_sentences: int | None
) -> PaddedExamples:
    """The first `most_sentences` (None: all) histograms of each example, filled up with zeros."""
    kept = [example.counts[:most_sentences] for example in found]
    longest = max((len(counts) for counts in kept), default=0)
    padded = np.zeros((len(kept), longest, width), dtype=np.float32)
    used = np.zeros((len(kept), longest), dtype=np.bool_)
    for row, counts in enumerate(kept):
        padded[row, : len(counts)] = counts
        used[row, : len(counts)] = True
    return PaddedExamples(padded, used, np.array([one.label for one in found], dtype=np.int64))
