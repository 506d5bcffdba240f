"""A record or file that cannot be used is refused in one line: file, line, column, what to do."""

from __future__ import annotations

import gzip
import io
import os
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.records import dataset, prepare
from claimscore.records.dataset import MAX_COLUMNS

OK = b'{"id": "a", "summary_a": "x", "summary_b": "y"}\n'
NEEDS = {"caspr": ("summary_a", "summary_b"), "ds": ("summary_a", "summary_b")}


def parquet(**columns: list[object]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def refused(source: str, tmp_path: Path, **options: object) -> str:
    """The message of the refusal, one line, the folder left out."""
    with pytest.raises(InputError) as caught:
        prepare(source, spool=tmp_path / "spool", **{"required": NEEDS, **options})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert not list((tmp_path / "spool").glob(".ids*"))
    return message.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param(
            "r.json", b"[1]", "r.json, row 1: a JSON number, not an object", id="json-row"
        ),
        pytest.param(
            "r.json", OK, "r.json: a JSON object, not an array of records", id="json-object"
        ),
        pytest.param("r.json", b"[{}", "r.json: broken JSON: ", id="broken-array"),
        pytest.param(
            "r.json", b'["\xff"]', "r.json, line 1: not UTF-8: byte 0xff", id="json-bytes"
        ),
        pytest.param(
            "r.jsonl",
            OK + b'\n{"id": "b", }\n',
            "r.jsonl, line 3: broken JSON: ",
            id="broken-json",
        ),
        pytest.param(
            "r.jsonl",
            b'{"id" 1}',
            "r.jsonl, line 1: broken JSON: Expecting ':' delimiter at character 7",
            id="json-names-the-character",
        ),
        pytest.param(
            "r.jsonl",
            b'{"id": "a", "id": "b"}',
            'r.jsonl, line 1: broken JSON: the name "id" occurs twice in one object',
            id="repeated-name",
        ),
        pytest.param(
            "r.jsonl",
            b'{"id": ' + b"[" * 100_000,
            "r.jsonl, line 1: broken JSON: ",
            id="deep-nesting",
        ),
        pytest.param(
            "r.jsonl",
            b'{"id": ' + b"9" * 5000 + b"}",
            "r.jsonl, line 1: broken JSON: Exceeds the limit",
            id="endless-number",
        ),
        pytest.param(
            "r.jsonl", OK + b'"text"', "r.jsonl, line 2: a JSON string, not an object", id="string"
        ),
        pytest.param("r.jsonl", b"3", "line 1: a JSON number, not an object", id="number"),
        pytest.param(
            "r.jsonl",
            b"[" + OK.strip() + b"]",
            "line 1: a JSON array, not an object; JSONL has one object a line",
            id="array",
        ),
        pytest.param(
            "r.jsonl",
            b"[\n" + OK + b"]",
            "at character 3; JSONL has one object a line; a file with an array is named .json",
            id="array-over-lines",
        ),
        pytest.param(
            "r.jsonl",
            OK + b'{"id": "\xe9"}',
            f"r.jsonl, line 2: not UTF-8: byte 0xe9 at offset {len(OK) + 8} of the file;",
            id="latin-1",
        ),
        pytest.param(
            "r.jsonl",
            '{"id": "a"}'.encode("utf-16"),
            "r.jsonl, line 1: the file is UTF-16; save it as UTF-8",
            id="utf-16",
        ),
        pytest.param(
            "r.jsonl.gz",
            gzip.compress(OK * 1000)[:-20],
            "r.jsonl.gz: broken gzip file: ",
            id="truncated-gzip",
        ),
        pytest.param("r.jsonl.gz", OK, "r.jsonl.gz: broken gzip file: ", id="no-gzip"),
        pytest.param("r.jsonl", b"", "r.jsonl: the input is empty", id="empty"),
        pytest.param("r.jsonl", b"\n \n", "r.jsonl: the input is empty", id="only-blank-lines"),
        pytest.param("r.csv", b"", "r.csv: the file is empty", id="empty-csv"),
        pytest.param(
            "r.csv", b"id,summary_a,summary_b\n", "r.csv: the input is empty", id="only-header"
        ),
        pytest.param(
            "r.parquet",
            parquet(summary_a=[], summary_b=[]),
            "r.parquet: the input is empty",
            id="empty-parquet",
        ),
        pytest.param(
            "r.jsonl",
            OK + OK.replace(b'"a"', b'"b"') + b"\n" + OK,
            "r.jsonl, line 4: id a stands at r.jsonl, line 1 already; every record needs an id",
            id="duplicate-id",
        ),
        pytest.param(
            "r.csv",
            b'id,summary_a,summary_b\na,"x\nx",y\na,x,y\n',
            "r.csv, line 4: id a stands at r.csv, line 2 already",
            id="duplicate-id-csv",
        ),
        pytest.param(
            "r.parquet",
            parquet(id=[5, 6, 5], summary_a=["x"] * 3, summary_b=["y"] * 3),
            "r.parquet, row 3: id 5 stands at r.parquet, row 1 already",
            id="duplicate-id-parquet",
        ),
        pytest.param(
            "r.jsonl",
            b'{"id": null, "summary_a": "x", "summary_b": "y"}',
            "r.jsonl, line 1: id is null; give every record an id",
            id="null-id",
        ),
        pytest.param(
            "r.jsonl", OK.replace(b'"a"', b'""'), "r.jsonl, line 1: id is empty;", id="empty-id"
        ),
        pytest.param(
            "r.jsonl",
            OK.replace(b'"a"', b"1.5"),
            "r.jsonl, line 1: id must be text or an integer, not a number",
            id="float-id",
        ),
        pytest.param(
            "r.jsonl",
            OK + b'{"summary_a": "x", "summary_b": "y"}',
            "r.jsonl, line 2: no id, though records before it have one",
            id="id-lost",
        ),
        pytest.param(
            "r.jsonl",
            b'{"summary_a": "x", "summary_b": "y"}\n' + OK,
            "r.jsonl, line 2: an id, though records before it have none",
            id="id-found",
        ),
        pytest.param(
            "r.jsonl",
            OK + b'{"id": "b", "summary_a": "x", "summaryb": "y"}',
            "r.jsonl, line 2: no column summary_b (needed by caspr, ds); the record has: "
            "id, summary_a, summaryb; is summaryb meant?",
            id="missing-column",
        ),
        pytest.param(
            "r.jsonl",
            OK + b'{"id": "b", "summary_a": "x", "summary_b": null}',
            "r.jsonl, line 2: summary_b is null (needed by caspr, ds)",
            id="null-column",
        ),
        pytest.param(
            "r.jsonl",
            OK.replace(b'"y"', b"[1]"),
            "r.jsonl, line 1: summary_b must be text, not a list (needed by caspr, ds)",
            id="wrong-type",
        ),
        pytest.param(
            "r.csv",
            b"id,summary_a,Summary_B\na,x,y\n",
            "r.csv, line 1: no column summary_b (needed by caspr, ds); the columns are: "
            "id, summary_a, Summary_B; is Summary_B meant?",
            id="missing-column-csv",
        ),
        pytest.param(
            "r.parquet",
            parquet(id=["a"], summary_a=["x"]),
            "r.parquet: no column summary_b (needed by caspr, ds); the columns are: id, summary_a",
            id="missing-column-parquet",
        ),
        pytest.param(
            "r.parquet",
            parquet(summary_a=["x", "x"], summary_b=["y", None]),
            "r.parquet, row 2: summary_b is null (needed by caspr, ds)",
            id="null-column-parquet",
        ),
        pytest.param(
            "r.parquet",
            parquet(summary_a=["x"], summary_b=[3]),
            "r.parquet, row 1: summary_b must be text, not a number (needed by caspr, ds)",
            id="wrong-type-parquet",
        ),
        pytest.param(
            "r.jsonl",
            OK.replace(b'"y"', b'"y \\ud83d"'),
            "r.jsonl, line 1: summary_b holds half of a surrogate pair, which is not text;",
            id="lone-surrogate",
        ),
        pytest.param(
            "r.jsonl",
            OK.replace(b'"id"', b'"x\\ud83d": 1, "id"'),
            'r.jsonl, line 1: the column name "x\\ud83d" holds half of a surrogate pair',
            id="lone-surrogate-in-a-name",
        ),
        pytest.param(
            "r.csv",
            b'summary_a,summary_b\n"x\nx",y\nx,y,z\n',
            "r.csv, line 4: 3 fields where the header names 2 columns;",
            id="ragged",
        ),
        pytest.param(
            "r.csv",
            b'summary_a,summary_b\nx,y\n\n"x,y\nx,y\n',
            "r.csv, line 4: broken CSV in the record that starts here: unexpected end of data",
            id="open-quote",
        ),
        pytest.param(
            "r.csv",
            b"a,summary_a,summary_b,a\n",
            'r.csv, line 1: the header names column "a" twice',
            id="duplicate-header",
        ),
        pytest.param(
            "r.csv",
            b"summary_a,,summary_b\n",
            "r.csv, line 1: column 2 of the header has no name",
            id="nameless-header",
        ),
        pytest.param(
            "r.csv",
            b"summary_a,summary_b\nx,y\nx,caf\xe9\n",
            "r.csv, line 3: not UTF-8: byte 0xe9 at offset 29 of the file",
            id="latin-1-csv",
        ),
        pytest.param(
            "r.csv",
            "summary_a,summary_b\n".encode("utf-16"),
            "r.csv, line 1: the file is UTF-16; save it as UTF-8",
            id="utf-16-csv",
        ),
        pytest.param(
            "r.parquet", b"PAR1 nothing", "r.parquet: not a readable Parquet file: ", id="corrupt"
        ),
        pytest.param(
            "r.xlsx",
            b"x",
            "r.xlsx: the format is not known from this ending; known endings: .jsonl, ",
            id="unknown-ending",
        ),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    """Everything a person needs to find and mend the record."""
    (tmp_path / name).write_bytes(content)
    assert expected in refused(str(tmp_path / name), tmp_path)


def test_a_long_path_is_said_whole(tmp_path: Path) -> None:
    """Its end is the part that tells files apart."""
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    (folder / "r.jsonl").write_text("")
    assert refused(str(folder / "r.jsonl"), tmp_path).startswith(f"{'deep' * 30}/r.jsonl: ")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        pytest.param(
            "source", "3", "must be text or a list of texts, not a number", id="text-or-texts"
        ),
        pytest.param(
            "source", '["x", 3]', "must be a list of texts, but item 2 is a number", id="item"
        ),
        pytest.param("references", '"x"', "must be a list of texts, not text", id="list"),
        pytest.param("sources", "{}", "must be a list of texts, not an object", id="object"),
        pytest.param("system", "true", "must be text, not a boolean", id="system"),
        pytest.param("ratings", "[1]", "must be an object of numbers, not a list", id="ratings"),
        pytest.param(
            "ratings", '{"q": "3"}', "must be an object of numbers, but q is text", id="rating"
        ),
        pytest.param(
            "ratings",
            '{"q": 1' + "0" * 400 + "}",
            "holds a number that is too large: q",
            id="overflow",
        ),
    ],
)
def test_wrong_types_of_known_columns(
    tmp_path: Path, column: str, value: str, expected: str
) -> None:
    """Also where no chosen metric needs the column."""
    (tmp_path / "r.jsonl").write_text(f'{{"{column}": {value}}}')
    message = refused(str(tmp_path / "r.jsonl"), tmp_path, required={})
    assert message == f"r.jsonl, line 1: {column} {expected}"


