"""From tables to scores and counts: chunks in groups, few values, failures, cut texts."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from claimscore.console.result import print_result
from claimscore.errors import ConfigError
from claimscore.metrics import catalogue, load_metric
from claimscore.metrics.base import scored
from claimscore.pipeline import scoring
from claimscore.pipeline.scoring import chunk_tables, failed, score_chunk, score_run, truncations
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIM_CHECKS, CLAIMS, FAILURES, NLI, SUPPORT
from tests.support.frames import tables

CHUNKS = (("0", "1"), ("2",), ("3", "4"), ("5", "6"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as directory:
        yield directory


@pytest.fixture
def seven(run: RunDirectory) -> RunDirectory:
    """Two records a chunk; those of the second chunk have no claims."""
    run.check_settings({"records": {"count": 7}, "chunk_records": 2})
    for chunk, ids in enumerate(CHUNKS):
        records = [{"id": i, "summary_a": f"one {i}", "summary_b": "one two"} for i in ids]
        run.write_parts(chunk, "records", {"records": pl.DataFrame(records)})
        rows: list[dict[str, object]] = [{"id": i, "side": "a", "text": "One."} for i in ids]
        claims = CLAIMS.frame(rows if chunk != 1 else [])
        run.write_parts(chunk, "decompose-a-b", {"claims": claims})
    return run


def test_rows_of_claims_that_others_entail_are_left_out(run: RunDirectory) -> None:
    """Places count the claims that were not left out when the rows were made."""
    left_out = {"x": [None, "ambiguous", None, None], "y": ["ambiguous"]}
    claims = [
        {"id": "r", "side": side, "text": f"{side}{n}", "left_out": reason}
        for side, reasons in left_out.items()
        for n, reason in enumerate(reasons)
    ]
    entailed = {"id": "r", "side": "x", "claim_position": 1, "check": "entailed", "value": 0.95}
    made = {
        "records": pl.DataFrame({"id": ["r"]}),
        "claims": CLAIMS.frame(claims),
        "claim_checks": CLAIM_CHECKS.frame([entailed, {**entailed, "check": "repeat"}]),
        "nli": NLI.frame(
            [
                {"id": "r", "premise_side": "x", "premise_index": i, "direction": f"{i}{j}"}
                | {"hypothesis_side": "x", "hypothesis_index": j}
                | dict.fromkeys(("entailment", "neutral", "contradiction"), 0.3)
                for i in range(3)
                for j in range(3)
            ]
        ),
        "support": SUPPORT.frame([{"id": "r", "side": "x", "claim_position": i} for i in range(3)]),
    }
    run.check_settings({"records": {"count": 1}, "chunk_records": 1})
    for table, rows in made.items():
        run.write_parts(0, table, {table: rows})
    assert chunk_tables(run, 0)["nli"].equals(made["nli"])
    tables = chunk_tables(run, 0, dedupe=True)
    assert tables["claims"]["text"].to_list() == ["x0", "x3"]
    pairs = tables["nli"].select("premise_index", "hypothesis_index", "direction").rows()
    assert pairs == [(0, 0, "00"), (0, 1, "02"), (1, 0, "20"), (1, 1, "22")]
    assert tables["support"]["claim_position"].to_list() == [0, 1]
    assert tables.no_claims("r", "y") == "all claims of y are ambiguous: 1 of 1"


def test_groups_change_no_score(seven: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = (load_metric("ds"), load_metric("caspr"))
    found = []
    for most in (1, 4096):
        monkeypatch.setattr(scoring, "SCORED_RECORDS", most)
        summary = score_run(seven, metrics, {}, 0)
        found.append((summary, (seven.path / "scores.parquet").read_bytes()))
    assert found[0] == found[1]
    scores = pl.read_parquet(seven.path / "scores.parquet")
    assert scores["id"].to_list() == [str(i) for i in range(7) for _ in metrics]
    assert scores["metric"].to_list() == ["ds", "caspr"] * 7
    assert scores.filter(metric="ds")["value"].null_count() == 0
    worst = scores.filter(metric="ds").sort("value", descending=True, maintain_order=True).head(5)
    assert found[0][0]["ds"]["worst"] == worst.select("id", "value").to_dicts()
    assert found[0][0]["caspr"]["worst"] == []
    assert scores.filter(metric="caspr")["reason"].unique().sort().to_list() == [
        "no claims in summary_a",
        "no claims in summary_b",
    ]


FEW = "fewer than 5 records have a value"
SOURCE_SAYS = "the source supports {} of the claims of a summary"
ALONE = "{}; higher is more shared words. The level says little by itself: compare it with another "


@pytest.mark.parametrize(
    ("metric", "values", "verdict", "bounds"),
    [
        ("faithfulness", [1.0] * 30 + [0.5] * 2, SOURCE_SAYS.format("97 % (93 to 100 %)"), (0, 1)),
        (
            "faithfulness",
            [0.0, 0.0, 0.0, 0.0, 1.0],
            SOURCE_SAYS.format("20 % (0 to 55 %)") + "; so few records say it only roughly",
            (0.0, 1.0),
        ),
        ("faithfulness", [0.5] * 4, SOURCE_SAYS.format("50 %"), FEW),
        ("faithfulness:score=probability", [0.5] * 4 + [0.6], "0.52 (0.49 to 0.55); hig", (0, 1)),
        ("rouge-1", [0.5] * 4, ALONE.format("0.50"), FEW),
        ("caspr", [100.0] * 50, "100.00 of 100: 0 is to", "all records have the same value"),
        ("caspr", [100.0] * 49 + [0.0], "98.00 (94.10 to 100.00) of 100: 0 is to say", (0, 100)),
        ("caspr", [], "no record has a value", "no record has a value"),
    ],
)
def test_the_verdict_is_said_in_words_and_no_bound_leaves_the_range(
    metric: str, values: list[float], verdict: str, bounds: tuple[float, float] | str
) -> None:
    summary = scoring._summary(load_metric(metric), np.array(values), {}, 0)
    assert summary["verdict"].startswith(verdict)
    if isinstance(bounds, str):
        names = ("low", "high", "half_width", "no_interval")
        assert [summary[name] for name in names] == [None, None, None, bounds]
    else:
        assert summary["no_interval"] is None
        assert bounds[0] <= summary["low"] <= summary["mean"] <= summary["high"] <= bounds[1]


@pytest.mark.parametrize(
    ("value", "says"),
    [(1.2, "record x has the value 1.2, beyond the metric's range, 0 to 1"), (math.nan, "finite")],
)
def test_a_value_that_no_metric_may_have_is_refused(value: float, says: str) -> None:
    """But for what a machine's arithmetic may add."""
    values = [1 + 1e-9, value]
    scores = lambda _: [scored("x", values.pop(0), {})]  # noqa: E731
    metric = dataclasses.replace(load_metric("claim-f1"), score=scores)
    how = tables([{"id": "x"}]), [metric], {"claim-f1": ""}
    assert score_chunk(*how)["value"].to_list() == [1 + 1e-9]
    with pytest.raises(ConfigError, match=says):
        score_chunk(*how)


