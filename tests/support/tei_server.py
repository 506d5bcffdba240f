"""A text-embeddings-inference server of this machine: it answers as the real one documents.

Its model is arithmetic on digests, so that any test knows what is right: `probabilities`,
`vector`. Its tokens are words. A text with "POISON" in it is refused (422), one with "HEAVY" is
too large (413), one with "BROKEN" breaks the inference (424), always. `faults` go wrong once each,
in the order of the requests for results.
"""

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

LABELS = {"0": "CONTRADICTION", "1": "ENTAILMENT", "2": "NEUTRAL"}
SHA = "0123456789abcdef0123456789abcdef01234567"
DIMENSIONS = 5


def probabilities(premise: str, hypothesis: str) -> list[float]:
    """Entailment, neutral, contradiction of a pair."""
    digest = hashlib.sha256(f"{premise}\n{hypothesis}".encode()).digest()
    weights = np.frombuffer(digest[:3], dtype=np.uint8).astype(np.float64) + 1
    return [float(p) for p in weights / weights.sum()]


def vector(text: str) -> list[float]:
    """The embedding of a text; its length is not one."""
    digest = hashlib.sha256(text.encode()).digest()
    return [float(value) - 127.5 for value in digest[:DIMENSIONS]]


class Tei:
    """What the server is, what goes wrong, and what it was asked."""

    def __init__(self, *, embeds: bool = False) -> None:
        self.info: dict[str, Any] = {
            "model_id": "org/model",
            "model_sha": SHA,
            "model_dtype": "float16",
            "model_type": (
                {"embedding": {"pooling": "mean"}}
                if embeds
                else {"classifier": {"id2label": LABELS, "label2id": {}}}
            ),
            "max_concurrent_requests": 512,
            "max_input_length": 24,
            "max_client_batch_size": 4,
            "version": "1.9.3",
        }
        self.key: str | None = None
        self.prompt = ""
        self.faults: deque[Any] = deque()
        self.slow_s = 0.0
        self.retry_after = ""
        self.asked: list[tuple[str, Any]] = []
        self.authorizations: set[str | None] = set()
        self.address = ""
        self._lock = threading.Lock()

    @property
    def sizes(self) -> list[int]:
        """How many inputs each request for results had, as they came."""
        paths = ("/predict", "/embed")
        return [len(body["inputs"]) for path, body in self.asked if path in paths]

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    # -- what is answered: status, and JSON, bytes, or None to hang up

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/info":
            return 200, self.info
        if body is None:
            return 404, b"Not Found"
        with self._lock:
            self.asked.append((path, body))
            fault = self.faults.popleft() if self.faults and path != "/tokenize" else None
        if self.slow_s and path != "/tokenize":
            time.sleep(self.slow_s)
        if callable(fault):
            return 200, fault(self._results(path, body)[1])
        if fault is not None:
            return fault if isinstance(fault, tuple) else _error(fault, "overloaded")
        return self._results(path, body)

    def _results(self, path: str, body: Any) -> tuple[int, Any]:
        inputs = body.get("inputs", body.get("input"))
        if not inputs:
            return _error(400, "`inputs` cannot be empty")
        if len(inputs) > self.info["max_client_batch_size"]:
            return _error(422, f"batch size {len(inputs)} > maximum allowed batch size")
        for item in inputs:
            texts = [item] if isinstance(item, str) else item
            refusal = self._refusal(texts, truncate=body.get("truncate", True))
            if refusal:
                return refusal
        if path == "/predict":
            return 200, [self._prediction(*pair) for pair in inputs]
        if path == "/embed":
            assert body["normalize"] is False
            return 200, [vector(self._read(text)) for text in inputs]
        if path == "/tokenize":
            assert body["add_special_tokens"]
            return 200, [self._tokens(text) for text in inputs]
        if path == "/v1/embeddings":
            data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(inputs)]
            return 200, {"object": "list", "model": body["model"], "data": data[::-1]}
        return 404, b"Not Found"

    def _refusal(self, texts: Sequence[str], *, truncate: bool) -> Any:
        length = len(self.prompt.split()) + sum(len(t.split()) for t in texts) + 1 + len(texts)
        limit = self.info["max_input_length"]
        if not truncate and length > limit:
            return _error(422, f"`inputs` must have less than {limit} tokens. Given: {length}")
        for word, status in {"POISON": 422, "HEAVY": 413, "BROKEN": 424}.items():
            if any(word in text for text in texts):
                return _error(status, f"no {word} here")
        return None

    def _prediction(self, premise: str, hypothesis: str) -> list[dict[str, Any]]:
        """As the real one sorts it: the most probable first."""
        entailment, neutral, contradiction = probabilities(premise, hypothesis)
        scores = {"0": contradiction, "1": entailment, "2": neutral}
        names = self.info["model_type"]["classifier"]["id2label"]
        predictions = [{"score": scores[key], "label": names[key]} for key in names]
        return sorted(predictions, key=lambda one: -float(one["score"]))

    def _read(self, text: str) -> str:
        """What fits into the model."""
        return " ".join(text.split()[: self.info["max_input_length"] - 2])

    def _tokens(self, text: str) -> list[dict[str, Any]]:
        words = [*self.prompt.split(), *text.split()]
        named = [("[CLS]", True), *((w, False) for w in words), ("[SEP]", True)]
        return [
            {"id": len(word), "text": word, "special": is_special, "start": None, "stop": None}
            for word, is_special in named
        ]


def _error(status: int, message: str) -> tuple[int, Any]:
    return status, {"error": message, "error_type": "x"}


@contextmanager
def serving(tei: Tei, port: int = 0) -> Iterator[Tei]:
    """The server at work, at its `address`."""

    lines: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            lines.append(self.connection)

        def do_GET(self) -> None:
            self._reply(*self._answered(None))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._reply(*self._answered(body))

        def _answered(self, body: Any) -> tuple[int, Any]:
            given = self.headers["authorization"]
            tei.authorizations.add(given)
            if tei.key and given != f"Bearer {tei.key}":
                return 401, f"who is {given}?".encode()
            return tei.answer(self.path, body)

        def _reply(self, status: int, answer: Any) -> None:
            if answer is None:  # the line breaks
                self.close_connection = True
                self.connection.shutdown(2)
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            if status != 200 and tei.retry_after:
                self.send_header("retry-after", tei.retry_after)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    tei.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield tei
    finally:
        server.shutdown()
        server.server_close()
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        thread.join()