def test_list_cells_must_be_json(tmp_path: Path) -> None:
    """A plain text in a list column of a CSV file is refused."""
    (tmp_path / "r.csv").write_text("references\nplain\n")
    message = refused(str(tmp_path / "r.csv"), tmp_path, required={})
    assert message.startswith("r.csv, line 2: references must be JSON in a CSV file: Expecting")


def test_missing_source_names_the_metric_of_either_name(tmp_path: Path) -> None:
    """A metric that asks for `sources` is named where `source` is of a wrong type."""
    (tmp_path / "r.jsonl").write_text('{"source": 3}')
    message = refused(str(tmp_path / "r.jsonl"), tmp_path, required={"factsim": ("sources",)})
    assert message.endswith("(needed by factsim)")


def test_duplicate_over_two_files(tmp_path: Path) -> None:
    """Both files are named."""
    for name in ("p1.jsonl", "p2.jsonl"):
        (tmp_path / name).write_bytes(OK)
    message = refused(str(tmp_path / "p*.jsonl"), tmp_path)
    assert message.startswith("p2.jsonl, line 1: id a stands at p1.jsonl, line 1 already")


def test_folder(tmp_path: Path) -> None:
    """A folder is refused with the pattern that was probably meant."""
    (tmp_path / "data").mkdir()
    message = refused(str(tmp_path / "data"), tmp_path)
    assert (
        message == "data: this is a folder; name a file in it or a pattern such as 'data/*.jsonl'"
    )


