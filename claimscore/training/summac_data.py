"""Labelled documents and summaries, and their NLI images, for the training of SummaC-Conv.

The images are made once, part by part, and kept beside the result: another choice of bins or
categories costs no model time, and a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.atomic import atomic_path, os_errors, write_text
from claimscore.errors import ConfigError, InputError
from claimscore.metrics.base import ChunkTables, PassRequirement
from claimscore.metrics.summac.convolution import Counts, stack_histograms
from claimscore.metrics.summac.pair_matrices import PairMatrices, Values, read_pair_matrices
from claimscore.pipeline.encoders.protocols import PairClassifier
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.pair_nli import BLOCK_NLI_PASS
from claimscore.records.columns import in_first_half
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.tables import TABLES
from claimscore.training.inconsistent import make_negatives

#: Records whose images are computed and written at a time.
PART_RECORDS = 64
_SETTINGS = "settings.json"

_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


class Example(NamedTuple):
    """One record's histograms `[n_sentences, H]` and its label (1: consistent)."""

    counts: Counts
    label: int


class Columns(NamedTuple):
    """The columns of a labelled table."""

    document: str = "source"
    summary: str = "summary"
    label: str = "label"


SOURCE_COLUMNS = Columns()


class Half(NamedTuple):
    """The first half of a table by a column, as `evaluate summac --split-by` draws it."""

    column: str
    seed: int

    def has(self, value: object, where: str) -> bool:
        """Whether a row with this value is in it; `InputError` where the value is missing."""
        if value is None or (isinstance(value, str) and not value):
            raise InputError(f"{where} is empty; --split-by needs a value in every row")
        texts = value if isinstance(value, list | pl.Series) else [value]
        return in_first_half("\n\n".join(map(str, texts)), self.seed)


def read_labelled(
    tables: Sequence[str],
    columns: Columns = SOURCE_COLUMNS,
    *,
    negatives_seed: int | None = None,
    half: Half | None = None,
) -> pl.DataFrame:
    """The rows of JSONL, CSV or Parquet files (or globs): id, source, summary, label (0 or 1).

    With `half`, only its rows. With a seed, the rows labelled 1 (all, where there are no labels)
    are consistent, and each gets a rule-made inconsistent one. Several documents of a row are
    joined by an empty line.
    `InputError` names file, line and column of what cannot be used.
    """
    needs_label = negatives_seed is None
    rows = (row for table in tables for row in _read(table, columns, needs_label, half))
    records = pl.DataFrame(
        [(str(number), *row) for number, row in enumerate(rows)],
        schema={**dict.fromkeys(("id", "source", "summary"), pl.String()), "label": pl.Int64()},
        orient="row",
    )
    if records.is_empty():
        raise InputError(f"{', '.join(tables)}: no row to train on")
    if negatives_seed is None:
        return records
    negatives = make_negatives(records.filter(pl.col("label") == 1), seed=negatives_seed)
    if negatives.is_empty():
        raise InputError(f"{', '.join(tables)}: no rule can make a summary of it inconsistent")
    return pl.concat([records, negatives.select(records.columns)])


def _read(
    table: str, columns: Columns, needs_label: bool, half: Half | None
) -> Iterator[tuple[str, str, int]]:
    needed = (*columns[: 3 if needs_label else 2], *([half.column] if half else []))
    for file in find_files(table):
        for line, record in read(file):
            where = place(file, line)
            for column in needed:
                if column not in record:
                    raise InputError(
                        f"{where}: no column {column}; the row has: {', '.join(record)}; name "
                        "others with --document-column, --summary-column or --label-column"
                    )
            if half and not half.has(record[half.column], f"{where}: {half.column}"):
                continue
            label = read_label(record.get(columns.label, 1), f"{where}: {columns.label}")
            document = _text(record[columns.document], f"{where}: {columns.document}")
            yield document, _text(record[columns.summary], f"{where}: {columns.summary}"), label


