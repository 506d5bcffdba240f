"""What the report holds: matrices, sentences, histograms, blocks."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from claimscore import tables as schemas
from claimscore.metrics.caspr import pair_labels
from claimscore.report import ReportTables
from claimscore.report.matrices import MISSING, LabelMatrices
from claimscore.report.record_details import (
    MAX_LISTED_LEVELS,
    RecordIndex,
)
from claimscore.report.record_texts import segments
from claimscore.report.run_page import group_tables, histogram_bins
from tests.support.command_line import Command
from tests.support.report_pages import Page, decode

NO_RANGE = -math.inf, math.inf
MakeUp = Callable[..., ReportTables]
E, N, C = (0.8, 0.15, 0.05), (0.1, 0.7, 0.2), (0.0, 0.1, 0.9)


def nli(rows: list[tuple[str, str, int, str, int, tuple[float, float, float]]]) -> pl.DataFrame:
    names = ("premise_side", "premise_index", "hypothesis_side", "hypothesis_index")
    names = ("id", *names, "entailment", "neutral", "contradiction")
    return schemas.NLI.frame([dict(zip(names, (*row, *p), strict=True)) for *row, p in rows])


def test_label_of_a_pair_is_that_of_caspr() -> None:
    named = {"entailment": E, "neutral": N, "contradiction": C}
    for there, back in itertools.product(named, named):
        frame = nli([("x", "a", 0, "b", 0, named[there]), ("x", "b", 0, "a", 0, named[back])])
        (matrix,) = LabelMatrices(frame).of("x")
        assert matrix["labels"] == pair_labels([[there]], [[back]])[0][0][0].upper()


def test_matrix_puts_every_row_in_its_cell() -> None:
    rows = [
        ("x", "b", 1, "a", 0, C),
        ("y", "a", 0, "b", 0, E),
        ("x", "a", 0, "b", 1, N),
        ("x", "a", 1, "b", 2, E),
    ]
    matrices = LabelMatrices(nli(rows))
    assert matrices.of("w") == []
    (matrix,) = matrices.of("x")
    assert (matrix["rows"], matrix["columns"], matrix["size"]) == ("a", "b", [2, 3])
    assert matrix["labels"] == "-C----"
    missing = [MISSING, MISSING]
    assert decode(matrix["forward"]) == [
        *missing, 100, 200, *missing, *missing, *missing, 800, 50
    ]  # fmt: skip
    assert decode(matrix["backward"]) == [*missing, 0, 900, *(missing * 4)]
    (other,) = matrices.of("y")
    assert (other["labels"], other["backward"]) == ("E", None)


def claim(sentence: str | None, index: int) -> dict[str, object]:
    return {"sentence": sentence, "sentence_index": index, "text": "x"}


@pytest.mark.parametrize(
    ("text", "claims", "expected"),
    [
        pytest.param(
            "One. Two.  Three.",
            [claim("One.", 0), claim("One.", 0), claim("Three.", 2)],
            [["One.", [0, 1]], ["Two.", []], ["Three.", [2]]],
            id="a sentence without claims stays",
        ),
        pytest.param(
            "So. So.",
            [claim("So.", 0), claim("So.", 1)],
            [["So.", [0]], ["So.", [1]]],
            id="the same sentence twice",
        ),
        pytest.param(
            "One.", [claim("Other.", 0)], [["Other.", [0]], ["One.", []]], id="not in the text"
        ),
        pytest.param("One. Two.", [claim(None, 0)], [["One. Two.", [0]]], id="the text as a whole"),
        pytest.param("", [], [], id="empty"),
    ],
)
def test_text_is_cut_where_its_sentences_are(
    text: str, claims: list[dict[str, object]], expected: list[object]
) -> None:
    assert segments(text, enumerate(claims)) == expected


@pytest.mark.parametrize(
    ("values", "bounds", "expected"),
    [
        pytest.param([0.0, 100.0, 99.9], (0.0, 100.0), (0.0, 100.0), id="the metric's range"),
        pytest.param([50.0, 104.0], (0.0, 100.0), (0.0, 104.0), id="wider than the range"),
        pytest.param([84.0, 104.0], (0.0, float("inf")), (0.0, 104.0), id="one bound"),
        pytest.param([-0.3, 0.2], NO_RANGE, (-0.3, 0.2), id="no range"),
        pytest.param([7.0, 7.0], NO_RANGE, (6.5, 7.5), id="one value"),
        pytest.param([0.0], NO_RANGE, (-0.5, 0.5), id="zero"),
        pytest.param([1e-9, 2e12], NO_RANGE, (1e-9, 2e12), id="many orders"),
        pytest.param([-1.7e-6, 40.0], (0, 100), (0, 100), id="rounding below the range"),
    ],
)
def test_histogram_holds_every_value(
    values: list[float], bounds: tuple[float, float], expected: tuple[float, float]
) -> None:
    bins = histogram_bins(np.array(values), bounds)
    assert sum(count for *_, count in bins) == len(values)
    assert (bins[0][0], bins[-1][1]) == pytest.approx(expected)


def test_own_columns_are_there_to_draw_and_to_group_by() -> None:
    """Numbers, those of a struct by their names, and texts of which there are few; others not."""
    listed = RecordIndex(["ds"])
    n = MAX_LISTED_LEVELS + 1
    first = pl.DataFrame(
        {
            "id": [str(i) for i in range(n)],
            "summary": ["x"] * n,
            "system": ["s", "t", None] * (n // 3),
            "note": [f"note {i}" for i in range(n)],
            "same": ["one"] * n,
            "ds": list(range(n)),
            "ratings": [{"fluency": 1.0, "words": "no number"}] * n,
            "bad": [float("nan")] * n,
        }
    )
    listed.add_columns(first)
    listed.ids += first["id"].to_list()
    listed.add_columns(first.head(2).drop("ratings", "system"))
    found = listed.to_json()
    numbers, groups = dict(found["numbers"]), dict(found["groups"])
    assert list(numbers) == ["ds (column)", "ratings.fluency"]
    assert numbers["ratings.fluency"] == [1.0] * n + [None, None]
    assert groups == {
        "system": {"levels": ["s", "t"], "codes": [0, 1, None] * (n // 3) + [None, None]}
    }


def test_groups_count_every_record(made_up: MakeUp) -> None:
    tables = made_up(90, max_details=3)
    (found,) = group_tables(tables)
    assert (found.column, found.sizes) == ("system", {f"system {i}": 30 for i in range(3)})
    ids = [f"hotel-{number:04d}" for number in range(0, 90, 3)]
    values = tables.scores.filter(pl.col("id").is_in(ids), metric="ds")["value"].to_numpy()
    row = found.metrics["ds"][0]
    assert (row.level, row.n) == ("system 0", 30)
    assert row.mean == pytest.approx(values.mean())
    half_width = 1.96 * values.std() / np.sqrt(30)
    assert row.interval == pytest.approx((row.mean - half_width, row.mean + half_width))
    assert [row.n for row in found.metrics["caspr"]] == [27, 27, 28]


def test_texts_that_differ_in_most_records_are_no_groups(made_up: MakeUp) -> None:
    tables = made_up(12)
    assert tables.records is not None
    place = pl.int_range(pl.len())
    columns = {"note": place.cast(pl.String), "halves": (place // 2).cast(pl.String)}
    records = tables.records.with_columns(**columns)
    grouped = group_tables(dataclasses.replace(tables, records=records))
    assert [table.column for table in grouped] == ["system", "halves"]


def test_only_the_columns_that_metrics_read_are_shown_and_checked(
    cli: Command, tmp_path: Path
) -> None:
    """Another `summary_b` is a column like any other: neither preview nor text of the record."""
    row = {"id": "x", "source": "It rained.", "summary": "It rained.", "summary_b": "<b>No</b>"}
    (tmp_path / "in.jsonl").write_text(json.dumps(row))
    call = ("run", tmp_path / "in.jsonl", "--metrics", "rouge-1:against=source", "--out")
    shown = cli(*call, tmp_path / "run")
    assert "with HTML" not in shown.out
    page = Page((tmp_path / "run/report.html").read_text("utf-8"))
    (record,) = page.details()
    assert page.index["previews"] == ["It rained."]
    assert [side["side"] for side in record["sides"]] == ["summary"]
    assert record["other"] == [["summary_b", "<b>No</b>"]]
