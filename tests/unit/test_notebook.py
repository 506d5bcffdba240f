"""`evaluate` and `score_pair`: tables in, tables out."""

import enum
import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import claimscore
from claimscore import notebook
from claimscore.errors import ConfigError
from tests.support.command_line import Command

ROWS: list[dict[str, Any]] = [
    {"id": f"r{n}", "summary_a": f"The room is clean. It has {n} beds.", "summary_b": text}
    for n, text in enumerate(("The room is clean.", "It is <b>loud</b> & dark.", "Two beds."))
]


class PandasFrame:
    """What is used of a DataFrame of pandas, which tests do without."""

    __module__ = "pandas.core.frame"

    def __init__(self, rows: list[dict[str, Any]], index: Sequence[Any] = ()) -> None:
        self.rows = rows
        self.index = index or range(len(rows))
        self.columns = list(rows[0])

    def __iter__(self) -> Any:
        return iter(self.columns)

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self.rows


class ArrowTable:
    """Any table that can be had as a stream of Arrow."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._frame = pl.DataFrame(rows)

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(schema)


class Text(enum.StrEnum):
    ROOM = "The room is clean."


def on_disk(rows: list[dict[str, Any]], folder: Path) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows))
    return path


TABLES: dict[str, Callable[[Path], Any]] = {
    "a list": lambda _: ROWS,
    "a data set": lambda _: iter(ROWS),
    "polars": lambda _: pl.DataFrame(ROWS),
    "a lazy frame": lambda _: pl.LazyFrame(ROWS),
    "pandas": lambda _: PandasFrame(ROWS),
    "Arrow": lambda _: ArrowTable(ROWS),
    "a path": lambda folder: on_disk(ROWS, folder),
    "a path as text": lambda folder: str(on_disk(ROWS, folder)),
}


@pytest.fixture
def evaluate(tmp_path: Path) -> Callable[..., claimscore.Evaluation]:
    """`claimscore.evaluate` with a cache of this test."""

    def call(data: Any, metrics: Any = "ds", **options: Any) -> claimscore.Evaluation:
        options = {"progress": False, "cache_dir": tmp_path / "cache", **options}
        return claimscore.evaluate(data, metrics, **options)

    return call


@pytest.mark.parametrize("name", TABLES)
def test_every_table_gives_a_row_a_record(name: str, evaluate: Any, tmp_path: Path) -> None:
    found = evaluate(TABLES[name](tmp_path))
    assert found.scores.columns == ["id", "ds", "reason"]
    assert found.scores["id"].to_list() == ["r0", "r1", "r2"]
    different = [5 / 10, 16 / 19, 9 / 11]  # of all words and signs of both texts
    assert found.scores["ds"].to_list() == pytest.approx([100 * share for share in different])
    assert found.records.drop("id").to_dicts() == [
        {name: row[name] for name in ("summary_a", "summary_b")} for row in ROWS
    ]


@pytest.mark.parametrize(
    ("index", "ids"),
    [(["x", "y", 7], ["x", "y", "7"]), ([], ["0", "1", "2"]), (["x", "x", "y"], ["0", "1", "2"])],
)
def test_the_index_of_a_pandas_frame_is_the_id(index: list[Any], ids: list[str], evaluate: Any):
    rows = [{name: text for name, text in row.items() if name != "id"} for row in ROWS]
    assert evaluate(PandasFrame(rows, index)).scores["id"].to_list() == ids


def test_the_same_call_and_an_edited_row_ask_new_requests_only(evaluate: Any) -> None:
    settings = {"metrics": "ds", "tasks": "decompose"}
    first = evaluate(ROWS, **settings)
    assert first.claims["id"].unique(maintain_order=True).to_list() == ["r0", "r1", "r2"]
    again = evaluate(ROWS, **settings)
    assert again.summary["last_call"]["requests"] == 0
    assert again.scores.equals(first.scores)
    edited = [*ROWS[:2], {**ROWS[2], "summary_b": "It has three beds. It is dear."}]
    call = evaluate(edited, **settings).summary["last_call"]
    assert (call["requests"], call["cache_hits"]) == (2, first.summary["last_call"]["requests"] - 1)


def test_only_a_folder_that_was_named_outlives_the_result(evaluate: Any, tmp_path: Path) -> None:
    kept, other = evaluate(ROWS, out=tmp_path / "kept"), evaluate(ROWS)
    assert repr(kept).splitlines()[-1] == f"run: {kept.out}"
    assert "run:" not in repr(other)
    outs = [Path(one.out) for one in (kept, other)]
    assert Path(other.report()).parent == outs[1]
    del kept, other
    gc.collect()
    assert [out.is_dir() for out in outs] == [True, False]


def test_data_as_it_is(evaluate: Any) -> None:
    """Other names of columns, missing texts of each kind, a limit; a score or its reason."""
    rows = [
        {"article": Text.ROOM, "highlights": "The room is clean.", "stars": np.int64(3)},
        *({"article": text, "highlights": "It is clean.", "stars": 1} for text in (None, np.nan)),
        {"article": "Not read.", "highlights": "Not read.", "stars": 2},
    ]
    columns = {"source": "article", "summary": "highlights"}
    found = evaluate(rows, "rouge-1:against=source", columns=columns, limit=3)
    assert found.scores.rows() == [
        ("0", 1.0, None),
        *((str(n), None, "rouge-1:against=source: no text in source") for n in (1, 2)),
    ]
    assert found.records["stars"].to_list() == [3, 1, 1]
    assert found.summary["metrics"]["rouge-1:against=source"]["null"] == 2


def test_what_a_notebook_shows(evaluate: Any) -> None:
    found = evaluate(ROWS)
    first, mean, texts = repr(found).splitlines()
    assert (first, mean) == ("Evaluation of 3 records", "ds  72.01")
    assert texts.startswith("warning: texts with HTML: 1 of 3 in summary_b; first r1; ")


@pytest.mark.parametrize(
    ("metrics", "value"), [("ds", 100 * 5 / 6), ("rouge-1", 0.0), (["rouge-1:against=source"], 0.0)]
)
def test_two_texts(metrics: Any, value: float, tmp_path: Path) -> None:
    texts = "It is clean.", "Two beds."
    found = claimscore.score_pair(*texts, metrics, cache_dir=tmp_path, progress=False)
    assert found.scores.rows() == [("0", pytest.approx(value), None)]
    assert repr(found).splitlines()[0] == "Evaluation of 1 record"


class Splits(dict[str, Any]):
    """A DatasetDict."""

    __module__ = "datasets.dataset_dict"


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (5, {}, "the data is of the type int; accepted: a path, a polars or pandas DataFrame, a "),
        ({"summary_a": ["x"]}, {}, "the data is of the type dict; accepted: "),
        (Splits(test=[], dev=[]), {}, "several splits; give one of them: data['test', 'dev']"),
        (["x"], {}, "the data, row 1: of the type str, not a dict"),
        ([{"x": object()}], {}, "the data, row 1: x holds a object, which is no text, number"),
        ([], {}, "the data: the input is empty"),
        (PandasFrame([{"summary_a": "x", "summary_b": 3}]), {}, "the DataFrame, row 1: summary_b "),
        ("-", {}, "standard input cannot be read here"),
        (ROWS, {"metrics": 5}, "metrics must be a list of text or None, not 5 of type int"),
        (ROWS, {"limit": "3"}, "limit must be a whole number or None, not '3' of type str"),
        (ROWS, {"limit": 0}, "--limit must be at least 1, not 0"),
        (ROWS, {"max_cost": "5"}, "max_cost must be a number or None, not '5' of type str"),
        (ROWS, {"llm": 3}, "llm must be of type LLMConfig, not int"),
        (ROWS, {"columns": {"a": "b"}}, "the data: columns={'a': 'b'}: no record has a column b"),
        (ROWS, {"columns": "a=b"}, "columns must be a dict of text to text, not 'a=b' of type str"),
        (ROWS, {"llmm": "x"}, "unknown option llmm; is llm meant?"),
        (ROWS, {"zzz": "x"}, "unknown option zzz; known: allow_http_key, "),
    ],
)
def test_wrong_input_is_one_line(
    data: Any, options: dict[str, Any], said: str, evaluate: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate(data, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists(), "nothing was made"


def test_scores_as_csv_are_a_row_a_record(tmp_path: Path, cli: Command) -> None:
    rows = [*ROWS, {"id": "r3", "summary_a": "x", "summary_b": None}]
    out = tmp_path / "run"
    done = cli("run", on_disk(rows, tmp_path), "-o", out, "-m", "ds", "--csv")
    assert done.status == 0
    table = pl.read_csv(out / "scores.csv")
    assert table.columns == ["id", "ds", "reason"]
    assert table.row(0) == ("r0", 50.0, None)
    assert table.row(3) == ("r3", None, "ds: no text in summary_b")


def test_failures_and_warnings_are_shown() -> None:
    summary = {
        "records": {"total": 3, "failed": 2},
        "metrics": {},
        "notices": ["the judge is <small>"],
        "claim_checks": {"warnings": ["9 of 10 claims repeat"]},
    }
    found = notebook.Evaluation("nowhere", (), summary)
    lines = repr(found).splitlines()
    assert lines[1:-1] == [
        "warning: 2 of the records failed: see table('failures')",
        "warning: the judge is <small>",
        "warning: 9 of 10 claims repeat",
    ]
