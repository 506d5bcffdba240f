"""Stores on loopback (moto's S3, and Google's protocol over it), one of each a test process, and a
fresh bucket for each test."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.google_store import google_environment, with_generations

KEY, SECRET = "test-key-id", "test-secret-value"

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The base URL of an S3 server; it ends with the tests."""
    with _served(lambda app: app) as url:
        yield url


@pytest.fixture(scope="session")
def gs_server() -> Iterator[str]:
    """The same of a server that speaks Google's protocol."""
    with _served(with_generations) as url:
        yield url


@contextlib.contextmanager
def _served(wrapped: Callable[[Any], Any]) -> Iterator[str]:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = wrapped(DomainDispatcherApplication(create_backend_app))
    one_at_a_time = threading.Lock()

    def app(environ: Any, start_response: Any) -> Any:
        """moto looks and then writes, which a store does in one step: so a request at a time."""
        with one_at_a_time:
            return list(store(environ, start_response))

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://bucketN`, empty, with the environment that reaches it (subprocesses too)."""
    for name, value in aws_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return f"s3://{_new_bucket(s3_server)}"


@pytest.fixture
def gs(gs_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """`gs://bucketN`, empty, with the environment that reaches it."""
    for name, value in google_environment(gs_server, tmp_path).items():
        monkeypatch.setenv(name, value)
    return f"gs://{_new_bucket(gs_server)}"


def _new_bucket(server: str) -> str:
    bucket = f"bucket{next(_NUMBERS)}"  # moto does not decode the %2D of a hyphen
    request = urllib.request.Request(f"{server}/{bucket}", method="PUT")
    with urllib.request.urlopen(request):
        return bucket


def aws_environment(endpoint: str) -> dict[str, str]:
    """The variables that obstore, polars and boto3 read."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
