"""How long scores take to be made from finished tables: beside polars reading them, and a loop.

    python benchmarks/aggregators.py --records 100000 --rounds 3

A run directory of synthetic tables is made in a temporary folder, part by part, by claimscore's
own writer. Then, in turns: polars reads the tables that a metric needs and does nothing with
them (`read`); claimscore's metric reads and scores them (`score`); a Python loop reads them and
calls the public function, such as `claimscore.metrics.summac_zs`, for each record (`loop`);
`scores.parquet` is made as `claimscore score` does, but without the bootstrap intervals
(`step`). Values of metric and loop must be the same.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore import RunConfig
from claimscore.metrics import caspr_from_labels, load_metric, summac_conv, summac_zs
from claimscore.metrics.base import ChunkTables, Metric
from claimscore.metrics.fact_similarity import factsim_from_similarities
from claimscore.metrics.summac.convolution import as_weights, load_weights
from claimscore.pipeline import scoring
from claimscore.pipeline.plan import make_plan
from claimscore.pipeline.settings import result_settings, signature_facts, stored_plan
from claimscore.runs import RunDirectory
from claimscore.stats.bootstrap import MeanInterval
from claimscore.tables import TABLES

LABELS = ("entailment", "neutral", "contradiction")
SEED = 0
INFO = {"model": "synthetic", "revision": "0", "dtype": "float32"}
TEXT = "A sentence of more than ten characters."
Values = list[float | None]
Reader = Callable[[str], pl.DataFrame]


# The tables


def sizes(draw: np.random.Generator, n: int, low: int, high: int) -> NDArray[np.int64]:
    return draw.integers(low, high, n, endpoint=True)


def grid(
    ids: pl.Series, first: NDArray[np.int64], second: NDArray[np.int64], names: tuple[str, str]
) -> pl.DataFrame:
    """One row for each pair of an item of the first side with one of the second."""
    counts = first * second
    owner = np.repeat(np.arange(len(ids)), counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    i, j = np.divmod(place, second[owner])
    return pl.DataFrame({"id": ids[owner], names[0]: i, names[1]: j})


def items(ids: pl.Series, counts: NDArray[np.int64], index: str) -> pl.DataFrame:
    return grid(ids, counts, np.ones_like(counts), (index, "_")).drop("_")


def fit(table: str, rows: pl.DataFrame, **constant: Any) -> pl.DataFrame:
    """The rows with the table's columns and types; what is not given is null."""
    schema = TABLES[table].schema
    given = {name: pl.lit(value) for name, value in constant.items() if name in schema}
    rows = rows.with_columns(**given)
    lacking = {name: pl.lit(None) for name in schema if name not in rows.columns}
    return rows.with_columns(**lacking).select(pl.col(n).cast(t) for n, t in schema.items())


def probabilities(draw: np.random.Generator, n: int) -> dict[str, NDArray[np.float32]]:
    values = draw.dirichlet((0.3, 0.3, 0.3), n).astype(np.float32)
    return {name: values[:, place].copy() for place, name in enumerate(LABELS)}