def test_missing_file_suggests_close_names(tmp_path: Path) -> None:
    """A slip of the finger is put right."""
    (tmp_path / "pairs.jsonl").write_bytes(OK)
    message = refused(str(tmp_path / "pair.jsonl"), tmp_path)
    assert message == "pair.jsonl: there is no such file; did you mean pairs.jsonl?"


def test_missing_folder_is_said(tmp_path: Path) -> None:
    """Not only the file is absent."""
    message = refused(str(tmp_path / "gone" / "pair.jsonl"), tmp_path)
    assert message.endswith("gone cannot be read or does not exist")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("", "no input was named", id="empty"),
        pytest.param("a\0b.jsonl", "cannot hold a NUL character", id="nul"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, source: str, expected: str) -> None:
    """Said before anything is looked up."""
    assert expected in refused(source, tmp_path)


def test_globs(tmp_path: Path) -> None:
    """No match, and a match of two formats."""
    (tmp_path / "r.jsonl").write_bytes(OK)
    (tmp_path / "r.csv").write_bytes(b"x")
    assert refused(f"{tmp_path}/q*.jsonl", tmp_path) == "q*.jsonl: no file matches this pattern"
    message = refused(f"{tmp_path}/r.*", tmp_path)
    assert "files of different formats match (r.csv is csv, r.jsonl is jsonl)" in message


