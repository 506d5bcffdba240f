"""Records come out as they went in: every format, every chunk size, types and digest."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import InputError
from claimscore.records.columns import is_null_word, likely_columns
from claimscore.records.dataset import Dataset, Selection
from tests.support.prepared import prepare

PAIRS: list[dict[str, Any]] = [
    {"id": "a", "summary_a": "Clean, quiet.", "summary_b": "Dirty\nand “loud”."},
    {"id": "b", "summary_a": "", "summary_b": 'He said "no".'},
    {"id": "c", "summary_a": "naïve 🏨", "summary_b": "x\u0000y"},
]
NEEDS = {"caspr": ("summary_a", "summary_b")}

Write = Callable[[str, str | bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write_file


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def ready(source: str, tmp_path: Path, **options: Any) -> Dataset:
    return prepare(source, spool=tmp_path / "spool", **{"required": {}, **options})


def rows(dataset: Dataset, size: int = 100) -> list[dict[str, Any]]:
    return pl.concat(list(dataset.chunks(size))).to_dicts()


def as_parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


CONTENTS: dict[str, Callable[[], str | bytes]] = {
    "r.jsonl": lambda: lines(PAIRS),
    "r.NDJSON": lambda: lines(PAIRS).replace("\n", "\r\n"),
    "bom.jsonl": lambda: b"\xef\xbb\xbf" + lines(PAIRS).encode(),
    "noend.jsonl": lambda: lines(PAIRS).rstrip("\n"),
    "blank.jsonl": lambda: "\n  \n" + lines(PAIRS).replace("\n", "\n\r\n"),
    "r.jsonl.gz": lambda: gzip.compress(lines(PAIRS).encode()),
    "r.json": lambda: b"\xef\xbb\xbf" + json.dumps(PAIRS, indent=1).encode(),
    "r.json.gz": lambda: gzip.compress(json.dumps(PAIRS).encode()),
    "r.csv": lambda: pl.DataFrame(PAIRS).write_csv(),
    "crlf.csv": lambda: pl.DataFrame(PAIRS).write_csv(line_terminator="\r\n"),
    "bom.csv": lambda: b"\xef\xbb\xbf" + pl.DataFrame(PAIRS).write_csv().encode(),
    "r.csv.gz": lambda: gzip.compress(pl.DataFrame(PAIRS).write_csv().encode()),
    "semicolons.csv": lambda: pl.DataFrame(PAIRS).write_csv(separator=";"),
    "r.tsv": lambda: pl.DataFrame(PAIRS).write_csv(separator="\t"),
    "r[1].parquet": lambda: as_parquet(pl.DataFrame(PAIRS)),  # no pattern
}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_gives_the_same_records(write: Write, tmp_path: Path, name: str) -> None:
    dataset = ready(write(name, CONTENTS[name]()), tmp_path, required=NEEDS)
    assert rows(dataset) == PAIRS
    assert dataset.n_records == 3
    assert list(dataset.columns) == ["id", "summary_a", "summary_b"]
    assert dataset.digest == ready(write("same.jsonl", lines(PAIRS)), tmp_path).digest
    assert list((tmp_path / "spool").iterdir()) == []


def test_standard_input_is_spooled(tmp_path: Path) -> None:
    dataset = ready("-", tmp_path, stdin=io.BytesIO(lines(PAIRS).encode()), required=NEEDS)
    assert rows(dataset) == rows(dataset) == PAIRS
    assert (tmp_path / "spool" / "stdin.jsonl").is_file()


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, None, -2], pl.Int64(), [1, None, -2]),
        ([1, 2.5], pl.Float64(), [1.0, 2.5]),
        ([True, False], pl.Boolean(), [True, False]),
        (["1", "x"], pl.String(), ["1", "x"]),
        ([None, None], pl.String(), [None, None]),
        ([1, "1"], pl.String(), ["1", '"1"']),
        ([True, 1], pl.String(), ["true", "1"]),
        ([2**63, 1], pl.String(), ["9223372036854775808", "1"]),
        ([2**53 + 1, 0.5], pl.String(), ["9007199254740993", "0.5"]),
        ([{"b": [1], "a": "ü"}], pl.String(), ['{"a":"ü","b":[1]}']),
    ],
)
def test_other_columns_get_a_type(
    write: Write, tmp_path: Path, values: list[Any], dtype: pl.DataType, expected: list[Any]
) -> None:
    dataset = ready(write("r.jsonl", lines([{"extra": v} for v in values])), tmp_path)
    assert dataset.columns["extra"] == dtype
    frames = list(dataset.chunks(1))
    assert all(frame.schema == dataset.columns for frame in frames)
    assert pl.concat(frames)["extra"].to_list() == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "-20"], [1, None, -20]),
        (["1", "2.50", "-1e3"], [1.0, 2.5, -1000.0]),
        (["true", "False"], [True, False]),
        (["007", "1"], ["007", "1"]),
        (["1", "x"], ["1", "x"]),
        (["true", "1"], ["true", "1"]),
        (["9" * 30], ["9" * 30]),
        (["nan", "-"], ["nan", "-"]),
    ],
)
def test_cells_get_a_type(
    write: Write, tmp_path: Path, cells: list[str], expected: list[Any]
) -> None:
    dataset = ready(write("r.csv", "extra,x\n" + "".join(f"{c},y\n" for c in cells)), tmp_path)
    assert [row["extra"] for row in rows(dataset)] == expected


def test_lists_ratings_and_system(write: Write, tmp_path: Path) -> None:
    """Ids are texts and come first; in CSV, lists and ratings are JSON."""
    records: list[dict[str, Any]] = [
        {"z": 1, "source": "one", "id": 7, "ratings": {"fluency": 3}, "system": 7},
        {"source": ["two", "three"], "id": -1, "references": [], "ratings": {"coverage": 1.5}},
    ]
    dataset = ready(write("r.jsonl", lines(records)), tmp_path)
    assert list(dataset.columns.items()) == [
        *(("id", pl.String()), ("z", pl.Int64()), ("source", pl.List(pl.String()))),
        ("ratings", pl.Struct({"fluency": pl.Float64(), "coverage": pl.Float64()})),
        *(("system", pl.String()), ("references", pl.List(pl.String()))),
    ]
    assert pl.concat(dataset.chunks(100)).rows() == [
        ("7", 1, ["one"], {"fluency": 3.0, "coverage": None}, "7", None),
        ("-1", None, ["two", "three"], {"fluency": None, "coverage": 1.5}, None, []),
    ]
    content = 'source,references,ratings\n"[1] x","[""a"", ""b""]","{""q"": 2}"\ny,null,\n'
    dataset = ready(write("r.csv", content), tmp_path)
    assert pl.concat(dataset.chunks(100)).rows() == [
        ("0", "[1] x", ["a", "b"], {"q": 2.0}),
        ("1", "y", [], None),
    ]
    source = write("s.jsonl", lines([{"sources": ["x"]}]))
    assert ready(source, tmp_path, required={"summac-zs": ("source",)}).n_records == 1


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "frame", "dicts"])
def test_words_for_a_missing_text_are_none(form: str, write: Write, tmp_path: Path) -> None:
    """In columns of texts alone, in any format; a longer text with such a word stays."""
    table = pl.DataFrame(
        {
            "id": ["nan", "None"],
            "source": ["NULL", " nan "],
            "summary": ["N/A", "None of us."],
            "tag": ["NA", "null"],
        }
    )
    made: dict[str, Any] = {
        "csv": lambda: write("r.csv", table.write_csv()),
        "jsonl": lambda: write("r.jsonl", table.write_ndjson()),
        "parquet": lambda: write("r.parquet", as_parquet(table)),
        "frame": lambda: table,
        "dicts": table.to_dicts,
    }
    dataset = ready(made[form](), tmp_path)
    assert pl.concat(dataset.chunks(9)).rows() == [
        ("nan", "", "", "NA"),
        ("None", "", "None of us.", "null"),
    ]
    assert dataset.null_words == {"source": {"NULL": 1, "nan": 1}, "summary": {"N/A": 1}}


def test_parquet_types_become_plain(write: Write, tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": range(5000)}).with_columns(
        day=pl.date(2020, 1, 1),
        span=pl.duration(hours=1),
        kind=pl.lit("x").cast(pl.Categorical),
        raw=pl.lit(b"\xff"),
    )
    dataset = ready(write("r.parquet", as_parquet(frame)), tmp_path)
    out = rows(dataset, size=999)
    assert [row["n"] for row in out] == list(range(5000))
    assert out[4999] == {
        "id": "4999",
        "n": 4999,
        "day": "2020-01-01",
        "span": "PT1H",
        "kind": "x",
        "raw": "/w==",
    }


def test_changed_file_is_noticed(write: Write, tmp_path: Path) -> None:
    dataset = ready(write("r.jsonl", lines(PAIRS)), tmp_path)
    chunks = dataset.chunks(1)
    next(chunks)
    write("r.jsonl", lines(PAIRS) + "\n")
    with pytest.raises(InputError, match=r"r\.jsonl: the file changed while it was being used"):
        list(chunks)
    with pytest.raises(InputError, match="the file changed"):
        next(dataset.chunks(1))


@pytest.mark.parametrize(
    "change",
    [{"summary_a": "Clean, quiet"}, {"extra": 1.5}, {"extra": {"deep": [1, 3]}}, {"id": "A"}],
)
def test_digest_is_of_any_value(write: Write, tmp_path: Path, change: dict[str, Any]) -> None:
    base = [{**PAIRS[0], "extra": {"deep": [1, 2]}}, PAIRS[1]]

    def digest(records: list[dict[str, Any]]) -> str:
        return ready(write("r.jsonl", lines(records)), tmp_path).digest

    assert digest([{**base[0], **change}, base[1]]) != digest(base)
    assert digest(base[::-1]) != digest(base)
    assert digest([dict(reversed(record.items())) for record in base]) == digest(base)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts
record = st.fixed_dictionaries(
    {"summary_a": texts, "summary_b": texts},
    optional={"sources": st.lists(texts, max_size=3), "extra": plain, "ключ\n": texts},
)


@settings(deadline=None, max_examples=60)
@given(st.lists(record, min_size=1, max_size=12), st.integers(1, 13))
def test_round_trip_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("r")
    with (folder / "r.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*NEEDS["caspr"]], "", "ignore", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(records)
    as_read = [
        {k: "" if is_null_word(k, v) else v for k, v in record.items()} for record in records
    ]
    cells = pl.concat(ready(str(folder / "r.csv"), folder, required=NEEDS).chunks(100))
    for read, expected in zip(cells.to_dicts(), as_read, strict=True):
        assert [read[name] for name in NEEDS["caspr"]] == [expected[n] for n in NEEDS["caspr"]]
    (folder / "r.jsonl").write_text(lines(records))
    dataset = ready(str(folder / "r.jsonl"), folder, required=NEEDS)
    frames = list(dataset.chunks(size))
    assert all(frame.height == size for frame in frames[:-1])
    assert all(frame.schema == dataset.columns for frame in frames)
    whole = pl.concat(frames)
    assert whole.equals(next(dataset.chunks(1000)))
    for number, (read, given_record) in enumerate(zip(whole.to_dicts(), as_read, strict=True)):
        assert read["id"] == str(number)
        for name in ("summary_a", "summary_b", "sources", "ключ\n"):
            assert read.get(name) == given_record.get(name)


ARTICLES: dict[str, Callable[[], str | bytes]] = {
    "r.jsonl": lambda: lines(
        [
            {"article": "Rain.", "highlights": "Sun.", "references": "Wet.", "summary": "old"},
            {"article": None, "highlights": "Fog.", "references": None},
            {"article": "x", "highlights": None, "references": ["a", "b"]},
        ]
    ),
    "r.csv": lambda: (
        "article,highlights,references,summary\nRain.,Sun.,Wet.,old\n,Fog.,,\n"
        'x,,"[""a"", ""b""]",\n'
    ),
}


@pytest.mark.parametrize("name", ARTICLES)
def test_other_names_nulls_and_a_limit(write: Write, tmp_path: Path, name: str) -> None:
    """A null is an empty cell, a text a list of one; a column that is replaced is left out."""
    columns = {"source": "article", "summary": "highlights"}
    required = {"rouge-1": ("source", "summary", "references")}
    source = write(name, ARTICLES[name]())
    expected = [
        {"source": "Rain.", "summary": "Sun.", "references": ["Wet."]},
        {"source": "", "summary": "Fog.", "references": []},
        {"source": "x", "summary": "", "references": ["a", "b"]},
    ]
    for limit in (1, 2, None):
        found = ready(source, tmp_path, required=required, selection=Selection(columns, limit))
        assert found.n_records == len(expected[:limit])
        made = [{name: row[name] for name in expected[0]} for row in rows(found, 2)]
        assert made == expected[:limit]
        assert set(found.columns) == {"id", *expected[0]}


@pytest.mark.parametrize(
    ("names", "likely"),
    [
        (["article", "highlights", "id"], {"source": "article", "summary": "highlights"}),
        (["document", "summary"], {"source": "document"}),
        (["dialogue", "summary"], {"source": "dialogue"}),
        (["text", "decoded", "references"], {"source": "text", "summary": "decoded"}),
        (["Source", "Summaries"], {"source": "Source", "summary": "Summaries"}),
        (["summary1", "summary2"], {"summary_a": "summary1", "summary_b": "summary2"}),
        (["source", "summary", "hotel"], {}),
        (["article", "summary_a", "summary_b"], {"source": "article", "summary": "summary_a"}),
    ],
    ids=str,
)
def test_columns_of_published_data_sets(names: list[str], likely: dict[str, str]) -> None:
    assert likely_columns(names) == likely
