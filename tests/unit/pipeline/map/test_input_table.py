"""Any table as frames: types that hold every value, chunks of any size, one digest a content."""

from __future__ import annotations

import contextlib
import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import InputError
from claimscore.pipeline.map.input_table import (
    MAX_FIELDS,
    JsonType,
    find_source,
    regrouped,
)


def read(path: Path | str, folder: Path, size: int = 1000) -> pl.DataFrame:
    """The whole table, in chunks of so many rows."""
    table = find_source(path, folder).open()
    chunks = list(table.chunks(size))
    frame = pl.concat(chunks)
    assert frame.height == table.n_rows
    assert dict(frame.schema) == table.schema
    assert [chunk.height for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    return frame


def shape(*values: Any) -> pl.DataType | None:
    seen = JsonType()
    for value in values:
        seen.see(value)
    return seen.dtype()


class TestTypesOfJson:
    """The type that all values of a column have in common."""

    @pytest.mark.parametrize(
        ("values", "dtype"),
        [
            pytest.param([], pl.String(), id="none"),
            pytest.param([None], pl.String(), id="only-nulls"),
            pytest.param(["a", None], pl.String(), id="text"),
            pytest.param([1, None], pl.Int64(), id="integers"),
            pytest.param([1, 2.5], pl.Float64(), id="numbers"),
            pytest.param([2**63 - 1], pl.Int64(), id="wide"),
            pytest.param([2**63], None, id="too-wide"),
            pytest.param([2**60, 0.5], None, id="not-exact"),
            pytest.param([True, False], pl.Boolean(), id="boolean"),
            pytest.param([True, 1], None, id="mixed"),
            pytest.param([[1], [], None, [2.5]], pl.List(pl.Float64()), id="list"),
            pytest.param([[]], pl.List(pl.String()), id="empty-lists"),
            pytest.param([[1], ["a"]], None, id="mixed-lists"),
            pytest.param([[1], 1], None, id="list-or-number"),
            pytest.param(
                [{"a": 1}, {"b": "x"}],
                pl.Struct({"a": pl.Int64(), "b": pl.String()}),
                id="objects",
            ),
            pytest.param([{"a": 1}, {"a": "x"}], None, id="mixed-fields"),
            pytest.param([{}], None, id="empty-object"),
            pytest.param([{str(i): 1} for i in range(MAX_FIELDS + 1)], None, id="dictionary"),
        ],
    )
    def test_common_type(self, values: list[Any], dtype: pl.DataType | None) -> None:
        """None where JSON text must do."""
        assert shape(*values) == dtype

    @pytest.mark.parametrize("value", ["\ud800", ["\ud800"], {"\ud800": 1}, {"a": ["\udfff"]}])
    def test_half_a_surrogate_pair(self, value: Any) -> None:
        with pytest.raises(UnicodeEncodeError):
            shape(value)

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
    def test_every_value_comes_back(self, values: list[Any]) -> None:
        """Through a JSONL file and Parquet's types: nothing is lost, rounded or invented."""
        with scratch_lines([{"x": value, "i": i} for i, value in enumerate(values)]) as path:
            found = pl.concat(find_source(path, path.parent).open().chunks(2))
        assert found["i"].to_list() == list(range(len(values)))
        if found.schema["x"] == pl.String() and not all(isinstance(v, str | None) for v in values):
            back = [None if text is None else json.loads(text) for text in found["x"]]
        else:
            back = found["x"].to_list()
        for value, result in zip(values, back, strict=True):
            assert same(value, result), (value, result)


@contextlib.contextmanager
def scratch_lines(rows: list[Any]) -> Iterator[Path]:
    """A JSONL file for the length of a block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        yield path


def same(value: Any, result: Any) -> bool:
    """Equal, where an object's missing name and a null are the same."""
    if isinstance(value, dict) and isinstance(result, dict):
        names = value.keys() | result.keys()
        return all(same(value.get(name), result.get(name)) for name in names)
    if isinstance(value, list) and isinstance(result, list):
        return len(value) == len(result) and all(map(same, value, result))
    return bool(value == result)


class TestFiles:
    """Formats and how they are cut."""

    def test_csv_cells(self, tmp_path: Path) -> None:
        """Numbers and truth values where all cells look so; empty cells are null; the names
        that records know (`id`, `sources`) are columns like others."""
        path = tmp_path / "x.csv"
        path.write_text("id,sources,n,x,yes,code\n1,no json,3,1.5,true,007\n,b,,2,false,8\n")
        frame = read(path, tmp_path, 1)
        assert frame.columns == ["id", "sources", "n", "x", "yes", "code"]
        assert frame.rows() == [
            (1, "no json", 3, 1.5, True, "007"),
            (None, "b", None, 2.0, False, "8"),
        ]

    def test_jsonl_columns_are_those_of_all_rows(self, tmp_path: Path) -> None:
        """In order of first sight; null where a row has none; values without a common type are
        JSON text."""
        path = tmp_path / "x.jsonl.gz"
        lines = b'{"b": 1}\n\n{"a": [1], "b": "x"}\n{"c": {"d": 1}, "b": {"e": [true, null]}}\n'
        path.write_bytes(gzip.compress(lines))
        frame = read(path, tmp_path, 2)
        assert frame.columns == ["b", "a", "c"]
        assert frame.rows() == [
            ("1", None, None),
            ('"x"', [1], None),
            ('{"e":[true,null]}', None, {"d": 1}),
        ]

    def test_a_parquet_file_larger_than_one_slice(self, tmp_path: Path) -> None:
        n = 25_007
        pl.DataFrame({"n": range(n)}).write_parquet(tmp_path / "x.parquet", row_group_size=7_000)
        assert read(tmp_path / "x.parquet", tmp_path)["n"].to_list() == list(range(n))

    def test_a_file_that_changes_meanwhile(self, tmp_path: Path) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text('{"a": 1}\n')
        table = find_source(path, tmp_path).open()
        path.write_text('{"a": 1}\n{"a": 2}\n')
        with pytest.raises(InputError, match="changed while it was being used"):
            list(table.chunks(10))

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            (
                {"a.csv": "x,y\n1,2\n", "b.csv": "y,x\n1,2\n"},
                r"b\.csv, line 1: the columns are not those of",
            ),
            (
                {"x.jsonl": "".join(f'{{"c{i}": 1}}\n' for i in range(10_001))},
                "line 10001: more than 10000 different columns",
            ),
        ],
        ids=["headers", "names"],
    )
    def test_columns_of_no_use(self, tmp_path: Path, files: dict[str, str], message: str) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            find_source(str(tmp_path / "*"), tmp_path).open()