def test_pipe_is_refused(tmp_path: Path) -> None:
    """It cannot be read twice; `-` can."""
    os.mkfifo(tmp_path / "r.jsonl")
    assert "name the input -" in refused(str(tmp_path / "r.jsonl"), tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_unreadable_file(tmp_path: Path) -> None:
    """The reason is given."""
    (tmp_path / "r.jsonl").write_bytes(OK)
    (tmp_path / "r.jsonl").chmod(0)
    assert refused(str(tmp_path / "r.jsonl"), tmp_path).startswith("r.jsonl: permission denied")


def test_standard_input_is_named_so(tmp_path: Path) -> None:
    """Not by the name of its copy."""
    message = refused("-", tmp_path, stdin=io.BytesIO(OK + b"{"))
    assert message.startswith("standard input, line 2: broken JSON")
    assert refused("-", tmp_path, stdin=io.BytesIO()).startswith("standard input: the input is")


def test_names_as_data_are_refused(tmp_path: Path) -> None:
    """Columns without end would fill the memory."""
    fields = ",".join(f'"c{i}": 1' for i in range(MAX_COLUMNS + 1))
    (tmp_path / "r.jsonl").write_text("{" + fields + "}")
    message = refused(str(tmp_path / "r.jsonl"), tmp_path, required={})
    assert "more than 10000 different columns" in message


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """Inputs are data: an id with an escape sequence is shown escaped."""
    record = OK.replace(b'"a"', b'"a\\u001b[2J\\n"')
    (tmp_path / "r.jsonl").write_bytes(record + record)
    assert r'id "a\u001b[2J\n" stands at' in refused(str(tmp_path / "r.jsonl"), tmp_path)


def test_many_batches_of_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first duplicate in input order is named, whatever batch it is in."""
    monkeypatch.setattr(dataset, "_BATCH", 3)
    names = [*range(10), 7, 2]
    (tmp_path / "r.csv").write_text("id,x\n" + "".join(f"{n},y\n" for n in names))
    message = refused(str(tmp_path / "r.csv"), tmp_path, required={})
    assert message.startswith("r.csv, line 13: id 2 stands at r.csv, line 4 already")


def test_full_disk_of_the_id_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spool folder that cannot be written to is a setting to change, not a bug."""
    (tmp_path / "r.jsonl").write_bytes(OK)

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(ConfigError, match="spool: the list of ids could not be kept: un"):
        prepare(str(tmp_path / "r.jsonl"), spool=tmp_path / "spool", required={})
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="file: File exists"):
        prepare(str(tmp_path / "r.jsonl"), spool=tmp_path / "file", required={})


def test_id_list_that_breaks_on_the_way(tmp_path: Path) -> None:
    """Say, a disk that fills up: one line, and the scratch file goes."""
    with dataset.IdIndex(tmp_path) as index:
        index.add("a", 0, 1)
        index._database.execute("DROP TABLE ids")
        with pytest.raises(ConfigError, match="the list of ids could not be kept: no such table"):
            index.duplicate()
    assert not list(tmp_path.iterdir())
