"""Whole comparisons of run directories and files of scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.compare.comparison_json import difference_rows
from claimscore.pipeline.encoders.protocols import NLI_LABELS as LABELS
from claimscore.runs import RunDirectory
from claimscore.tables import SCORES
from tests.support.compared_runs import compared, score_rows, write_run

E, N, C = LABELS
IDS = [f"r{number:03d}" for number in range(80)]


def values(seed: int, shift: float = 0.0) -> list[float | None]:
    """The same records' scores with a noise of their own."""
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


def test_a_planted_difference_is_found_and_no_other(pair: tuple[Path, Path]):
    """The metric that moved is higher, of the other no difference is shown."""
    (run,) = compared(*pair).runs
    verdicts = {row.metric: row.verdict for row in run.metrics}
    assert verdicts == {"caspr": "higher", "ds": "not shown"}
    caspr, ds = (row.difference for row in run.metrics)
    assert caspr.low is not None
    assert caspr.high is not None
    assert 0 < caspr.low < 3 < caspr.high
    assert ds.low is not None
    assert ds.high is not None
    assert ds.low < 0 < ds.high


def test_a_run_compared_with_itself(pair: tuple[Path, Path]):
    """Every difference is zero, nothing moved, no setting differs."""
    (run,) = compared(pair[0], pair[0]).runs
    assert [row.verdict for row in run.metrics] == ["same", "same"]
    assert {row.difference.mean for row in run.metrics} == {0.0}
    assert (run.settings, run.data, run.moves, run.records) == ((), (), (), ())
    assert (run.only_a.n, run.only_b.n, run.n_shared) == (0, 0, len(IDS))


def test_exchanging_the_runs_turns_the_signs(pair: tuple[Path, Path]):
    """The same records moved, by the same numbers with the other sign."""
    (one,), (other,) = compared(*pair).runs, compared(*reversed(pair)).runs
    for here, there in zip(one.metrics, other.metrics, strict=True):
        assert here.difference.mean == pytest.approx(-(there.difference.mean or 0))
        assert here.difference.low == pytest.approx(-(there.difference.high or 0))
        assert here.difference.p_sign == there.difference.p_sign
    assert [(m.id, m.a, m.b) for m in one.moves] == [(m.id, m.b, m.a) for m in other.moves]


def test_the_same_numbers_from_files_of_scores(pair: tuple[Path, Path]):
    """A run's scores.parquet gives what the run gives; only the rest is not known."""
    files = [run / "scores.parquet" for run in pair]
    (of_runs,), (of_files,) = compared(*pair).runs, compared(*files).runs
    assert of_files.metrics == of_runs.metrics
    assert of_files.moves == of_runs.moves
    assert of_files.agreement == ()
    with pytest.raises(ConfigError, match="only run directories"):
        compared(*files, by="system")


def test_by_group(pair: tuple[Path, Path]):
    """A row a metric and group, over the group's records alone, corrected together."""
    (run,) = compared(*pair, by="system").runs
    assert [(row.metric, row.group) for row in run.groups] == [
        ("caspr", "s0"),
        ("caspr", "s1"),
        ("ds", "s0"),
        ("ds", "s1"),
    ]
    assert [row.difference.n for row in run.groups] == [40] * 4
    whole, first, second = run.metrics[0].difference, *(r.difference for r in run.groups[:2])
    assert whole.mean == pytest.approx(((first.mean or 0) + (second.mean or 0)) / 2)
    assert [row.verdict for row in run.groups] == ["higher", "higher", "not shown", "not shown"]


def test_a_missing_group_is_one_by_itself(tmp_path: Path):
    """Records without a value of the column stand last."""
    columns = {"system": ["x", None, "x"]}
    runs = [
        write_run(tmp_path / name, ["1", "2", "3"], {"ds": given}, columns=columns)
        for name, given in (("a", [1.0, 2.0, 3.0]), ("b", [2.0, 4.0, 5.0]))
    ]
    (run,) = compared(*runs, by="system").runs
    assert [(row.group, row.difference.n) for row in run.groups] == [("x", 2), ("(none)", 1)]


def test_several_runs_are_corrected_together(tmp_path: Path, pair: tuple[Path, Path]):
    """Each is compared with the first; the family is all of them."""
    third = write_run(tmp_path / "c", IDS, {"caspr": values(5), "ds": values(6)})
    alone, found = compared(*pair), compared(*pair, third)
    assert [run.b.label for run in found.runs] == ["B", "C"]
    assert (alone.family, found.family) == (2, 4)
    first = [run.metrics[0] for run in (alone.runs[0], found.runs[0])]
    assert first[0].difference == first[1].difference
    assert first[1].holm_bootstrap == pytest.approx(2 * (first[0].holm_bootstrap or 0))


