"""An S3 server on loopback (moto's), one a test process, and a fresh bucket for each test."""

from __future__ import annotations

import itertools
import logging
import urllib.request
from collections.abc import Iterator

import pytest

KEY, SECRET = "test-key-id", "test-secret-value"

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The base URL of an S3 server; it ends with the tests."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://bucket-N`, empty, with the environment that reaches it (subprocesses too)."""
    for name, value in aws_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    bucket = f"bucket-{next(_NUMBERS)}"
    request = urllib.request.Request(f"{s3_server}/{bucket}", method="PUT")
    with urllib.request.urlopen(request):
        pass
    return f"s3://{bucket}"


def aws_environment(endpoint: str) -> dict[str, str]:
    """The variables that obstore, polars and boto3 read."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