class TestDigest:
    """The same for the same content, and for nothing else."""

    def test_of_files(self, tmp_path: Path) -> None:
        """Not of their names or times, but of every byte, of their order and of where they end: a
        header in the middle of a file is a row, at the start of one it is none."""
        texts = {"a": "x\n1\n", "b": "x\n2\n", "c": "x\n1\n", "both": "x\n1\nx\n2\n"}
        for name, text in texts.items():
            (tmp_path / f"{name}.csv").write_text(text)
        globs = ("a.csv", "b.csv", "c.csv", "both.csv", "[ab].csv", "[bc].csv")
        digests = [find_source(str(tmp_path / glob), tmp_path).digest() for glob in globs]
        assert digests[0] == digests[2]
        assert len(set(digests)) == 5

    def test_of_frames(self, tmp_path: Path) -> None:
        frame = pl.DataFrame({"a": [f"text number {i}" for i in range(100)], "b": range(100)})
        parts = pl.concat([frame.head(33), frame.slice(33)], rechunk=False)
        digests = {find_source(f, tmp_path).digest() for f in (frame, parts, frame.clone())}
        assert len(digests) == 1
        others = [
            frame.reverse(),
            frame.rename({"a": "c"}),
            frame.with_columns(pl.col("b").cast(pl.Int32)),
            frame.head(99),
            frame.with_columns(pl.lit(None).alias("c")),
        ]
        assert len(digests | {find_source(f, tmp_path).digest() for f in others}) == 6


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(1, 7))
def test_regrouped_rows_are_the_same(heights: list[int], size: int) -> None:
    rows = pl.DataFrame({"n": range(sum(heights))})
    frames, start = [], 0
    for height in heights:
        frames.append(rows.slice(start, height))
        start += height
    groups = list(regrouped(frames, size))
    assert [n for group in groups for n in group["n"]] == rows["n"].to_list()
    assert [group.height for group in groups[:-1]] == [size] * max(0, len(groups) - 1)
    assert not groups or 0 < groups[-1].height <= size
