"""Records from an object store or a web server are those of the same local files."""

from __future__ import annotations

import functools
import gzip
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError, StoppedEarly
from claimscore.records.dataset import prepare
from claimscore.records.files import find_files
from claimscore.storage import open_storage

RECORDS = [{"id": str(n), "summary_a": f"Text {n}.", "summary_b": "Größe “x”"} for n in range(300)]
JSONL = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
NEEDS = {"caspr": ("summary_a", "summary_b")}


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(RECORDS).write_parquet(buffer, row_group_size=100)
    return buffer.getvalue()


CONTENTS = {
    "r.jsonl": lambda: JSONL,
    "r.jsonl.gz": lambda: gzip.compress(JSONL),
    "a b%20ü.csv": lambda: pl.DataFrame(RECORDS).write_csv().encode(),
    "r.tsv.gz": lambda: gzip.compress(pl.DataFrame(RECORDS).write_csv(separator="\t").encode()),
    "r.parquet": _parquet,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_an_object_gives_the_records_of_a_file(
    name: str, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimscore.storage.objects.RANGE_BYTES", 5_000)
    data = CONTENTS[name]()
    (tmp_path / name).write_bytes(data)
    open_storage(f"{s3}/in").write(name, data)
    spool = tmp_path / "spool"
    local = prepare(str(tmp_path / name), spool=spool, required=NEEDS)
    remote = prepare(f"{s3}/in/{name}", spool=spool, required=NEEDS)
    assert (remote.digest, remote.n_records) == (local.digest, 300)
    for one, other in zip(remote.chunks(64), local.chunks(64), strict=True):
        assert one.equals(other)
    assert list(spool.iterdir()) == []


def test_patterns_find_objects(s3: str) -> None:
    folder = open_storage(s3)
    for name in ("in/b.jsonl", "in/a.jsonl", "in/deep/er/c.jsonl", "in/d.csv", "other.jsonl"):
        folder.write(name, b"{}\n")

    def found(pattern: str) -> list[str]:
        return [file.name.removeprefix(f"{s3}/") for file in find_files(f"{s3}/{pattern}")]

    assert found("in/*.jsonl") == ["in/a.jsonl", "in/b.jsonl"]
    assert found("in/[b]*.jsonl") == ["in/b.jsonl"]
    assert found("**/*.jsonl")[:3] == ["in/a.jsonl", "in/b.jsonl", "in/deep/er/c.jsonl"]
    assert found("in/?.csv") == ["in/d.csv"]
    folder.write("in/x[1].jsonl", b"{}\n")
    assert found("in/x[1].jsonl") == ["in/x[1].jsonl"]
    with pytest.raises(InputError, match=r"files of different formats match \(s3://"):
        found("in/*")
    with pytest.raises(InputError, match="no file matches this pattern"):
        found("none/*")


@pytest.mark.parametrize("name", ["r.jsonl", "r.parquet"])
def test_an_object_that_changes_is_refused(name: str, s3: str, tmp_path: Path) -> None:
    folder = open_storage(s3)
    data = CONTENTS[name]()
    folder.write(name, data)
    dataset = prepare(f"{s3}/{name}", spool=tmp_path, required={})
    folder.write(name, data + b"\n")
    with pytest.raises(InputError, match=f"{s3}/{name}: the file changed while it was being used"):
        next(dataset.chunks(10))
    folder.delete(name)
    with pytest.raises(InputError, match="there is no such file"):
        next(dataset.chunks(10))


def test_messages_name_address_and_line(s3: str, tmp_path: Path) -> None:
    folder = open_storage(s3)
    folder.write("in/r.jsonl", JSONL + b"{broken\n")
    folder.write("in/bad.parquet", b"PAR0" * 20)
    folder.write("in/bad.jsonl.gz", gzip.compress(JSONL)[:200])
    for name, message in (
        ("in/r.jsonl", "in/r.jsonl, line 301: broken JSON"),
        ("in/bad.parquet", "in/bad.parquet: not a readable Parquet file"),
        ("in/bad.jsonl.gz", "in/bad.jsonl.gz: broken gzip file"),
        ("in/s.jsonl", f"in/s.jsonl: there is no such file; did you mean {s3}/in/r.jsonl"),
        ("in", "in: there is no such file; it is a folder: name a file in it or a pattern"),
        ("", "this is not a file"),
        ("in/x.txt?versionId=1", "without user name, password or query"),
    ):
        with pytest.raises(ConfigError) as refused:
            prepare(f"{s3}/{name}", spool=tmp_path, required={})
        assert message in str(refused.value)


class _Web(http.server.SimpleHTTPRequestHandler):
    """As the path begins: with ranges, whole files, elsewhere, broken off, behind a login."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        kind, _, name = unquote(self.path[1:]).partition("/")
        path = Path(self.directory, name)
        data = path.read_bytes() if path.is_file() else b""
        status, headers = 200, {"Content-Length": str(len(data))}
        if not path.is_file() or kind == "login":
            status = 401 if kind == "login" else 404
            headers, data = {"Content-Length": "0"}, b""
        elif kind == "moved":
            status, headers, data = 302, {"Location": f"/ranges/{name}", "Content-Length": "0"}, b""
        elif kind == "half":
            data = data[: len(data) // 2]
            self.close_connection = True
        elif kind == "ranges" and (asked := self.headers.get("Range")):
            first, last = asked.removeprefix("bytes=").split("-")
            size = len(data)
            start = int(first) if first else max(0, size - int(last))
            data = data[start : int(last) + 1 if first and last else size]
            status, headers = 206, {"Content-Length": str(len(data))}
            headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{size}"
        self.send_response(status)
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server on loopback with the five files."""
    monkeypatch.setattr("claimscore.storage.objects.RANGE_BYTES", 5_000)
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content())
    handler = functools.partial(_Web, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("whole", "r.jsonl.gz"),
        ("whole", "a b%20ü.csv"),  # written as in a browser's address
        ("ranges", "r.jsonl"),
        ("ranges", "r.parquet"),
        ("moved", "r.parquet"),
    ],
)
def test_a_web_server_gives_the_records(kind: str, name: str, web: str, tmp_path: Path) -> None:
    local = prepare(str(tmp_path / name), spool=tmp_path, required=NEEDS)
    remote = prepare(f"{web}/{kind}/{quote(name)}", spool=tmp_path, required=NEEDS)
    assert remote.digest == local.digest
    assert pl.concat(remote.chunks(64)).equals(pl.concat(local.chunks(64)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("whole/*.jsonl", "a web server does not say which files it has"),
        ("whole/r.parquet", "a server must answer to ranges"),
        ("whole/none.jsonl", "there is no such file"),
        ("login/r.jsonl", r"access is denied \(401\); only pages that need no login can be read"),
    ],
)
def test_what_a_web_server_cannot_do(name: str, message: str, web: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(f"{web}/{name}", spool=tmp_path, required={})


def test_a_web_server_that_breaks_off_stops_the_command(web: str, tmp_path: Path) -> None:
    with pytest.raises(StoppedEarly, match=r"half/r\.jsonl"):
        prepare(f"{web}/half/r.jsonl", spool=tmp_path, required={})