def test_null_scores_are_counted_with_reasons_and_never_numbers(tmp_path: Path):
    """A record that has no score in one run is in no mean."""
    runs = (
        write_run(tmp_path / "a", IDS[:4], {"ds": [1.0, 2.0, None, 4.0]}),
        write_run(tmp_path / "b", IDS[:4], {"ds": [2.0, None, None, 5.0]}),
    )
    (run,) = compared(*runs).runs
    (row,) = run.metrics
    assert (row.difference.n, row.difference.mean_a, row.difference.mean_b) == (2, 2.5, 3.5)
    assert row.nulls[:3] == (1, 2, 2)
    assert row.nulls.reasons_b == {"decompose failed": 2}
    rows = difference_rows(compared(*runs))
    assert rows["difference"].to_list() == [1.0, None, None, 1.0]
    assert rows["reason"].to_list()[1] == "decompose failed: no answer"


def test_records_that_one_run_lacks_are_counted_and_named(tmp_path: Path):
    """The shared ones are compared."""
    runs = (
        write_run(tmp_path / "a", IDS[:20], {"ds": [1.0] * 20}),
        write_run(tmp_path / "b", ["new", *IDS[8:20]], {"ds": [2.0] * 13}),
    )
    (run,) = compared(*runs).runs
    assert (run.n_shared, run.only_a, run.only_b) == (12, (8, tuple(IDS[:5])), (1, ("new",)))
    assert run.metrics[0].difference.n == 12


def test_one_record(tmp_path: Path):
    """A difference without an interval, and no traceback."""
    runs = [
        write_run(tmp_path / name, ["1"], {"ds": [float(place)]}) for place, name in enumerate("ab")
    ]
    (run,) = compared(*runs).runs
    assert run.metrics[0].verdict == "too few"
    assert (run.metrics[0].difference.mean, run.metrics[0].difference.low) == (1.0, None)
    assert [move.difference for move in run.moves] == [1.0]


def test_no_shared_id_is_an_error(tmp_path: Path):
    """One line that names both, with an id of each."""
    runs = [write_run(tmp_path / name, [name], {"ds": [1.0]}) for name in "ab"]
    with pytest.raises(InputError, match="share no ids: 'a' in A, 'b' in B"):
        compared(*runs)


def test_no_shared_metric(tmp_path: Path):
    """Nothing to compare but claims; the metrics of each are named."""
    runs = [write_run(tmp_path / m, ["1"], {m: [1.0]}) for m in ("ds", "caspr")]
    (run,) = compared(*runs).runs
    assert (run.metrics, run.only_metrics_a, run.only_metrics_b) == ((), ("ds",), ("caspr",))


def test_metrics_may_be_chosen(pair: tuple[Path, Path]):
    """Others are left out; an unknown one is an error that names the known."""
    (run,) = compared(*pair, metrics=("ds",)).runs
    assert [row.metric for row in run.metrics] == ["ds"]
    with pytest.raises(ConfigError, match="no scores of rouge; there are: caspr, ds"):
        compared(*pair, metrics=("rouge",))


SETTINGS = {"additive": {"prompts": {"decompose": {"version": "v1"}}, "nli": {"name": "x"}}}
OTHER = {"additive": {"prompts": {"decompose": {"version": "v2"}}, "llm": {"model": "m"}}}


def test_settings_and_data_that_differ(tmp_path: Path):
    """Prompts, models and versions of both; columns of the records and how many values differ."""
    texts = {"summary": ["x", "y"], "only": [1, 2]}
    runs = (
        write_run(tmp_path / "a", ["1", "2"], {"ds": [1, 2]}, columns=texts, settings=SETTINGS),
        write_run(
            tmp_path / "b",
            ["2", "1"],
            {"ds": [1, 2]},
            columns={"summary": ["y", "z"]},
            settings=OTHER,
            signature="v2|claimscore:9",
        ),
    )
    (run,) = compared(*runs).runs
    assert [tuple(row) for row in run.settings] == [
        ("prompts.decompose.version", "v1", "v2"),
        ("llm.model", None, "m"),
        ("nli.name", "x", None),
        ("ds: version", "v1", "v2"),
        ("claimscore", None, "9"),
    ]
    assert [tuple(row) for row in run.data] == [("summary", 1, None), ("only", None, "only in A")]
    assert {record.id: record.texts for record in run.records} == {"1": ("summary",), "2": ()}


