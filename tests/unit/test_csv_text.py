"""CSV for people: no cell is a formula, numbers stay numbers, and nothing is lost."""

import csv
import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.csv_text import csv_text, unescaped
from claimscore.evaluation.result import EvaluationResult
from claimscore.runs import RunDirectory
from tests.support.compared_runs import write_run

TEXTS = st.text(st.sampled_from("'=+-@\t\r\n＝1.e a,\""), max_size=6)


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_every_text_comes_back(texts: list[str]):
    rows = cells(csv_text(pl.DataFrame({"id": range(len(texts)), "text": texts})))[1:]
    assert [unescaped(row[1]) for row in rows] == texts
    assert not any(row[1][:1] in tuple("=@\t\r\n＝") for row in rows)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("-1+1", "'-1+1"),
        ("＝1", "'＝1"),
        ("'=1", "''=1"),
        ("-5", "-5"),
        ("+2.5e3", "+2.5e3"),
        ("'tis", "'tis"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_formulas_alone_are_escaped(text: str, cell: str):
    """In cells and in the header alike."""
    header, _, row = cells(csv_text(pl.DataFrame({"n": [0, 1], text: ["x", text]})))
    assert (header[1], row[1]) == (cell, cell)


def test_numbers_lists_and_nulls_are_written_as_they_are():
    rows = pl.DataFrame({"n": [-5, None], "x": [-0.5, 2.0], "list": [["=1", "b"], [3 * "-"]]})
    assert csv_text(rows) == "n,x,list\n-5,-0.5,'=1 b\n,2.0,'---\n"


def test_no_file_for_people_has_a_formula(tmp_path: Path):
    """scores.csv, and the tables of an evaluation."""
    ids = ["=1+1", "@x", "-5"]
    run = write_run(tmp_path / "run", ids, {"m": [-1.5, None, 2.0]})
    RunDirectory.reader(run).write_csv()
    text = (run / "scores.csv").read_text(encoding="utf-8")
    assert {"'=1+1", "'@x", "-5", "-1.5"} <= {cell for row in cells(text) for cell in row}

    tables = {"rows": pl.DataFrame({"id": ids})}
    EvaluationResult("x", "X", None, tables, {}, []).write(tmp_path / "out")
    assert (tmp_path / "out/rows.csv").read_text() == "id\n'=1+1\n'@x\n-5\n"