def _text(value: object, where: str) -> str:
    texts: list[Any] = value if isinstance(value, list) else [value or ""]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where} must be text")
    return "\n\n".join(texts)


def read_label(value: object, where: str) -> int:
    """1 (consistent) or 0, however it is written; `InputError` for anything else."""
    label = _LABELS.get(str(value).lower().removesuffix(".0"))
    if label is None:
        raise InputError(f"{where} must be 1 (consistent) or 0, not {value!r}")
    return label


def make_images(
    records: pl.DataFrame,
    need: PassRequirement,
    classifier: PairClassifier,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairMatrices:
    """The images of the records, from `folder` as far as they are there, else from the model.

    `ConfigError` where the folder has those of other records, cuts or another model.
    """
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _check_settings(folder, records, need, classifier)
    frames = []
    for number, start in enumerate(range(0, records.height, PART_RECORDS)):
        path = folder / f"part-{number:06d}.parquet"
        if not path.is_file():
            _write_part(path, records.slice(start, PART_RECORDS), need, classifier)
        frames.append(pl.read_parquet(path))
        progress(min(start + PART_RECORDS, records.height), records.height)
    rows = pl.concat(frames) if frames else TABLES["block_nli"].empty()
    return read_pair_matrices(
        ChunkTables({"records": records, "block_nli": rows}.__getitem__), need
    )


def _write_part(
    path: Path, records: pl.DataFrame, need: PassRequirement, classifier: PairClassifier
) -> None:
    result = BLOCK_NLI_PASS.compute(
        PassInput(
            model=classifier,
            need=need,
            records=records,
            read=lambda table: TABLES[table].empty(),
            broken=frozenset(),
            listen=lambda pairs: lambda done: None,
        )
    )
    with atomic_path(path) as temporary:
        result.rows["block_nli"].write_parquet(temporary)


def _check_settings(
    folder: Path, records: pl.DataFrame, need: PassRequirement, classifier: PairClassifier
) -> None:
    """Write down what the images are made of, or compare it with what was written."""
    texts = records.select("id", "source", "summary").rows()
    digest = hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode()).hexdigest()
    settings = {"texts": digest, "over": list(need.over), "nli": list(classifier.info)}
    path = folder / _SETTINGS
    if not path.is_file():
        write_text(path, json.dumps(settings, indent=1) + "\n")
    elif json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ConfigError(
            f"{folder} has the NLI images of other texts, blocks or another model; choose another "
            "--out, or remove that folder"
        )


def examples(
    records: pl.DataFrame, images: PairMatrices, edges: Values, labels: str
) -> Iterator[Example]:
    """The histograms of the records that have an image, in the records' order."""
    ends = np.cumsum(images.matrices.shapes.n_rows)
    counts = np.split(stack_histograms(images, edges, labels), ends[:-1])
    for record, label in records.select("id", "label").iter_rows():
        if record in images.places:
            yield Example(counts[images.places[record]], label)


class Padded(NamedTuple):
    """Examples as arrays: counts `[N, R, H]`, used `[N, R]` (which rows are real), labels `[N]`."""

    counts: NDArray[np.float32]
    used: NDArray[np.bool_]
    labels: NDArray[np.int64]


def pad_examples(found: list[Example], width: int, most_sentences: int | None) -> Padded:
    """The first `most_sentences` (None: all) histograms of each example, filled up with zeros."""
    kept = [example.counts[:most_sentences] for example in found]
    longest = max((len(counts) for counts in kept), default=0)
    padded = np.zeros((len(kept), longest, width), dtype=np.float32)
    used = np.zeros((len(kept), longest), dtype=np.bool_)
    for row, counts in enumerate(kept):
        padded[row, : len(counts)] = counts
        used[row, : len(counts)] = True
    return Padded(padded, used, np.array([example.label for example in found], dtype=np.int64))