def test_signatures_stand_in_where_there_are_no_settings(tmp_path: Path):
    """Files of scores have nothing else."""
    files = []
    for name, signature in (("a", "v1|nli:x@1|seed:0"), ("b", "v1|nli:y@1|seed:0")):
        path = tmp_path / f"{name}.parquet"
        SCORES.frame(score_rows(["1"], {"ds": [1.0]}, signature)).write_parquet(path)
        files.append(path)
    (run,) = compared(*files).runs
    assert [tuple(row) for row in run.settings] == [("nli", "x@1", "y@1")]


def test_claims_behind_the_records_that_moved(versions: tuple[Path, Path]):
    """What changed, vanished and appeared of each; facts likewise."""
    (run,) = compared(*versions).runs
    assert [record.id for record in run.records] == ["1", "3"]
    first, last = run.records
    found = first.units["claims"].select("side", "kind", "a", "b").rows()
    assert found == [
        ("a", "changed", "The pool is warm.", "The pool is very warm."),
        ("a", "vanished", "Staff are kind.", None),
        ("a", "appeared", None, "Breakfast ends early."),
        ("b", "same", "It is far.", "It is far."),
    ]
    assert first.units["facts"].select("kind", "a").rows() == [
        ("same", "room large"),
        ("vanished", "pool warm"),
    ]
    assert last.units["claims"].select("kind").to_series().to_list() == ["vanished"]


def test_labels_behind_the_records_that_moved(versions: tuple[Path, Path]):
    """The reworded claim's label flipped; the claims of one run only have cells of their own."""
    (run,) = compared(*versions).runs
    (cells,) = run.records[0].cells
    (flip,) = cells.flips
    assert (flip.a.label, flip.b.label, flip.reworded) == (E, C, True)
    assert (flip.cell.premise, flip.cell_b.premise) == (
        "The pool is warm.",
        "The pool is very warm.",
    )
    assert (cells.shared, cells.only_a, cells.only_b) == (1, {N: 1}, {N: 1})


def test_agreement_of_versions(versions: tuple[Path, Path]):
    """By table and side, over the records that have claims in both."""
    (run,) = compared(*versions).runs
    a, b, facts = run.agreement
    assert (a.table, a.side, a.records, a.records_a, a.records_b) == ("claims", "a", 2, 1, 0)
    assert (a.units_a, a.units_b, a.per_sentence_a, a.identical) == (3, 3, 1.0, 1)
    assert (a.same, a.changed, a.vanished, a.appeared) == (1, 1, 1, 1)
    assert (a.others, b.others) == ((run.records[0].id,), ()), "whose claims are other ones"
    assert (a.share_same, a.share_matched) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (b.side, b.share_same, b.identical) == ("b", 1.0, 2)
    assert (facts.table, facts.per_sentence_a, facts.share_same) == (
        "facts",
        None,
        pytest.approx(2 / 3),
    )


def test_labels_over_all_records_with_the_same_claims(versions: tuple[Path, Path]):
    """Record 2 alone has the same claims in both: one of its two labels flipped."""
    (run,) = compared(*versions).runs
    (labels,) = run.labels
    assert (labels.table, labels.records, labels.cells, labels.flipped) == ("nli", 1, 2, 1)


def test_unfinished_runs_are_compared_and_said_to_be(tmp_path: Path):
    """Without scores, with scores of some records, with a metric that is still to come."""
    whole = write_run(tmp_path / "a", IDS[:6], {"ds": [1.0] * 6}, claims={(IDS[0], "a"): ["x"]})
    begun = write_run(tmp_path / "b", IDS[:6], claims={(IDS[0], "a"): ["y"]})
    (run,) = compared(whole, begun).runs
    assert run.metrics == ()
    assert run.agreement[0].vanished == 1
    assert run.b.notices == ("unfinished: it has no scores yet; run it to the end first",)
    settings = {"records": {"count": 9, "digest": "d"}, "additive": {"metrics": ["ds", "caspr"]}}
    part = write_run(tmp_path / "c", IDS[:6], {"ds": [1.0] * 6}, settings=settings)
    (run,) = compared(whole, part).runs
    assert run.b.notices == (
        "unfinished: 6 of its 9 records are read",
        "unfinished: caspr was asked for and has no scores yet",
    )


def test_top_says_how_many_records_a_metric(pair: tuple[Path, Path]):
    """The largest first, whichever way; 0 shows none."""
    (run,) = compared(*pair, top=3, metrics=("ds",)).runs
    sizes = [abs(move.difference) for move in run.moves]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == len(run.records) == 3
    assert not compared(*pair, top=0).runs[0].records


def test_a_run_that_is_at_work_is_said_to_be(tmp_path: Path):
    """What it has finished is compared."""
    path = write_run(tmp_path / "a", ["1"], {"ds": [1.0]})
    with RunDirectory(path):
        (run,) = compared(path, path).runs
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
