"""Comparisons of run directories and files of scores, and what cannot be compared."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.comparison_tables import to_json
from claimscore.runs import RunDirectory
from claimscore.tables import SCORES
from tests.support.command_line import Command
from tests.support.compared_runs import compared, score_rows, write_run

IDS = [f"r{number:03d}" for number in range(80)]


def values(seed: int, shift: float = 0.0) -> list[float | None]:
    base = np.random.default_rng(0).normal(60, 10, len(IDS))
    return (base + shift + np.random.default_rng(seed).normal(0, 2, len(IDS))).tolist()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """`caspr` is 3 higher in the second, `ds` is not."""
    columns = {"system": [f"s{place % 2}" for place in range(len(IDS))]}
    first = {"caspr": values(1), "ds": values(2)}
    second = {"caspr": values(3, shift=3.0), "ds": values(4)}
    return (
        write_run(tmp_path / "a", IDS, first, columns=columns),
        write_run(tmp_path / "b", IDS, second, columns=columns),
    )


def test_a_planted_difference_is_found_in_runs_and_in_files_of_scores(pair: tuple[Path, Path]):
    files = [run / "scores.parquet" for run in pair]
    (of_runs,), (of_files,) = compared(*pair).runs, compared(*files).runs
    verdicts = {row.metric: row.verdict for row in of_runs.metrics}
    assert verdicts == {"caspr": "higher", "ds": "not shown"}
    caspr, ds = (row.difference for row in of_runs.metrics)
    assert 0 < (caspr.low or 0) < 3 < (caspr.high or 0)
    assert (ds.low or 0) < 0 < (ds.high or 0)
    assert of_files.metrics == of_runs.metrics
    assert of_files.moves == of_runs.moves
    assert of_files.changes == {}
    with pytest.raises(ConfigError, match="only run directories"):
        compared(*files, by="system")


def test_by_group(pair: tuple[Path, Path]):
    found = compared(*pair, by="system")
    (run,) = found.runs
    assert [(row.metric, row.group, row.difference.n, row.verdict) for row in run.groups] == [
        ("caspr", "s0", 40, "higher"),
        ("caspr", "s1", 40, "higher"),
        ("ds", "s0", 40, "not shown"),
        ("ds", "s1", 40, "not shown"),
    ]
    whole, first, second = run.metrics[0].difference, *(r.difference for r in run.groups[:2])
    assert whole.mean == pytest.approx(((first.mean or 0) + (second.mean or 0)) / 2)
    shown = to_json(found)["runs"][0]["groups"][0]["difference"]
    assert (shown["mean"], shown["records_needed"]) == (first.mean, first.records_needed())


def test_several_runs_are_corrected_together(tmp_path: Path, pair: tuple[Path, Path]):
    third = write_run(tmp_path / "c", IDS, {"caspr": values(5), "ds": values(6)})
    alone, found = compared(*pair), compared(*pair, third)
    assert [run.b.label for run in found.runs] == ["B", "C"]
    first = [run.metrics[0] for run in (alone.runs[0], found.runs[0])]
    assert first[0].difference == first[1].difference
    assert first[1].holm == pytest.approx(2 * (first[0].holm or 0))


def test_null_scores_are_counted_with_reasons_and_never_numbers(tmp_path: Path):
    runs = (
        write_run(tmp_path / "a", IDS[:4], {"ds": [1.0, 2.0, None, 4.0]}),
        write_run(tmp_path / "b", IDS[:4], {"ds": [2.0, None, None, 5.0]}),
    )
    (run,) = compared(*runs).runs
    (row,) = run.metrics
    assert (row.difference.n, row.difference.mean_a, row.difference.mean_b) == (2, 2.5, 3.5)
    assert row.nulls[:3] == (1, 2, 2)
    assert row.nulls.reasons_b == {"decompose failed": 2}
    rows = run.paired["ds"]
    assert rows["difference"].to_list() == [1.0, None, None, 1.0]
    assert rows["b_reason"].to_list()[1] == "decompose failed: no answer"


def test_ids_and_metrics_that_one_run_lacks_are_named(tmp_path: Path):
    runs = (
        write_run(tmp_path / "a", IDS[:20], {"ds": [1.0] * 20, "caspr": [1.0] * 20}),
        write_run(tmp_path / "b", ["new", *IDS[8:20]], {"ds": [2.0] * 13}),
    )
    (run,) = compared(*runs).runs
    assert (run.n_shared, run.only_a, run.only_b) == (12, (8, tuple(IDS[:5])), (1, ("new",)))
    assert run.metrics[0].difference.n == 12
    assert (run.only_metrics_a, run.only_metrics_b) == (("caspr",), ())
    other = write_run(tmp_path / "c", ["x"], {"ds": [1.0]})
    with pytest.raises(InputError, match="share no ids: 'r000' in A, 'x' in B"):
        compared(runs[0], other)


def test_metrics_and_the_number_of_records_may_be_chosen(pair: tuple[Path, Path]):
    (run,) = compared(*pair, top=3, metrics=("ds",)).runs
    assert [row.metric for row in run.metrics] == ["ds"]
    sizes = [abs(move.difference) for move in run.moves]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == len(run.records) == 3
    assert not compared(*pair, top=0).runs[0].records
    assert len(compared(*pair, top=10**20).runs[0].records) == len(IDS)
    with pytest.raises(ConfigError, match="no scores of rouge; there are: caspr, ds"):
        compared(*pair, metrics=("rouge",))


SETTINGS = {
    "additive": {"prompts": {"decompose": {"version": "v1", "digest": "1"}}, "nli": {"name": "x"}}
}
OTHER = {
    "additive": {"prompts": {"decompose": {"version": "v2", "digest": "2"}}, "llm": {"model": "m"}}
}


def test_settings_and_data_that_differ(tmp_path: Path):
    texts = {"summary": ["x", "y"], "sources": ["u", "v"], "summary_b": ["not", "read"]}
    first = {"columns": texts, "settings": SETTINGS}
    second = {"columns": {"summary": ["y", "z"]}, "settings": OTHER, "signature": "v2|claimscore:9"}
    runs = (
        write_run(tmp_path / "a", ["1", "2"], {"ds": [1, 2]}, **first),  # type: ignore[arg-type]
        write_run(tmp_path / "b", ["2", "1"], {"ds": [1, 2]}, **second),  # type: ignore[arg-type]
    )
    with RunDirectory(runs[0]) as directory:
        directory.write_summary({"columns": ["summary", "sources"]})
    (run,) = compared(*runs).runs
    assert [tuple(row) for row in run.settings] == [
        ("prompts.decompose.version", "v1", "v2"),
        ("nli.name", "x", None),
        ("llm.model", None, "m"),
        ("ds: version", "v1", "v2"),
        ("claimscore", None, "9"),
    ]
    assert [tuple(row) for row in run.data] == [
        ("summary", 1, None),
        ("sources", None, "only in A"),
    ]


def test_signatures_stand_in_where_there_are_no_settings(tmp_path: Path):
    files = []
    for name, signature in (("a", "v1|nli:x@1|seed:0"), ("b", "v1|nli:y@1|seed:0")):
        path = tmp_path / f"{name}.parquet"
        SCORES.frame(score_rows(["1"], {"ds": [1.0]}, signature)).write_parquet(path)
        files.append(path)
    (run,) = compared(*files).runs
    assert [tuple(row) for row in run.settings] == [("nli", "x@1", "y@1")]


def write_versions(folder: Path) -> tuple[Path, Path]:
    """Two versions of a prompt: of `1` one claim is reworded, one vanished, one appeared."""
    claims = {
        ("1", "a"): ["The pool is warm.", "Staff are kind."],
        ("1", "b"): ["It is far."],
        ("2", "a"): ["Same."],
        ("2", "b"): ["Same too."],
        ("3", "a"): ["Only here."],
    }
    later = claims | {("1", "a"): ["The pool is very warm.", "Breakfast ends early."]}
    del later["3", "a"]
    facts = [("room", "large"), ("pool", "warm")]
    ids, key = ["1", "2", "3"], ("1", "summary")
    first: Any = {"claims": claims, "facts": {key: facts}}
    second: Any = {"claims": later, "facts": {key: facts[:1]}}
    return (
        write_run(folder / "v1", ids, {"m": [1, 1, 1]}, **first),
        write_run(folder / "v2", ids, {"m": [5, 1, 2]}, **second),
    )


def test_claims_of_records_that_moved_and_of_all(tmp_path: Path):
    """Of record 1 a claim was reworded, one is gone and one new; of record 3 its only one is."""
    versions = compared(*write_versions(tmp_path)).runs[0]
    first, last = versions.records
    assert (first.id, last.id) == ("1", "3")
    assert [(unit.table, unit.side, *unit.change) for unit in first.changes] == [
        ("claims", "a", "reworded", "The pool is warm.", "The pool is very warm."),
        ("claims", "a", "gone", "Staff are kind.", None),
        ("claims", "a", "new", None, "Breakfast ends early."),
        ("facts", "summary", "gone", "pool warm", None),
    ]
    assert [unit.change for unit in last.changes] == [("gone", "Only here.", None)]

    assert versions.changes == {
        ("claims", "a"): {"same": 1, "reworded": 1, "gone": 2, "new": 1},
        ("claims", "b"): {"same": 2},
        ("facts", "summary"): {"same": 1, "gone": 1},
    }


def test_unfinished_runs_are_compared_and_said_to_be(tmp_path: Path):
    whole = write_run(tmp_path / "a", IDS[:6], {"ds": [1.0] * 6}, claims={(IDS[0], "a"): ["x"]})
    begun = write_run(tmp_path / "b", IDS[:6], claims={(IDS[0], "a"): ["y"]})
    (run,) = compared(whole, begun).runs
    assert run.metrics == ()
    assert run.changes["claims", "a"] == {"gone": 1, "new": 1}
    assert run.b.notices == ("unfinished: it has no scores yet; run it to the end first",)
    settings = {"records": {"count": 9, "digest": "d"}}
    part = write_run(tmp_path / "c", IDS[:6], {"ds": [1.0] * 6}, settings=settings)
    (run,) = compared(whole, part).runs
    assert run.b.notices == ("unfinished: 6 of its 9 records are read",)
    with RunDirectory(whole):
        (run,) = compared(whole, whole).runs
    assert "at work" in run.b.notices[0]


def test_records_in_another_order_give_the_same_bytes(tmp_path: Path):
    """Draws depend on the ids, not on the order of the input."""
    order = np.random.default_rng(1).permutation(len(IDS))
    first, second = values(1), values(2)
    straight = [write_run(tmp_path / n, IDS, {"m": v}) for n, v in (("a", first), ("b", second))]
    shuffled = [
        write_run(tmp_path / n, [IDS[i] for i in order], {"m": [v[i] for i in order]})
        for n, v in (("c", first), ("d", second))
    ]
    one, other = (compared(*runs).runs[0].metrics for runs in (straight, shuffled))
    assert [dataclasses.astuple(row.difference) for row in one] == [
        dataclasses.astuple(row.difference) for row in other
    ]


# What cannot be compared is one clear line.

ROWS = SCORES.frame(score_rows(["1", "2"], {"ds": [1.0, 2.0]}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such run directory"),
        (b"id,metric,value\n", "not a Parquet file"),
        (pl.concat([ROWS, ROWS]), "record 1 has two rows of ds"),
        (ROWS.with_columns(value=float("nan")), "metric ds holds NaN"),
        (ROWS.with_columns(value=1e308), "metric ds holds a score beyond 1e"),
        (ROWS.drop("value"), "no column value"),
        (ROWS.with_columns(metric=pl.lit(None, pl.String)), "a row has no id or no metric"),
        (ROWS.with_columns(value=pl.lit("x")), "column value holds String"),
        ("a folder", "not a run directory"),
    ],
)
def test_a_file_that_is_none_of_scores_is_named(tmp_path: Path, content: Any, message: str):
    whole = write_run(tmp_path / "a", ["1", "2"], {"ds": [1.0, 2.0]})
    path = tmp_path / "broken.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    elif content:
        path.mkdir()
    with pytest.raises(ConfigError, match=message) as error:
        compared(whole, path)
    assert "broken.parquet" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_printed(cli: Command, tmp_path: Path):
    """Runs, differences, records, method; nothing that a terminal would obey."""
    changed = [50.0 + number for number in range(11)] + [None]
    evil, other = {("r010", "a"): ["a\x1b[31m [x] \u202e red"]}, {("r010", "a"): ["Else."]}
    write_run(tmp_path / "a", IDS[:12], {"ds": [50.0] * 12}, claims=evil)
    write_run(tmp_path / "b", IDS[:12], {"ds": changed}, claims=other)
    runs = tmp_path / "a", tmp_path / "b"
    code, text, _ = cli("compare", *runs, "--samples", 100, "--top", 12, "--full")
    assert code == 0
    assert f"{runs[0]} (baseline)" in text
    assert "ds: 1 of the shared records have no score in B: 1 x decompose failed" in text
    assert "95 % paired bootstrap interval (100 samples" in text
    for words in ("higher", "letter trigrams", "[x]"):
        assert words in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a",), "at least two"),
        (("a",) * 27, "at most 26"),
        (("a", "b", "--samples", "0"), "--samples"),
        (("missing", "missing"), "missing: there is no such run directory"),
        (("a", "b", "--top", "-3"), "--top must be at least 0"),
        (("a", "b", "--html", "."), "is a directory"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(
    cli: Command,
    pair: tuple[Path, Path],
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(pair[0].parent)
    code, text, error = cli("compare", *arguments)
    assert (code, text) == (2, "")
    assert message in error
    assert "Traceback" not in error


def test_groups_are_in_the_order_of_numbers_and_the_missing_one_is_last(tmp_path: Path):
    stars = {"stars": ["10", "2", "x", None, "-1"]}
    run = write_run(tmp_path / "a", IDS[:5], {"ds": [1.0] * 5}, columns=stars)
    groups = compared(run, run, by="stars").runs[0].groups
    assert [row.group for row in groups] == ["-1", "2", "10", "x", "(none)"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("none", "no such column; there are: many, lists"),
        ("many", "it has 101 values"),
        ("lists", "holds lists"),
    ],
)
def test_columns_that_are_no_groups(tmp_path: Path, column: str, message: str):
    ids = [str(number) for number in range(101)]
    columns = {"many": ids, "lists": [[number] for number in range(101)]}
    run = write_run(tmp_path / "a", ids, {"ds": [1.0] * 101}, columns=columns)
    with pytest.raises(ConfigError, match=message):
        compared(run, run, by=column)