def chunk_frames(draw: np.random.Generator, ids: pl.Series) -> dict[str, dict[str, pl.DataFrame]]:
    """The tables of one chunk, by the step that writes them."""
    n = len(ids)
    n_a, n_b = sizes(draw, n, 2, 6), sizes(draw, n, 2, 6)
    claims = [
        fit("claims", items(ids, count, "claim_index"), side=side, sentence_index=0, text=TEXT)
        for side, count in (("a", n_a), ("b", n_b))
    ]
    nli = [
        fit(
            "nli",
            pairs.with_columns(**probabilities(draw, pairs.height)),
            premise_side=premise,
            hypothesis_side=hypothesis,
            direction=f"{premise}_to_{hypothesis}",
            **INFO,
        )
        for premise, hypothesis, sides in (("a", "b", (n_a, n_b)), ("b", "a", (n_b, n_a)))
        for pairs in [grid(ids, *sides, ("premise_index", "hypothesis_index"))]
    ]
    blocks = grid(
        ids, sizes(draw, n, 4, 16), sizes(draw, n, 1, 5), ("premise_index", "hypothesis_index")
    )
    n_source, n_summary = sizes(draw, n, 5, 15), sizes(draw, n, 1, 9)
    facts = [
        fit("facts", items(ids, count, "index"), side=side, subject="the room", description="clean")
        for side, count in (("source", n_source), ("summary", n_summary))
    ]
    cells = grid(ids, n_source, n_summary, ("row_index", "column_index"))
    cosines = draw.uniform(-0.2, 1, cells.height).astype(np.float32)
    texts = ("summary_a", "summary_b", "source", "summary")
    records = pl.DataFrame({"id": ids}).with_columns(pl.lit(TEXT).alias(name) for name in texts)
    return {
        "records": {"records": records},
        "decompose-a-b": {"claims": pl.concat(claims)},
        "nli-a-b": {"nli": pl.concat(nli).sort("id", maintain_order=True)},
        "block_nli-source.sentence-summary.sentence": {
            "block_nli": fit(
                "block_nli",
                blocks.with_columns(**probabilities(draw, blocks.height)),
                premise_side="source",
                premise_cut="sentence",
                hypothesis_side="summary",
                hypothesis_cut="sentence",
                **INFO,
            )
        },
        "facts-summary-source": {"facts": pl.concat(facts)},
        "fact_similarities-source.fact-summary.fact": {
            "similarities": fit(
                "similarities",
                cells.with_columns(similarity=cosines),
                unit="fact",
                row_side="source",
                column_side="summary",
                **INFO,
            )
        },
    }


def make_run(out: Path, n: int, metrics: tuple[str, ...]) -> None:
    """A run directory in which every step of every chunk is finished."""
    draw = np.random.default_rng(SEED)
    config = RunConfig(input="synthetic", out=out, metrics=metrics)
    ids = pl.Series("id", [f"record-{number}" for number in range(n)])
    with RunDirectory(out) as directory:
        plan = make_plan(config, ["id", "summary_a", "summary_b", "source", "summary"])
        settings = result_settings(config, plan, None, {"digest": "synthetic", "count": n})
        for role in ("nli", "embedder"):
            settings["additive"][role]["revision"] = INFO["revision"]
        directory.check_settings(settings)
        directory.write_plan(stored_plan(plan, ""))
        for chunk in range(directory.n_chunks):
            own = ids.slice(chunk * config.chunk_records, config.chunk_records)
            for step, frames in chunk_frames(draw, own).items():
                directory.write_parts(chunk, step, frames)


# The plain loops


Matrix = list[list[Any]]


def matrices(rows: Iterator[tuple[Any, ...]]) -> dict[str, Matrix]:
    """Rows (id, i, j, value...) in the order of i and j as one matrix a record."""
    found: dict[str, Matrix] = {}
    for record, i, _, *value in rows:
        matrix = found.setdefault(record, [])
        if i == len(matrix):
            matrix.append([])
        matrix[i].append(value if len(value) > 1 else value[0])
    return found


PAIR = ("id", "premise_index", "hypothesis_index", *LABELS)


def loop_caspr(read: Reader) -> Values:
    nli = read("nli")
    there, back = (
        matrices(nli.filter(pl.col("premise_side") == side).select(PAIR).iter_rows())
        for side in ("a", "b")
    )
    return [caspr_from_labels(there[record], back[record]) for record in read("records")["id"]]


def loop_summac(read: Reader, score: Callable[[Matrix], float | None]) -> Values:
    images = matrices(read("block_nli").select(PAIR).iter_rows())
    return [score(images[record]) for record in read("records")["id"]]


def loop_factsim(read: Reader) -> Values:
    columns = ("id", "row_index", "column_index", "similarity")
    cells = matrices(read("similarities").select(columns).iter_rows())
    return [factsim_from_similarities(cells[record]).score for record in read("records")["id"]]


# The comparison


class Case(NamedTuple):
    """A metric, the tables that it reads, and its loop."""

    metric: str
    tables: tuple[str, ...]
    loop: Callable[[Reader], Values]


