"""What people label of a run: its claims with their evidence; and their labels."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.atomic import os_errors, write_text
from claimscore.config import path_or_address
from claimscore.csv_text import csv_text, unescaped
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import ComparedRun, finite_number, open_run
from claimscore.metrics import METRICS
from claimscore.metrics.catalogue import Catalogue
from claimscore.metrics.claims import ONCE
from claimscore.metrics.support import VERDICTS, verdicts
from claimscore.option import argument, check_least, option
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.runs import damage_as_error
from claimscore.stats.prediction_powered import (
    CorrectedMean,
    Draw,
    LabelledSample,
    active_draw,
    corrected_difference,
    stratified_draw,
)
from claimscore.tables import CLAIMS, counted, texts_on_side
from claimscore.text import claim_key

#: Metrics whose claims are labelled.
CLAIM_METRICS = ("faithfulness", "claim-recall")

#: The name that `label` gives its file in the folder of a run, where `compare` looks for it.
LABELS_FILE = "labels.csv"

#: What is read of a file of labels, a row an item.
LABELS: dict[str, pl.DataType] = {
    **{"id": pl.String(), "claim_position": pl.Int64(), "weight": pl.Float64()},
    **{"policy": pl.String(), "label": pl.String(), "value": pl.Float64()},
}

#: The columns with texts for people.
TEXTS = ("id", "claim", "sentence", "source", "evidence")

_FIRST_COLUMNS = ("metric", "id", "claim_position")
_LAST_COLUMNS = ("weight", "label")

#: What people go by where they name no policy of their own.
POLICY = """\
supported: the source says it, or it follows from what the source says
contradicted: the source says otherwise; both cannot be true
unmentioned: neither; also what is true but not stated in the source
a claim of which one part is wrong or missing: judged by that part
rounded numbers, other words, other spellings of a name: supported
words that claim nothing, as "Here is a summary": supported
a claim that could mean several things: judged by its likeliest meaning"""

DrawnBy = Literal["verdict", "uncertainty", "random"]


@dataclasses.dataclass(frozen=True, slots=True)
class LabelConfig:
    """Which items of a run to label, and how many."""

    run: str = argument(help="Run directory.")
    metric: str | None = option(
        None,
        panel="Essential",
        help="Metric to be corrected; default: faithfulness, else claim-recall.",
    )
    n: int = option(200, panel="Essential", name="n", help="Number of claims to label.")
    by: DrawnBy = option(
        "verdict",
        panel="Essential",
        help="Draw claims of every verdict, more uncertain ones (for the mean), or at random.",
    )
    policy: Path | None = option(
        None, kind="file", panel="Essential", help="Text of your own on what counts as supported."
    )
    seed: int = option(0, help="Seed of the draw.")

    def __post_init__(self) -> None:
        check_least(self, n=1, seed=0)

    def policy_text(self) -> str:
        """What people go by; `ConfigError` where the file is empty or no text."""
        if self.policy is None:
            return POLICY
        try:
            with os_errors(self.policy):
                lines = self.policy.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.policy}: not UTF-8; save the policy as UTF-8") from None
        text = "\n".join(line.rstrip() for line in lines).strip()
        if not text:
            raise ConfigError(f"{self.policy}: the policy has no text")
        return text


def policy_digest(text: str) -> str:
    """The short name of a policy, which labels keep; no spreadsheet takes it for a number."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True)
