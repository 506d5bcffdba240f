"""A record or file that cannot be used is refused in one line: file, line, column, what to do."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.records.columns import MAX_COLUMNS
from claimscore.records.dataset import LOOKED_AT, Selection
from tests.support.prepared import prepare

OK = b'{"id": "a", "summary_a": "x", "summary_b": "y"}\n'
NO_ID = b'{"summary_a": "x", "summary_b": "y"}\n'
NEEDS = {"caspr": ("summary_a", "summary_b"), "ds": ("summary_a", "summary_b")}


def parquet(**columns: list[object]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def refused(source: Any, tmp_path: Path, **options: object) -> str:
    """The message of the refusal, one line, the folder left out."""
    with pytest.raises(InputError) as caught:
        prepare(source, spool=tmp_path / "spool", **{"required": NEEDS, **options})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{tmp_path}/", "")


#: By the name of the file: its content, and a part of what is said.
REFUSED: dict[str, list[tuple[bytes, str]]] = {
    "r.json": [
        (b"[1]", "r.json, row 1: a JSON number, not an object"),
        (OK, "r.json: a JSON object, not an array of records"),
        (b"[{}", "r.json: broken JSON: "),
        (b'["\xff"]', "r.json, line 1: not UTF-8: byte 0xff"),
    ],
    "r.jsonl": [
        (OK + b'\n{"id": "b", }\n', "r.jsonl, line 3: broken JSON: "),
        (b'{"id" 1}', "line 1: broken JSON: Expecting ':' delimiter at character 7"),
        (b'{"id": "a", "id": "b"}', 'broken JSON: the name "id" occurs twice in one object'),
        (b'{"id": ' + b"[" * 100_000, "r.jsonl, line 1: broken JSON: "),
        (b'{"id": ' + b"9" * 5000 + b"}", "r.jsonl, line 1: broken JSON: Exceeds the limit"),
        (OK + b'"text"', "r.jsonl, line 2: a JSON string, not an object"),
        (b"3", "line 1: a JSON number, not an object"),
        (b"[" + OK.strip() + b"]", "a JSON array, not an object; JSONL has one object a line"),
        (b"[\n" + OK + b"]", "at character 3; JSONL has one object a line; a file with an array"),
        (OK + b'{"id": "\xe9"}', f"line 2: not UTF-8: byte 0xe9 at offset {len(OK) + 8} of the"),
        ('{"id": "a"}'.encode("utf-16"), "line 1: the file is UTF-16; save it as UTF-8"),
        (b"", "r.jsonl: the input is empty"),
        (b"\n \n", "r.jsonl: the input is empty"),
        (
            OK + NO_ID.replace(b"{", b'{"id": "b", ') + b"\n" + OK,
            "line 4: id a stands at r.jsonl, line 1",
        ),
        (NO_ID.replace(b"{", b'{"id": null, '), "line 1: id is null; give every record an id"),
        (OK.replace(b'"a"', b'""'), "r.jsonl, line 1: id is empty;"),
        (OK.replace(b'"a"', b"1.5"), "line 1: id must be text or an integer, not a number"),
        (OK + NO_ID, "r.jsonl, line 2: no id, though records before it have one"),
        (NO_ID + OK, "r.jsonl, line 2: an id, though records before it have none"),
        (
            OK + b'{"id": "b", "summary_a": "x", "summaryb": "y"}',
            "r.jsonl, line 2: no column summary_b (needed by caspr, ds); the record has: "
            "id, summary_a, summaryb; is summaryb meant?",
        ),
        (
            b'{"article": "x", "highlights": "y"}',
            "line 1: no columns summary_a, summary_b (needed by caspr, ds); the record has: "
            "article, highlights",
        ),
        (OK.replace(b'"y"', b"[1]"), "summary_b must be text, not a list (needed by caspr, ds)"),
        (OK.replace(b'"y"', b'"y \\ud83d"'), "line 1: broken JSON: half of a surrogate pair,"),
        (OK.replace(b'"id"', b'"x\\ud83d": 1, "id"'), "broken JSON: half of a surrogate pair,"),
        # inputs are data: an id with an escape sequence is shown escaped
        (OK.replace(b'"a"', b'"a\\u001b[2J\\n"') * 2, r'id "a\u001b[2J\n" stands at'),
    ],
    "r.jsonl.gz": [
        (gzip.compress(OK * 1000)[:-20], "r.jsonl.gz: broken gzip file: "),
        (OK, "r.jsonl.gz: broken gzip file: "),
    ],
    "r.csv": [
        (b"", "r.csv: the file is empty"),
        (b"id,summary_a,summary_b\n", "r.csv: the input is empty"),
        (b'id,summary_a,summary_b\na,"x\nx",y\na,x,y\n', "line 4: id a stands at r.csv, line 2"),
        (
            b"id,summary_a,Summary_B\na,x,y\n",
            "r.csv, line 1: no column summary_b (needed by caspr, ds); the columns are: "
            "id, summary_a, Summary_B; is --columns summary_b=Summary_B meant? (Python: columns=)",
        ),
        (b'summary_a,summary_b\n"x\nx",y\nx,y,z\n', "line 4: 3 fields where the header names 2"),
        (
            b'summary_a,summary_b\nx,y\n\n"x,y\nx,y\n',
            "r.csv, line 4: broken CSV in the record that starts here: unexpected end of data",
        ),
        (b"a,summary_a,summary_b,a\n", 'r.csv, line 1: the header names column "a" twice'),
        (b"summary_a,,summary_b\n", "r.csv, line 1: column 2 of the header has no name"),
        (b"summary_a,summary_b\nx,y\nx,caf\xe9\n", "line 3: not UTF-8: byte 0xe9 at offset 29 of"),
        ("summary_a,summary_b\n".encode("utf-16"), "line 1: the file is UTF-16; save it as UTF-8"),
    ],
    "r.parquet": [
        (parquet(summary_a=[], summary_b=[]), "r.parquet: the input is empty"),
        (parquet(id=[5, 6, 5], summary_a=["x"] * 3, summary_b=["y"] * 3), "row 3: id 5 stands at"),
        (
            parquet(id=["a"], summary_a=["x"]),
            "r.parquet: no column summary_b (needed by caspr, ds); the columns are: id, summary_a",
        ),
        (parquet(summary_a=["x"], summary_b=[3]), "row 1: summary_b must be text, not a number"),
        (b"PAR1 nothing", "r.parquet: not a readable Parquet file: "),
    ],
    "r.xlsx": [(b"x", "r.xlsx: the format is not known from this ending; known endings: .jsonl, ")],
    f"{'deep' * 30}.jsonl": [(b"", f"{'deep' * 30}.jsonl: ")],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]


def test_of_two_systems_both_are_candidates(tmp_path: Path) -> None:
    path, needs = tmp_path / "r.csv", {"faithfulness": ("summary", "source")}
    path.write_text("article,summary_a,summary_b\n")
    said = "; is --columns summary=summary_a,source=article meant (or summary=summary_b)?"
    assert said in refused(str(path), tmp_path, required=needs)


@pytest.mark.parametrize(("name", "content", "expected"), CASES, ids=[case[2] for case in CASES])
def test_refusals_name_the_place(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert expected in refused(str(tmp_path / name), tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("source", "3", "must be text or a list of texts, not a number"),
        ("source", '["x", 3]', "must be a list of texts, but item 2 is a number"),
        ("references", "3", "must be a text or a list of texts, not a number"),
        ("sources", "{}", "must be a text or a list of texts, not an object"),
        ("system", "true", "must be text, not a boolean"),
        ("ratings", "[1]", "must be an object of numbers, not a list"),
        ("ratings", '{"q": "3"}', "must be an object of numbers, but q is text"),
        ("ratings", '{"q": 1' + "0" * 400 + "}", "holds a number that is too large: q"),
    ],
)
def test_wrong_types_of_columns(tmp_path: Path, column: str, value: str, expected: str) -> None:
    (tmp_path / "r.jsonl").write_text(f'{{"{column}": {value}}}')
    source = str(tmp_path / "r.jsonl")
    said = f"r.jsonl, line 1: {column} {expected}"
    assert refused(source, tmp_path, required={}) == said
    if column == "source":
        required = {"factsim": ("sources",)}
        assert refused(source, tmp_path, required=required) == f"{said} (needed by factsim)"


@pytest.mark.parametrize("source", ["r.jsonl", "r.csv", None], ids=["jsonl", "csv", "rows"])
def test_a_column_named_the_wrong_way_round(source: str | None, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"article": "x"}')
    (tmp_path / "r.csv").write_text("article\nx\n")
    data = [{"article": "x"}] if source is None else str(tmp_path / source)
    options = {"required": {"x": ("source",)}, "selection": Selection({"article": "source"})}
    way = ("columns={'article': 'source'}", "columns={'source': 'article'}")
    way = way if source is None else ("--columns article=source", "--columns source=article")
    said = f"{source or 'the data'}: {way[0]}: claimscore's name stands first; is {way[1]} meant?"
    assert refused(data, tmp_path, **options) == said


@pytest.mark.parametrize(
    ("name", "content", "needed", "said"),
    [
        (
            "r.csv",
            b"text,summary\nx,y\n",
            ("sources",),
            ", line 1: --columns source=doc: no column doc; the ",
        ),
        ("r.jsonl", b'{"text": "x"}', (), ": --columns source=doc: no record has a column doc"),
        (
            *("r.jsonl", b'{"text": "x", "summary": "y"}', ("source", "summary")),
            ", line 1: --columns source=doc: no column doc; the record has: text, summary",
        ),
        ("list.csv", b"references\n[plain]\n", (), ", line 2: references must be JSON in a CSV"),
    ],
)
def test_a_named_column_that_is_not_there(
    name: str, content: bytes, needed: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """And a list in a CSV file that is none."""
    (tmp_path / name).write_bytes(content)
    selection = Selection({} if name == "list.csv" else {"source": "doc"})
    options = {"required": {"x": needed}, "selection": selection}
    message = refused(str(tmp_path / name), tmp_path, **options)
    assert message.startswith(f"{name}{said}")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Of each kind the first place, and how many more records have it."""
    lines = [
        {"summary_a": "x", "summary_b": "y", "id": None},
        *[{"summary_a": "x", "summary_b": "y", "id": "a"}] * 3,
        {"summary_a": "x", "id": "b"},
        {"summary_a": 3, "summary_b": "y", "id": 1.0},
        *[{"summary_a": "x", "summary_b": "y", "id": id} for id in (2.0, 0.5, 2)],
        {"summary_a": "x", "source": "s", "sources": ["s"]},
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError) as caught:
        prepare(str(tmp_path / "r.jsonl"), spool=tmp_path, required=NEEDS)
    first, *told = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert first == "r.jsonl: 7 problems:"
    where, needs = "r.jsonl, line ", "(needed by caspr, ds)"
    assert [line.strip().removeprefix(where) for line in told] == [
        "1: id is null; give every record an id, or leave the column out",
        f"5: no column summary_b {needs}; the record has: summary_a, id; `claimscore metrics list` "
        "says what each metric reads; also in 1 more",
        f"6: summary_a must be text, not a number {needs}",
        "8: id must be text or an integer, not a number",
        "10: source and sources are both there; leave one of them out",
        "10: no id, though records before it have one",
        f"3: id a stands at {where}2 already; every record needs an id of its own; also in 2 more",
    ]
    many = [OK.replace(b'"a"', b"%d" % n) for n in range(LOOKED_AT + 1)]
    (tmp_path / "r.jsonl").write_bytes(NO_ID + b"".join(many) + b"{")
    assert refused(str(tmp_path / "r.jsonl"), tmp_path).endswith("also in 9,999 more")


