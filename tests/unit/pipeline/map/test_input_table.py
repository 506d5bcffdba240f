"""Any table as frames: types that hold every value, chunks of any size, one digest a content."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import InputError
from claimscore.pipeline.map.input_table import find_source


def read(path: Path, size: int = 1000) -> pl.DataFrame:
    """The whole table, in chunks of so many rows."""
    table = find_source(path, path.parent).open()
    chunks = list(table.chunks(size))
    frame = pl.concat(chunks)
    assert (frame.height, dict(frame.schema)) == (table.n_rows, table.schema)
    assert [chunk.height for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    return frame


# -- types of JSON: the one that all values of a column have in common


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.lists(JSON, min_size=1, max_size=6))
def test_every_value_comes_back(values: list[Any]) -> None:
    """Through a JSONL file and Parquet's types: nothing is lost, rounded or invented."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        lines = (json.dumps({"x": value, "i": i}) + "\n" for i, value in enumerate(values))
        path.write_text("".join(lines))
        found = read(path, 2)
    assert found["i"].to_list() == list(range(len(values)))
    back = found["x"].to_list()
    if found.schema["x"] == pl.String() and not all(isinstance(v, str | None) for v in values):
        back = [None if text is None else json.loads(text) for text in back]
    assert back == values


# -- files


def test_csv_cells(tmp_path: Path) -> None:
    """Numbers and truth values where all cells look so; empty cells are null; the names
    that records know (`id`, `sources`) are columns like others."""
    path = tmp_path / "x.csv"
    path.write_text("id,sources,n,x,yes,code\n1,no json,3,1.5,true,007\n,b,,2,false,8\n")
    frame = read(path, 1)
    assert frame.columns == ["id", "sources", "n", "x", "yes", "code"]
    assert frame.rows() == [(1, "no json", 3, 1.5, True, "007"), (None, "b", None, 2.0, False, "8")]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("1", "1 fields where the header names 2 columns"),
        ("1,2,3\n1,2,3", "3 fields"),
        ('"1,2', "broken CSV"),
        ("1,\udcff", "not UTF-8"),
    ],
)
def test_a_wrong_row_far_down_in_a_csv_file(tmp_path: Path, bad: str, why: str) -> None:
    path = tmp_path / "x.csv"
    text = "x,y\n" + "\n1,2\n" * 1250 + bad + "\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=rf"x\.csv, line 2502: .*{why}"):
        find_source(path, tmp_path).open()


def test_jsonl_columns_are_those_of_all_rows(tmp_path: Path) -> None:
    """In order of first sight; null where a row has none; lists, objects and values without a
    common type are JSON text."""
    path = tmp_path / "x.jsonl.gz"
    lines = b'{"b": 1}\n\n{"a": [1], "b": "x"}\n{"c": {"d": 1}, "b": {"e": [true, null]}}\n'
    path.write_bytes(gzip.compress(lines))
    frame = read(path, 2)
    assert frame.columns == ["b", "a", "c"]
    expected = [("1", None, None), ('"x"', "[1]", None), ('{"e":[true,null]}', None, '{"d":1}')]
    assert frame.rows() == expected


def test_a_parquet_file_larger_than_one_slice(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"n": range(25_007)}).write_parquet(path, row_group_size=7_000)
    assert read(path)["n"].to_list() == list(range(25_007))


def test_files_with_other_columns(tmp_path: Path) -> None:
    """Of a CSV file they are null where it has none."""
    for name, text in (("a.csv", "x,y\n1,2\n"), ("b.csv", "y,z\n3,4\n")):
        (tmp_path / name).write_text(text)
    frame = pl.concat(find_source(str(tmp_path / "*.csv"), tmp_path).open().chunks(1000))
    assert frame.to_dict(as_series=False) == {"x": [1, None], "y": [2, 3], "z": [None, 4]}
    for name, values in (("1", [1]), ("2", ["1"])):
        pl.DataFrame({"n": values}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match=r"2\.parquet: column n is of type String, and"):
        find_source(str(tmp_path / "*.parquet"), tmp_path).open()


def test_the_digest_of_files(tmp_path: Path) -> None:
    """Not of their names or times, but of every byte, of their order and of where they end: a
    header in the middle of a file is a row, at the start of one it is none."""
    texts = {"a": "x\n1\n", "b": "x\n2\n", "c": "x\n1\n", "both": "x\n1\nx\n2\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    globs = ("a.csv", "b.csv", "c.csv", "both.csv", "[ab].csv", "[bc].csv")
    digests = [find_source(str(tmp_path / glob), tmp_path).digest() for glob in globs]
    assert digests[0] == digests[2]
    assert len(set(digests)) == 5


def test_the_digest_of_frames(tmp_path: Path) -> None:
    """Of the values, not of how they lie in memory."""
    frame = pl.DataFrame({"a": [f"text number {i}" for i in range(100)], "b": range(100)})
    parts = pl.concat([frame.head(33), frame.slice(33)], rechunk=False)
    others = [
        frame.reverse(),
        frame.rename({"a": "c"}),
        frame.with_columns(pl.col("b").cast(pl.Int32)),
        frame.head(99),
        frame.with_columns(pl.lit(None).alias("c")),
    ]
    alike, different = (
        {find_source(one, tmp_path).digest() for one in frames}
        for frames in ((frame, parts, frame.clone()), others)
    )
    assert (len(alike), len(alike | different)) == (1, 6)
