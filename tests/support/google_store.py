"""A Google store on loopback: what `object_store` asks of Google's XML API, answered by moto's S3.

Google's XML API speaks S3's protocol but for its conditions: each version of an object has a
`x-goog-generation`, and a PUT with `x-goog-if-generation-match` is done only if the object has this
generation, or with 0 only if there is none; else the answer is 412 (Google's "Request
preconditions"). Generations are whole numbers that grow.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

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
