"""Records from an object store or a web server are those of the same local files."""

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
from claimscore.records.files import find_files
from tests.support.object_store import put
from tests.support.prepared import prepare

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
def test_an_object_gives_the_records_of_a_file(name: str, s3: str, tmp_path: Path) -> None:
    data = CONTENTS[name]()
    (tmp_path / name).write_bytes(data)
    put(f"{s3}/in/{name}", data)
    spool = tmp_path / "spool"
    local = prepare(str(tmp_path / name), spool=spool, required=NEEDS)
    remote = prepare(f"{s3}/in/{name}", spool=spool, required=NEEDS)
    assert (remote.digest, remote.n_records) == (local.digest, 300)
    for one, other in zip(remote.chunks(64), local.chunks(64), strict=True):
        assert one.equals(other)
    del remote
    assert list(spool.iterdir()) == [], "the copy goes with the dataset"


def test_patterns_find_objects(s3: str, tmp_path: Path) -> None:
    for name in ("in/b.jsonl", "in/a.jsonl", "in/deep/er/c.jsonl", "in/d.csv", "other.jsonl"):
        put(f"{s3}/{name}", b"{}\n")
    put(f"{s3}/in/empty.jsonl", b"")

    def names(pattern: str) -> list[str]:
        files = find_files(f"{s3}/{pattern}", tmp_path)
        return [file.name.removeprefix(f"{s3}/") for file in files]

    assert names("in/*.jsonl") == ["in/a.jsonl", "in/b.jsonl"]
    assert names("in/[b]*.jsonl") == ["in/b.jsonl"]
    assert names("**/*.jsonl")[:3] == ["in/a.jsonl", "in/b.jsonl", "in/deep/er/c.jsonl"]
    with pytest.raises(InputError, match="no file matches this pattern"):
        names("none/*.jsonl")


def test_a_copy_that_a_killed_process_left_is_removed(s3: str, tmp_path: Path) -> None:
    (tmp_path / "input-left.jsonl").write_text("{}")
    put(f"{s3}/r.jsonl", JSONL)
    (file,) = find_files(f"{s3}/r.jsonl", tmp_path)
    assert list(tmp_path.iterdir()) == [file.path]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("r.jsonl", "r.jsonl, line 301: broken JSON"),
        ("bad.parquet", "bad.parquet: not a readable Parquet file"),
        ("bad.jsonl.gz", "bad.jsonl.gz: broken gzip file"),
        ("latin.jsonl", "latin.jsonl: not UTF-8"),
        ("empty.jsonl", "empty.jsonl: the input is empty"),
        ("s.jsonl", "s.jsonl: there is no such file"),
        ("in", "the format is not known from this ending"),
        ("", "this is not a file"),
        ("x.jsonl?versionId=1", "without user name, password or query"),
    ],
)
def test_messages_name_address_and_line(name: str, message: str, s3: str, tmp_path: Path) -> None:
    put(f"{s3}/r.jsonl", JSONL + b"{broken\n")
    put(f"{s3}/bad.parquet", b"PAR0" * 20)
    put(f"{s3}/bad.jsonl.gz", gzip.compress(JSONL)[:200])
    put(f"{s3}/latin.jsonl", '{"a": "ü"}'.encode("latin-1"))
    put(f"{s3}/empty.jsonl", b"")
    try:
        prepare(f"{s3}/{name}", spool=tmp_path, required={})
    except ConfigError as refused:
        refusal = str(refused)
    assert message in refusal
    assert list(tmp_path.iterdir()) == [], "no copy is left"


def test_a_store_that_refuses(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no such bucket"):
        prepare("s3://nosuchbucket/r.jsonl", spool=tmp_path, required={})
    with pytest.raises(ConfigError, match="ftp://: no such kind of address"):
        prepare("ftp://host/r.jsonl", spool=tmp_path, required={})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="no credentials were found"):
        prepare("az://container/r.jsonl", spool=tmp_path, required={})


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
        elif kind in ("ranges", "half") and (asked := self.headers.get("Range")):
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
            self.wfile.write(data[: len(data) // 2] if kind == "half" else data)
        self.close_connection = kind == "half"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server on loopback with the five files."""
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
        ("ranges", "r.jsonl.gz"),
        ("ranges", "a b%20ü.csv"),  # written as in a browser's address
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
        ("ranges/*.jsonl", "there is no such file"),
        ("whole/r.parquet", "the server must send a file in ranges"),
        ("whole/r.jsonl", "the server must send a file in ranges"),
        ("ranges/none.jsonl", "there is no such file"),
        ("login/r.jsonl", "access is denied"),
    ],
)
def test_what_a_web_server_cannot_do(name: str, message: str, web: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(f"{web}/{name}", spool=tmp_path, required={})


def test_a_web_server_that_breaks_off_stops_the_command(web: str, tmp_path: Path) -> None:
    with pytest.raises(StoppedEarly, match=r"half/r\.jsonl"):
        prepare(f"{web}/half/r.jsonl", spool=tmp_path, required={})