def test_failures_are_counted_by_stage_and_kind(run: RunDirectory) -> None:
    run.check_settings({"seed": 0})
    assert (failed(run), run.failures_by_kind()) == ((0, []), [])
    rows = [
        [("b", "facts", "parse", "b1"), ("b", "facts", "parse", "b2")],
        [("c", "facts", "parse", "c"), ("c", "decompose", "filter", "c"),
         ("a", "decompose", "filter", "a")],
    ]  # fmt: skip
    for chunk, of_chunk in enumerate(rows):
        names = ("id", "stage", "kind", "message")
        frame = FAILURES.frame([dict(zip(names, row, strict=True)) for row in of_chunk])
        run.write_parts(chunk, "facts-source", {"failures": frame})
    counts = [
        {"stage": "decompose", "kind": "filter", "count": 2},
        {"stage": "facts", "kind": "parse", "count": 3},
    ]
    assert run.failures_by_kind() == counts
    by_kind = [counts[0] | {"example": "a"}, counts[1] | {"example": "b1"}]
    assert failed(run) == (3, by_kind)


def cut(name: str, *flags: bool | None) -> pl.DataFrame:
    return NLI.frame([{"id": name, "truncated": flag} for flag in flags])


def test_cut_rows_and_records_are_counted_for_each_metric(run: RunDirectory) -> None:
    """Rows of other steps do not count. Where no row tells, that is said."""
    metrics = catalogue(()).load_all(("caspr",))
    (step,) = {need.step for need in metrics[0].requires.passes}
    run.check_settings({"additive": {"nli": {"limit": 512}}})
    run.write_parts(2, "nli-b-c", {"nli": cut("w", True)})
    assert truncations(run, metrics) == {}
    run.write_parts(2, step, {"nli": cut("v", None, None)})
    found = {"rows": 0, "records": 0, "limits": [512], "unknown": 2}
    assert truncations(run, metrics) == {"caspr": found}
    run.write_parts(0, step, {"nli": pl.concat([cut("x", True, True, False), cut("y", None)])})
    run.write_parts(1, step, {"nli": cut("z", True)})
    assert truncations(run, metrics) == {"caspr": found | {"rows": 3, "records": 2, "unknown": 0}}


def test_the_end_of_a_run_names_what_was_cut(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"requests": 0, "usd": 0, "cache_hits": 0, "nli_pairs": 4, "seconds": 1.0}
    records = {"total": 2, "done": 2, "failed": 0}
    summary = {"metrics": {}, "records": records, "failures": [], "last_call": call}
    print_result(summary, "out")
    assert "token limit" not in capsys.readouterr().out
    cut = {"rows": 3, "records": 1, "limits": [512], "unknown": 0}
    unknown = {"rows": 0, "records": 0, "limits": [], "unknown": 7}
    print_result(summary | {"truncated": {"ds": cut, "caspr": cut, "factsim": unknown}}, "out")
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "ds, caspr: the model read 3 of its inputs, in 1 record, only up to its limit of 512 "
        in (printed)
    )
    assert "factsim: not known: the model does not tell which of its 7 inputs it cut" in printed
