"""What a store refuses, in words for people, and never a secret; whom it is asked as."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.storage import Storage, open_storage
from tests.support.object_store import KEY, SECRET, aws_environment

#: The key of Azurite's own account, which is public.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

ASK: dict[str, Callable[[Storage], object]] = {
    "read": lambda folder: folder.read("x"),
    "write": lambda folder: folder.write("x", b""),
    "create": lambda folder: folder.create("x", b""),
    "sizes": lambda folder: folder.sizes(),
}


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Answers everything with the server's `answer`: a status and an S3 error code. It remembers
    what was `asked` by whom."""

    def _refuse(self) -> None:
        who = self.headers.get("Authorization", "").partition(":")[0]
        self.server.asked.append((self.path.partition("?")[0], who))  # type: ignore[attr-defined]
        status, code = self.server.answer  # type: ignore[attr-defined]
        body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = _refuse

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    """A store that refuses; few and quick retries."""
    monkeypatch.setattr("claimscore.storage.stores.RETRY", {"max_retries": 1})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in aws_environment(f"http://127.0.0.1:{server.server_port}").items():
            monkeypatch.setenv(name, value)
        yield server
        server.shutdown()


def _refusal(folder: Storage, how: str) -> ClaimscoreError:
    with pytest.raises(ClaimscoreError) as refused:
        ASK[how](folder)
    text = str(refused.value)
    assert folder.name in text
    assert SECRET not in text
    assert KEY not in text
    assert "\n" not in text
    return refused.value


@pytest.mark.parametrize("how", ASK)
@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (403, "AccessDenied", ConfigError, "access is denied"),
        (403, "InvalidAccessKeyId", ConfigError, "AWS_ACCESS_KEY_ID"),
        (401, "x", ConfigError, "access is denied"),
        (400, "ExpiredToken", ConfigError, "access is denied"),
        (404, "NoSuchBucket", ConfigError, "there is no such bucket"),
        (400, "AuthorizationHeaderMalformed", ConfigError, "REGION"),
        (400, "SomethingElse", ConfigError, "(SomethingElse)"),
        (503, "SlowDown", StoppedEarly, "the store answers 503"),
    ],
)
def test_a_refusal_is_said(
    refusing: Any, how: str, status: int, code: str, kind: type[Exception], message: str
) -> None:
    refusing.answer = (status, code)
    error = _refusal(open_storage("s3://some-bucket/run"), how)
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize("how", ASK)
def test_a_store_that_is_not_reached_is_a_stop(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claimscore.storage.stores.RETRY", {"max_retries": 1})
    for name, value in aws_environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    error = _refusal(open_storage("s3://some-bucket/run"), how)
    assert type(error) is StoppedEarly
    assert "http://127.0.0.1:9 was not reached" in str(error)
    assert "AWS_ENDPOINT_URL" in str(error)


def test_plain_http_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws_environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    assert "AWS_ALLOW_HTTP=true" in str(_refusal(open_storage("s3://some-bucket/run"), "read"))


def test_a_profile_is_boto3s_business(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(ConfigError, match=f"{s3}: no credentials were found; set AWS_ACCESS"):
        open_storage(s3)
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "team")
    open_storage(s3).write("x", b"by profile")
    assert open_storage(s3).read("x") == b"by profile"
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match="nobody"):
        open_storage(s3)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (f"s3://{KEY}:{SECRET}@bucket/x", "without user name"),
        (f"https://host/x?sig={SECRET}", "without user name"),
        (f"https://{SECRET}@host/x", "without user name"),
        (f"az://box/x.parquet?sig={SECRET}", "without user name"),
        (f"abfss://a:{SECRET}@b/x", "without user name"),
        ("ftp://host/x", "known ones: s3://, gs://"),
        ("s3:///x", "names no bucket; it looks like s3://bucket/folder"),
        ("https://", "names no host"),
        ("s3://bucket/a//b", "are no names"),
        ("gs://bucket/../b", "are no names"),
        ("az://box/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_an_address_that_cannot_be(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ConfigError) as refused:
        open_storage(address)
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "the credentials have expired"),
        (400, "ExpiredToken", "the credentials have expired"),
        (404, "NoSuchBucket", "the bucket is gone"),
        (403, "RequestTimeTooSkewed", "clock"),
    ],
)
def test_a_store_that_worked_and_refuses_is_a_stop(
    refusing: Any, status: int, code: str, message: str
) -> None:
    refusing.answer = (200, "")
    folder = open_storage("s3://some-bucket/run/a")
    folder.write("x", b"")
    refusing.answer = (status, code)
    for how in ASK:
        error = _refusal(folder, how)
        assert type(error) is StoppedEarly
        assert message in str(error)


@pytest.mark.parametrize("root", ["az://box", "abfss://box@devstoreaccount1.dfs.core.windows.net"])
def test_an_azure_server_of_ones_own(
    refusing: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore and polars ask the same server, as the same account, by the same variables."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    endpoint = f"http://127.0.0.1:{refusing.server_port}/devstoreaccount1"
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    refusing.answer = (403, "")
    folder = open_storage(f"{root}/run")
    with pytest.raises(ConfigError, match="access is denied"):
        folder.read("x.parquet")
    with pytest.raises(PermissionError):
        pl.scan_parquet(str(folder.address("x.parquet")), glob=False).collect()
    who = "SharedKey devstoreaccount1"
    assert len(refusing.asked) >= 2
    assert set(refusing.asked) == {("/devstoreaccount1/box/run/x.parquet", who)}


def test_a_connection_string_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=a;AccountKey={AZURITE_KEY}")
    with pytest.raises(ConfigError, match="CONNECTION_STRING is not read; set its parts") as error:
        open_storage("az://box/run")
    assert AZURITE_KEY not in str(error.value)
