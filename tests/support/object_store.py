"""Stores on loopback (moto's S3, and Google's protocol over it), one of each a test process, and a
fresh bucket for each test.

Google's XML API speaks S3's protocol but for its conditions: each version of an object has a
`x-goog-generation`, and a PUT with `x-goog-if-generation-match` is done only if the object has this
generation, or with 0 only if there is none; else the answer is 412 (Google's "Request
preconditions"). Generations are whole numbers that grow.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

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


_CONDITION = "HTTP_X_GOOG_IF_GENERATION_MATCH"
_REFUSED = b"<Error><Code>PreconditionFailed</Code></Error>"
_SOMEBODY = (
    "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=x, Signature=x"
)
_OBJECT = 2  # parts of the path /bucket/object


def with_generations(s3: Callable[..., Iterable[bytes]]) -> Callable[..., list[bytes]]:
    """The app with generations; it must be called for one request at a time."""
    generations: dict[str, int] = {}
    numbers = itertools.count(1_700_000_000_000_000)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        condition = environ.pop(_CONDITION, None)
        if condition is not None and int(condition) != generations.get(path, 0):
            start_response("412 Precondition Failed", [("Content-Length", str(len(_REFUSED)))])
            return [_REFUSED]
        environ["HTTP_AUTHORIZATION"] = _SOMEBODY
        query = environ.get("QUERY_STRING", "")
        is_object = len(path.strip("/").split("/", 1)) == _OBJECT

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if is_object and status.startswith("2"):
                completed = method == "POST" and "uploadId=" in query
                if completed or (method == "PUT" and "partNumber=" not in query):
                    generations[path] = next(numbers)
                elif method == "DELETE":
                    generations.pop(path, None)
                if path in generations:
                    headers = [*headers, ("x-goog-generation", str(generations[path]))]
            return start_response(status, headers, *more)

        return list(s3(environ, start))

    return app


def google_environment(endpoint: str, folder: Path) -> dict[str, str]:
    """A service account's file that names another server and asks for no login."""
    path = folder / "service-account.json"
    account = {"gcs_base_url": endpoint, "disable_oauth": True}
    account |= {"client_email": "", "private_key": "", "private_key_id": ""}
    path.write_text(json.dumps(account))
    return {"GOOGLE_SERVICE_ACCOUNT": str(path), "GOOGLE_ALLOW_HTTP": "true"}
