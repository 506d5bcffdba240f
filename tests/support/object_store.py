"""A store on loopback (moto's S3), one a test process, and a fresh bucket for each test."""

import itertools
import logging
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import obstore
import pytest
from obstore.store import from_url

KEY, SECRET = "test-key-id", "test-secret-value"

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The base URL of an S3 server; it ends with the tests."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = DomainDispatcherApplication(create_backend_app)
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


def _new_bucket(server: str) -> str:
    bucket = f"bucket{next(_NUMBERS)}"  # moto does not decode the %2D of a hyphen
    request = urllib.request.Request(f"{server}/{bucket}", method="PUT")
    with urllib.request.urlopen(request):
        return bucket


def put(address: str, data: bytes) -> None:
    """Put an object at `s3://bucketN/name`."""
    bucket, _, name = address.removeprefix("s3://").partition("/")
    obstore.put(from_url(f"s3://{bucket}"), name, data)


def aws_environment(endpoint: str) -> dict[str, str]:
    """The variables that obstore, polars and boto3 read."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