def test_duplicates_over_files_are_found_in_the_order_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_bytes(OK + OK.replace(b'"a"', b'"b"'))
    (tmp_path / "p2.jsonl").write_bytes(OK.replace(b'"a"', b'"b"') + OK)
    message = refused(str(tmp_path / "p*.jsonl"), tmp_path)
    assert message.startswith("p2.jsonl, line 1: id b stands at p1.jsonl, line 2 already")


def test_names_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "pairs.jsonl").write_bytes(OK)
    (tmp_path / "pairs.csv").write_bytes(b"x")
    os.mkfifo(tmp_path / "zz.csv")
    for name, expected in (
        ("data", "data: this is a folder; name a file in it or a pattern such as 'data/*.jsonl'"),
        ("pair.jsonl", "pair.jsonl: there is no such file; did you mean pairs.jsonl?"),
        ("gone/pair.jsonl", "gone cannot be read or does not exist"),
        ("a\0b.jsonl", "cannot hold a NUL character"),
        ("q*.jsonl", "q*.jsonl: no file matches this pattern"),
        ("pairs.*", "files of different formats match (pairs.csv is csv, pairs.jsonl is jsonl)"),
        ("zz.csv", "name the input -"),  # it cannot be read twice
    ):
        assert expected in refused(f"{tmp_path}/{name}", tmp_path)
    assert "no input was named" in refused("", tmp_path)


def test_standard_input_is_named_so(tmp_path: Path) -> None:
    message = refused("-", tmp_path, stdin=io.BytesIO(OK + b"{"))
    assert message.startswith("standard input, line 2: broken JSON")
    assert refused("-", tmp_path, stdin=io.BytesIO()).startswith("standard input: the input is")


def test_columns_without_end_are_refused(tmp_path: Path) -> None:
    fields = ",".join(f'"c{i}": 1' for i in range(MAX_COLUMNS + 1))
    (tmp_path / "r.jsonl").write_text("{" + fields + "}")
    message = refused(str(tmp_path / "r.jsonl"), tmp_path, required={})
    assert "more than 10000 different columns" in message


def test_a_spool_that_cannot_be_made_is_a_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(OK)
    with pytest.raises(ConfigError, match=r"r\.jsonl: File exists"):
        prepare(str(tmp_path / "r.jsonl"), spool=tmp_path / "r.jsonl", required={})
