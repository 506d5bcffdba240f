"""What a text-embeddings-inference server says of itself and of texts.

Its protocol (version 1.x): ``GET /info``, ``POST /predict``, ``/embed`` and ``/tokenize``; an error
is ``{"error", "error_type"}`` with 400, 413 or 422 (this input), 424 (inference), 429 (overloaded)
or 503; one input that is refused refuses its batch.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.encoders.served.client import ServerClient

T = TypeVar("T")

#: Requests at the same time, at most: enough to fill a server's own batches of 16,384 tokens.
IN_FLIGHT = 8

#: No tokenizer makes more tokens of a character: one where it is ASCII; beyond it, the longest
#: compatibility form has 18 characters of at most 3 bytes, and a token is at least a byte.
MOST_TOKENS = 54

PROBE = ("Nobody answered the phone.", "Service was poor.")
_GIVEN = re.compile(r"[Gg]iven:\s*(\d+)")


class TeiInfo(NamedTuple):
    """What ``/info`` tells: which model, how exactly, what it reads, and how it may be asked.

    ``revision`` is empty for a model from a folder of the server. ``labels`` is empty unless the
    model is a classifier, ``pooling`` unless it is an embedder.
    """

    model: str
    revision: str
    dtype: str
    limit: int
    batch: int
    in_flight: int
    version: str
    labels: Mapping[str, str]
    pooling: str


class TeiServer:
    """One server and its model; raises `ConfigError` where another takes their place."""

    def __init__(self, client: ServerClient) -> None:
        self.client = client
        self.info = self._read_info()
        client.identity = self._check_identity
        #: Tokens of the shortest text, special ones and the server's own prompt included.
        self.overhead, self.tokens_digest = self._probe_tokens()

    @property
    def facts(self) -> dict[str, str]:
        """What the numbers depend on besides model, revision and dtype."""
        return {
            "server": "text-embeddings-inference",
            "version": self.info.version,
            "limit": str(self.info.limit),
            "pooling": self.info.pooling,
            "tokens": self.tokens_digest,
        }

    def token_counts(
        self, texts: Sequence[str], *, special: bool, stop: threading.Event
    ) -> NDArray[np.int64]:
        """Return how many tokens each text has, ``[n]``.

        A text of more characters than the server looks at is refused by it; it has more tokens
        than the model reads, or so many characters less: ``limit + 1``.
        """
        counts = np.empty(len(texts), dtype=np.int64)
        size = self.info.batch
        for at in range(0, len(texts), size):
            part = list(texts[at : at + size])
            counts[at : at + size] = self._counts(part, special, stop)
        return counts

    def pair_overhead(self, stop: threading.Event) -> int:
        """Return how many special tokens a pair has, from what the server says of one too long."""
        texts = ["a", "a " * (self.info.limit + 8)]
        body = {"inputs": [texts], "truncate": False, "raw_scores": False}
        try:
            self.client.post("/predict", body, stop, lambda answer: answer)
        except RejectedError as exc:
            given = _GIVEN.search(str(exc))
            if given:
                counts = self.token_counts(texts, special=False, stop=stop)
                return int(given[1]) - int(counts.sum())
        raise ConfigError(
            f"{self.client.address} does not say how long a pair is, as text-embeddings-inference "
            "does: it could not be told what is cut"
        )

    def _counts(self, texts: list[str], special: bool, stop: threading.Event) -> list[int]:
        def read(answer: Any) -> list[int]:
            if not _is_lists(answer) or len(answer) != len(texts):
                raise ValueError(f"{len(texts)} texts were not tokenised to as many lists")
            return [len(tokens) for tokens in answer]

        body = {"inputs": texts, "add_special_tokens": special}
        try:
            return self.client.post("/tokenize", body, stop, read)
        except RejectedError:
            if len(texts) == 1:
                return [self.info.limit + 1]
            middle = len(texts) // 2
            first = self._counts(texts[:middle], special, stop)
            return first + self._counts(texts[middle:], special, stop)

    def _probe_tokens(self) -> tuple[int, str]:
        """Tokens of the shortest text; and a digest of those of a probe, which tells whether two
        servers put the same prompt before a text."""

        def read(answer: Any) -> tuple[int, str]:
            if not _is_lists(answer) or len(answer) != 2 or not all(answer):
                raise ValueError("two texts were not tokenised to as many lists")
            ids = [[int(token["id"]) for token in tokens] for tokens in answer]
            return len(ids[0]), hashlib.sha256(str(ids).encode()).hexdigest()[:12]

        body = {"inputs": ["a", PROBE[0]], "add_special_tokens": True}
        return self.client.post("/tokenize", body, threading.Event(), _reader(read))

    def _read_info(self) -> TeiInfo:
        return self.client.get("/info", threading.Event(), _reader(_info))

    def _check_identity(self) -> None:
        try:
            now = _reader(_info)(self.client.once("GET", "/info"))
        except ValueError:
            now = None
        if now is None or now[:4] != self.info[:4]:
            told = f"{now.model}@{now.revision or 'unknown'} in {now.dtype}" if now else "another"
            raise ConfigError(
                f"{self.client.address} serves {told} now; it was {self.info.model}"
                f"@{self.info.revision or 'unknown'} in {self.info.dtype} when this began"
            )


def most_tokens(text: str) -> int:
    """Return a number that the tokens of a text, without special ones, cannot exceed."""
    if text.isascii():
        return len(text) + 1
    beyond = sum(not character.isascii() for character in text)
    return len(text) + 1 + beyond * (MOST_TOKENS - 1)


def _info(answer: Any) -> TeiInfo:
    """``/info`` as a record; whatever it lacks raises (see `_reader`)."""
    kind, about = next(iter(answer["model_type"].items()))
    most = int(answer["max_concurrent_requests"])
    batch = min(int(answer["max_client_batch_size"]), most)
    found = TeiInfo(
        model=str(answer["model_id"]),
        revision=str(answer.get("model_sha") or ""),
        dtype=str(answer["model_dtype"]),
        limit=int(answer["max_input_length"]),
        batch=batch,
        in_flight=max(1, min(IN_FLIGHT, most // max(batch, 1))),
        version=str(answer.get("version", "")),
        labels=dict(about["id2label"]) if kind == "classifier" else {},
        pooling=str(about["pooling"]) if kind == "embedding" else "",
    )
    if found.limit < 1 or found.batch < 1:
        raise ValueError("its limits are not numbers from one on")
    return found


def _reader(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """``read``, whose answer is not what it should be in any way, as `ValueError`."""

    def reading(answer: Any) -> T:
        try:
            return read(answer)
        except (KeyError, TypeError, AttributeError, StopIteration) as exc:
            raise ValueError(f"this is no answer of text-embeddings-inference ({exc})") from None

    return reading


def _is_lists(answer: Any) -> bool:
    return isinstance(answer, list) and all(isinstance(item, list) for item in answer)