def cases(weights: Path) -> tuple[Case, ...]:
    nli = ("records", "failures", "block_nli")
    conv = load_weights(weights)
    return (
        Case("caspr", ("records", "failures", "claims", "nli"), loop_caspr),
        Case("summac-zs", nli, lambda read: loop_summac(read, summac_zs)),
        Case(
            "summac-zs:variant=code",
            nli,
            lambda read: loop_summac(read, functools.partial(summac_zs, variant="code")),
        ),
        Case(
            f"summac-conv:weights={weights}",
            nli,
            lambda read: loop_summac(read, functools.partial(summac_conv, weights=conv)),
        ),
        Case("factsim", ("records", "failures", "facts", "similarities"), loop_factsim),
    )


class Seconds(NamedTuple):
    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> tuple[Seconds, Any]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu), result


def score_step(directory: RunDirectory, metric: Metric) -> Seconds:
    """`score_run` without the bootstrap, which does not depend on how scores are made."""
    facts = signature_facts(directory.settings)
    nothing = MeanInterval(0, 0, 0, 0, 0)
    with mock.patch.object(scoring.RunningMean, "interval", return_value=nothing):
        return timed(lambda: scoring.score_run(directory, (metric,), facts, SEED))[0]


WAYS = ("read", "score", "loop", "step")


def one_round(directory: RunDirectory, case: Case) -> dict[str, Seconds]:
    def read(table: str) -> pl.DataFrame:
        return directory.scan(table).collect()

    metric = load_metric(case.metric)
    seconds: dict[str, Seconds] = {}
    seconds["read"], _ = timed(lambda: [read(table) for table in case.tables])
    seconds["score"], scores = timed(lambda: metric.score(ChunkTables(read)))
    seconds["loop"], values = timed(lambda: case.loop(read))
    seconds["step"] = score_step(directory, metric)
    np.testing.assert_allclose([score.value for score in scores], values, rtol=0, atol=1e-9)
    return seconds


def report(found: Mapping[str, Sequence[Mapping[str, Seconds]]]) -> None:
    """Medians over the rounds: wall seconds (CPU seconds), and ratios of CPU within a round."""
    print(f"{'metric':24}" + "".join(f"{way:>16}" for way in WAYS) + "  score/read  loop/score")
    for metric, rounds in found.items():
        cells = []
        for way in WAYS:
            wall = statistics.median(seconds[way].wall for seconds in rounds)
            cpu = statistics.median(seconds[way].cpu for seconds in rounds)
            cells.append(f"{wall:7.2f} ({cpu:5.2f})".rjust(16))
        over_read = statistics.median(s["score"].cpu / s["read"].cpu for s in rounds)
        over_loop = statistics.median(s["loop"].cpu / s["score"].cpu for s in rounds)
        print(f"{metric:24}" + "".join(cells) + f"{over_read:12.2f}{over_loop:12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights, out = Path(folder) / "weights.safetensors", Path(folder) / "run"
        as_weights(random_state()).save(weights, {})
        compared = cases(weights)
        make_run(out, arguments.records, tuple(case.metric for case in compared))
        found: dict[str, list[dict[str, Seconds]]] = {}
        with RunDirectory(out) as directory:
            rows = ", ".join(f"{n:,} {name}" for name, n in directory.manifest.counts().items())
            print(f"{rows}; {directory.n_chunks:,} chunks")
            for _ in range(arguments.rounds):
                for case in compared:
                    name = case.metric.partition(":weights")[0]
                    found.setdefault(name, []).append(one_round(directory, case))
            report(found)


def random_state() -> dict[str, NDArray[np.float64]]:
    """Weights of SummaC-Conv that were never trained."""
    draw = np.random.default_rng(SEED)
    shapes = {"mlp.weight": (1, 23), "mlp.bias": (1,)}
    shapes |= {"layer_final.weight": (2, 3), "layer_final.bias": (2,)}
    return {name: draw.normal(size=shape) for name, shape in shapes.items()}


if __name__ == "__main__":
    main()