class Items:
    """Everything that could be labelled for a metric.

    `rows` has id, claim_position, value, predicted, uncertainty, verdict, claim, evidence and
    source_index. Only records with a score are there. Claims of the first side are judged by texts
    of the second.
    """

    run: ComparedRun
    metric: str
    sides: tuple[str, str]
    rows: pl.DataFrame

    def strata(self) -> NDArray[np.intp]:
        """The number of each claim's verdict."""
        return np.array([VERDICTS.index(verdict) for verdict in self.rows["verdict"]], np.intp)

    def draw(self, by: DrawnBy, n: int, seed: int) -> Draw:
        """`n` of the rows, or all; see `LabelConfig`."""
        along = self.rows["predicted"].to_numpy()
        if by == "verdict":
            return stratified_draw(self.strata(), along, n, seed)
        if by == "random":
            same = np.ones(self.rows.height)
            return active_draw(same, same, same, n, seed)
        return active_draw(self.rows["uncertainty"].to_numpy(), self._shares(), along, n, seed)

    def _shares(self) -> NDArray[np.float64]:
        """What each claim counts in the mean of its record."""
        return self.rows.select(1 / pl.len().over("id")).to_series().to_numpy()

    def sample(self, labels: pl.DataFrame, ids: pl.Series) -> LabelledSample:
        """The items of these records, whose places are their numbers, with labels and weights.

        `labels` has id, claim_position, value and weight.
        """
        numbers = pl.DataFrame({"id": ids}).with_row_index("record")
        rows = self.rows.with_columns(stratum=self.strata(), share=self._shares()).join(
            numbers, on="id", maintain_order="left"
        )
        given = labels.select("id", "claim_position", "weight", label="value")
        keys = ["id", "claim_position"]
        rows = rows.join(given, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return LabelledSample(
            record=rows["record"].cast(pl.Int64).to_numpy().astype(np.intp),
            share=rows["share"].to_numpy(),
            metric=rows["value"].to_numpy(),
            predicted=rows["predicted"].to_numpy(),
            stratum=rows["stratum"].to_numpy().astype(np.intp),
            label=rows["label"].cast(pl.Float64).fill_null(math.nan).to_numpy(),
            weight=rows["weight"].cast(pl.Float64).fill_null(0.0).to_numpy(),
        )


def open_items(run: ComparedRun, metric: str | None) -> Items:
    """The items of a run; `ConfigError` where it has no scores of the metric."""
    if run.directory is None:
        raise ConfigError(f"{run.path}: labels need a run directory")
    if metric is None:
        metric = next((name for name in CLAIM_METRICS if name in run.metrics), None)
    if metric is None or metric not in run.metrics:
        known = ", ".join(run.metrics) or "none"
        wanted = metric or " or ".join(CLAIM_METRICS)
        raise ConfigError(f"{run.path}: no scores of {wanted}; --metric is one of: {known}")
    scores = run.values(metric).drop_nulls("value").select("id", "value")
    if scores.is_empty():
        raise ConfigError(f"{run.path}: no record has a score of {metric}")
    if metric.partition(":")[0] not in CLAIM_METRICS:
        raise ConfigError(f"{metric} judges no claims; --metric is {' or '.join(CLAIM_METRICS)}")
    return _claims(run, metric, scores["id"])


def _claims(run: ComparedRun, metric: str, ids: pl.Series) -> Items:
    """The claims that count, each with the text that supports it most."""
    loaded = Catalogue(METRICS).load(metric)
    facts = dict(loaded.facts)
    (over, side) = loaded.requires.passes[0].over
    source_side, _, how = over.partition(".")
    support = run.table("support")
    if support is None:
        raise ConfigError(f"{run.path}: it has no verdicts on claims")
    with damage_as_error(run.path):
        wanted = support.filter(side=side, source_side=source_side, read=how)
        if (checks := run.table("claim_checks")) is not None:
            entailed = checks.filter(check="entailed")
            wanted = wanted.join(entailed, on=["id", "side", "claim_position"], how="anti")
        judged = wanted.filter(pl.col("id").is_in(ids.implode())).collect()
    if judged.is_empty():
        raise ConfigError(f"{run.path}: it has no verdicts of {metric}; run it again to the end")
    if "threshold" in facts:
        again = verdicts(judged["probability"], judged["contradiction"], float(facts["threshold"]))
        judged = judged.with_columns(verdict=pl.Series(again, dtype=pl.String))
    supported, contradicted = (pl.col("verdict").eq(verdict).any() for verdict in VERDICTS[:2])
    best = (
        judged.sort("id", "claim_position", "probability", descending=[False, False, True])
        .group_by("id", "claim_position", maintain_order=True)
        .agg(
            pl.col("claim", "probability", "uncertainty", "evidence").first(),
            pl.col("source_index", "verbatim").first(),
            verdict=pl.when(supported)
            .then(pl.lit(VERDICTS[0]))
            .when(contradicted)
            .then(pl.lit(VERDICTS[1]))
            .otherwise(pl.lit(VERDICTS[2])),
        )
        .with_columns(
            pl.col("claim_position").cast(pl.Int64),
            pl.col("uncertainty").cast(pl.Float64),
            predicted=pl.col("probability").cast(pl.Float64),
        )
    )
    if facts.get("repeats") == ONCE:
        keys = pl.Series("key", [claim_key(text) for text in best["claim"]], dtype=pl.String)
        best = best.with_columns(keys).unique(["id", "key"], keep="first", maintain_order=True)
    value = pl.col("predicted") if facts["score"] != "share" else pl.col("verdict").eq(VERDICTS[0])
    return Items(run, metric, (side, source_side), best.with_columns(value=value.cast(pl.Float64)))


# Drawing


def draw(config: LabelConfig) -> pl.DataFrame:
    """A table to label, a row an item in random order; the column `label` is empty.

    `weight` says for how many items a row stands, `policy` what its label is to follow, `text` is
    what the claim is of. What the verifier said is not in it: people judge for themselves.
    """
    policy = policy_digest(config.policy_text())
    items = open_items(open_run("A", path_or_address(config.run)), config.metric)
    drawn = items.draw(config.by, config.n, config.seed)
    rows = items.rows[drawn.places].with_columns(
        metric=pl.lit(items.metric),
        weight=pl.Series(drawn.weights),
        policy=pl.lit(policy),
        label=pl.lit(""),
    )
    wanted = pl.col("id").is_in(rows["id"].implode())
    records, claims = (items.run.table(name) for name in ("records", "claims"))
    assert records is not None  # records with scores are there
    with damage_as_error(items.run.path):
        of_id = {row["id"]: row for row in records.filter(wanted).collect().iter_rows(named=True)}
        of_claims = CLAIMS.empty() if claims is None else claims.filter(wanted).collect()
    side, source_side = items.sides
    both = zip(rows["id"], rows["source_index"], strict=True)
    sources = [texts_on_side(of_id[id], source_side)[index or 0] for id, index in both]
    texts = ["\n".join(texts_on_side(of_id[id], side)) for id in rows["id"]]
    rows = rows.with_columns(text=pl.Series(texts, dtype=pl.String), source=pl.Series(sources))
    sentences = counted(of_claims.filter(side=side)).select(
        "id", "sentence", claim_position=pl.int_range(pl.len()).over("id")
    )
    rows = rows.join(sentences, on=["id", "claim_position"], how="left", maintain_order="left")
    columns = *_FIRST_COLUMNS, "claim", "evidence", "source", "sentence", "text", "policy"
    return rows.select(*columns, *_LAST_COLUMNS)


def write_sheet(rows: pl.DataFrame, path: Path) -> None:
    """Write a table to label as CSV that spreadsheets read: UTF-8 with a byte order mark."""
    write_text(path, "\ufeff" + csv_text(rows))


# Reading


class Rater(NamedTuple):
    """One file of labels: rows of `LABELS`."""

    name: str
    rows: pl.DataFrame
    path: str = ""


def read_labels(paths: Sequence[str | Path], items: Items) -> list[Rater]:
    """The labels in these files; rows without one are left out.

    `InputError` for another metric, a label that is none, a row that the run does not have, and
    labels of several policies.
    """
    names = [Path(path).stem for path in paths]
    known = items.rows.select("id", "claim_position", "claim")
    texts = {row[:2]: row[2] for row in known.iter_rows()}
    raters = [
        Rater(
            name if names.count(name) == 1 else str(path),
            _read(str(path), items, texts),
            str(path),
        )
        for name, path in zip(names, paths, strict=True)
    ]
    one_policy(raters)
    return raters


def one_policy(raters: Sequence[Rater]) -> str:
    """The policy that all labels follow, "" where none is named; `InputError` of several."""
    policies: dict[str, str] = {}
    for rater in raters:
        for policy in rater.rows["policy"].unique(maintain_order=True):
            policies.setdefault(policy, rater.path)
    if len(policies) > 1:
        listed = ", ".join(f"{path}: {policy or 'none'}" for policy, path in policies.items())
        raise InputError(
            f"labels of several policies do not go together ({listed}); name files of one policy"
        )
    return next(iter(policies), "")


def metric_of(path: str | Path) -> str:
    """The metric that a file of labels is about; `InputError` where it is no such file."""
    for file in find_files(str(path)):
        for line, row in read(file):
            missing = [name for name in (*_FIRST_COLUMNS, *_LAST_COLUMNS) if name not in row]
            if missing:
                raise InputError(
                    f"{place(file, line)}: no column {missing[0]}; labels are in a file that "
                    "`claimscore label` wrote"
                )
            return str(row["metric"])
    raise InputError(f"{path}: there are no rows in it")


def _read(path: str, items: Items, texts: dict[Any, str]) -> pl.DataFrame:
    metric = metric_of(path)
    if metric != items.metric:
        raise InputError(f"{path}: labels of {metric}, not of {items.metric}")
    rows: dict[tuple[str, int], tuple[object, ...]] = {}
    for file, (line, row) in itertools.chain.from_iterable(
        ((file, located) for located in read(file)) for file in find_files(path)
    ):
        where = place(file, line)
        written_label = (row["label"] or "").strip()
        if not written_label:
            continue
        position, weight = (finite_number(row[name] or "") for name in ("claim_position", "weight"))
        if weight is None or weight <= 0:
            raise InputError(f"{where}: weight {row['weight']!r} is no number above 0")
        if position is None or position % 1:
            raise InputError(
                f"{where}: claim_position {row['claim_position']!r} is no whole number"
            )
        index = int(position)
        # A spreadsheet may have taken the apostrophe away.
        cells = (unescaped(row["id"] or ""), row["id"])
        id = next((cell for cell in cells if (cell, index) in texts), cells[0])
        key = id, index
        claim = row.get("claim") or ""
        if texts.get(key) not in (unescaped(claim), claim):
            raise InputError(
                f"{where}: {items.run.path} has no such claim {index} of record {id}; labels "
                "belong to the run that they were drawn from"
            )
        if key in rows:
            raise InputError(f"{where}: this item has a label already")
        policy = (row.get("policy") or "").strip()
        rows[key] = *key, weight, policy, *_label(written_label, where)
    return pl.DataFrame(list(rows.values()), schema=LABELS, orient="row")


def _label(written: str, where: str) -> tuple[str, float]:
    """A verdict (or its beginning), and 1 for supported, else 0."""
    verdict = [word for word in VERDICTS if word.startswith(written.lower())]
    if len(verdict) != 1:
        raise InputError(f"{where}: label {written!r} is none of {', '.join(VERDICTS)}")
    return verdict[0], float(verdict[0] == VERDICTS[0])


def labelled_texts(path: str) -> list[dict[str, Any]]:
    """The labelled rows of a file without its run: `TEXTS`, label, weight and policy.

    `InputError` for a label that is none, and labels of several policies.
    """
    metric_of(path)
    rows = list[dict[str, Any]]()
    for file in find_files(path):
        for line, row in read(file):
            if written := (row["label"] or "").strip():
                texts = {name: unescaped(row.get(name) or "") for name in TEXTS}
                label, weight = _label(written, place(file, line))[0], finite_number(row["weight"])
                policy = (row.get("policy") or "").strip()
                rows.append(texts | {"label": label, "weight": weight or 1.0, "policy": policy})
    one_policy([Rater(path, pl.DataFrame(rows, infer_schema_length=None), path)] if rows else [])
    return [row for row in rows if row["claim"].strip() and row["source"].strip()]


def people(raters: Sequence[Rater]) -> pl.DataFrame:
    """Of each labelled item the mean value, the weight, and the verdict of most people.

    The verdict is null where two are named equally often.
    """
    every = pl.concat([rater.rows for rater in raters])
    keys = ["id", "claim_position"]
    counts = every.group_by(*keys, "label").len()
    most = pl.col("len") == pl.col("len").max().over(keys)
    modes = (
        counts.filter(most)
        .group_by(keys)
        .agg(label=pl.when(pl.len() == 1).then(pl.col("label").first()))
    )
    means = every.group_by(keys, maintain_order=True).agg(
        pl.col("value").mean(), pl.col("weight").first()
    )
    return means.join(modes, on=keys, how="left", nulls_equal=True, maintain_order="left")


def corrected_differences(
    a: ComparedRun, b: ComparedRun, metrics: Collection[str], samples: int, seed: int
) -> dict[str, CorrectedMean]:
    """`b` minus `a` for each of the metrics of which both run directories have labels.

    Labels are in files named `labels*.csv` there. Records with a score in both runs count.
    """
    files = {run.label: _label_files(run) for run in (a, b)}
    corrected = {}
    for metric in metrics:
        if not all(metric in of_run for of_run in files.values()):
            continue
        items = [open_items(run, metric) for run in (a, b)]
        known = [set(one.rows["id"]) for one in items]
        ids = pl.Series("id", sorted(known[0] & known[1]), dtype=pl.String)
        raters = [read_labels(files[one.run.label][metric], one) for one in items]
        one_policy([rater for of_run in raters for rater in of_run])
        labels = [people(of_run) for of_run in raters]
        if all(rows["id"].is_in(ids.implode()).any() for rows in labels):
            before, after = (one.sample(rows, ids) for one, rows in zip(items, labels, strict=True))
            corrected[metric] = corrected_difference(before, after, samples=samples, seed=seed)
    return corrected


def _label_files(run: ComparedRun) -> dict[str, list[Path]]:
    """The files of labels in the directory of a run, by metric."""
    files: dict[str, list[Path]] = {}
    if run.directory is not None:
        for path in sorted(run.directory.path.glob("labels*.csv")):
            files.setdefault(metric_of(path), []).append(path)
    return files
