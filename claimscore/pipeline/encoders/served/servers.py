"""The models of servers: text-embeddings-inference (TEI), and OpenAI's ``POST /embeddings``.

TEI's protocol (1.x): ``GET /info``, ``POST /predict``, ``/embed`` and ``/tokenize``; an error is
``{"error", "error_type"}`` with 400, 413 or 422 (this input), 424 (inference), 429 (overloaded)
or 503; one input that is refused refuses its batch. The protocol of OpenAI tells neither the
version of a model nor what it cuts.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError, OutageError, RejectedError
from claimscore.pipeline.encoders.distinct import (
    Pair,
    distinct,
    distinct_pairs,
    distinct_texts,
)
from claimscore.pipeline.encoders.protocols import (
    LABEL_NAMES,
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    label_columns,
)
from claimscore.pipeline.encoders.served.client import BatchesInFlight, ServerClient

T = TypeVar("T")

#: How long a server that has just been started may keep a run from beginning.
PATIENCE_S = 10.0

#: Requests at the same time, at most: enough to fill a server's own batches of 16,384 tokens.
IN_FLIGHT = 8

#: Texts a request of OpenAI's protocol: servers take 32 to 2,048 and do not say how many.
OPENAI_BATCH = 32

#: Scores of a pair add up to 1; half precision is off by less.
SUM_TOLERANCE = 1e-2

#: No tokenizer makes more tokens of a character: one where it is ASCII; beyond it, the longest
#: compatibility form has 18 characters of at most 3 bytes, and a token is at least a byte.
MOST_TOKENS = 54

PROBE = ("Nobody answered the phone.", "Service was poor.")
_GIVEN = re.compile(r"[Gg]iven:\s*(\d+)")


class TeiInfo(NamedTuple):
    """The answer of ``/info``: the model, its exact version, its inputs and its limits.

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
        """The facts besides model, revision and dtype that change the numbers."""
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
            self.client.ask("/predict", stop, lambda answer: answer, body)
        except RejectedError as exc:
            given = _GIVEN.search(str(exc))
            if given:
                counts = self.token_counts(texts, special=False, stop=stop)
                return int(given[1]) - int(counts.sum())
        raise ConfigError(
            f"{self.client.address} does not say how long a pair is, as text-embeddings-inference "
            "does: nothing could say which pairs are cut"
        )

    def _counts(self, texts: list[str], special: bool, stop: threading.Event) -> list[int]:
        def read(answer: Any) -> list[int]:
            if not _is_lists(answer) or len(answer) != len(texts):
                raise ValueError(f"{len(texts)} texts were not tokenised to as many lists")
            return [len(tokens) for tokens in answer]

        body = {"inputs": texts, "add_special_tokens": special}
        try:
            return self.client.ask("/tokenize", stop, read, body)
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
        return self.client.ask("/tokenize", threading.Event(), _reader(read), body)

    def _read_info(self) -> TeiInfo:
        return self.client.ask("/info", threading.Event(), _reader(_info))

    def _check_identity(self) -> None:
        try:
            now = _reader(_info)(self.client.once("/info"))
        except ValueError:
            now = None
        if now is None or now[:4] != self.info[:4]:
            told = f"{now.model}@{now.revision or 'unknown'} in {now.dtype}" if now else "another"
            raise ConfigError(
                f"{self.client.address} serves {told} now; it was {self.info.model}"
                f"@{self.info.revision or 'unknown'} in {self.info.dtype} when this began"
            )


class _TeiModel:
    """The base of both kinds of a server's models. ``facts`` change the numbers; None
    where the server does not know its model's exact version, so that no result can be stored."""

    def __init__(self, server: TeiServer) -> None:
        info = server.info
        self.server, self.client = server, server.client
        self.info = ModelInfo(f"tei:{info.model}", info.revision or "unknown", info.dtype)
        self.limit = info.limit
        self.facts: Mapping[str, str] | None = server.facts if info.revision else None

    def _cut(
        self, texts: Sequence[str], places: NDArray[np.int64], room: int, *, special: bool = False
    ) -> NDArray[np.bool_]:
        """Which items ``[n]``, each of the texts at its ``places``, have more than ``room`` tokens.

        The server is asked for the tokens of texts that may be too many, and only of those.
        """
        most = np.array([most_tokens(text) for text in texts], dtype=np.int64)
        may_be = most[places].sum(axis=1) > room - (self.server.overhead if special else 0)
        asked = np.unique(places[may_be])
        given, counts = [texts[place] for place in asked.tolist()], np.zeros_like(most)
        counts[asked] = self.server.token_counts(given, special=special, stop=threading.Event())
        cut: NDArray[np.bool_] = may_be & (counts[places].sum(axis=1) > room)
        return cut


class TeiClassifier(_TeiModel):
    """Probabilities of entailment, neutral and contradiction by ``/predict``; `Verifier`.

    Guarantees: rows in the order of the input, each distinct pair asked once, scores by the names
    of their labels, and a row only of three finite numbers that add up to one.
    """

    kind = "nli"
    threshold = None

    def __init__(self, server: TeiServer) -> None:
        super().__init__(server)
        if not server.info.labels:
            raise ConfigError(f"{server.info.model} at {server.client.address} is no classifier")
        label_columns(server.info.model, server.info.labels)
        self._batches = BatchesInFlight(
            self._ask, size=server.info.batch, in_flight=server.info.in_flight
        )
        self.probe = self._ask([PROBE], threading.Event())[0]
        self._overhead = server.pair_overhead(threading.Event())

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for pairs the server refuses."""
        unique = distinct_pairs(pairs).pairs
        lengths = [len(first) + len(second) for first, second in unique.items]
        self.client.doubt()
        rows = self._batches.rows(unique, lengths, on_batch)
        return _stacked(rows, len(NLI_LABELS))[unique.inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the server's model reads, ``[n]``."""
        unique = distinct_pairs(pairs)
        room = self.limit - self._overhead
        return self._cut(unique.texts, unique.places, room)[unique.pairs.inverse]

    def _ask(self, pairs: list[Pair], stop: threading.Event) -> NDArray[np.float32]:
        body = {"inputs": [list(pair) for pair in pairs], "truncate": True, "raw_scores": False}
        return self.client.ask(
            "/predict", stop, lambda answer: _probabilities(answer, len(pairs)), body
        )


class _ServedEmbedder:
    """Vectors of texts by batches in flight; ``dimensions`` is the length of a vector."""

    info: ModelInfo
    client: ServerClient
    _batches: BatchesInFlight[str]
    dimensions = 0

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts; no texts give ``[0, 0]``.

        Raises `ValueError` for a blank text, `RejectedItemsError` for those the server refuses.
        """
        unique = distinct_texts(texts)
        self.client.doubt()
        rows = self._batches.rows(unique, [len(text) for text in unique.items], on_batch)
        return _stacked(rows, 0)[unique.inverse]


class TeiEmbedder(_TeiModel, _ServedEmbedder):
    """Sentence embeddings by ``/embed``, as the server pools them; see `Embedder`."""

    def __init__(self, server: TeiServer) -> None:
        super().__init__(server)
        if not server.info.pooling:
            raise ConfigError(f"{server.info.model} at {server.client.address} is no embedder")
        self._batches = BatchesInFlight(
            self._ask, size=server.info.batch, in_flight=server.info.in_flight
        )
        self.dimensions = self._ask([PROBE[0]], threading.Event()).shape[1]

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether it is longer than the server's model reads, ``[n]``."""
        unique = distinct([text.strip() for text in texts])
        places = np.arange(len(unique.items))[:, None]
        return self._cut(unique.items, places, self.limit, special=True)[unique.inverse]

    def _ask(self, texts: list[str], stop: threading.Event) -> NDArray[np.float32]:
        body = {"inputs": texts, "truncate": True, "normalize": False}
        return self.client.ask(
            "/embed", stop, lambda answer: _vectors(answer, len(texts), self.dimensions), body
        )


class OpenAIEmbedder(_ServedEmbedder):
    """One model of a server of OpenAI's protocol; see `Embedder`.

    Its results are not stored, and no row says whether its text was read whole.
    """

    def __init__(self, client: ServerClient, model: str) -> None:
        self.info = ModelInfo(f"openai:{model}", "unknown", "unknown")
        self.client = client
        self._model = model
        self._batches = BatchesInFlight(self._ask, size=OPENAI_BATCH, in_flight=IN_FLIGHT)
        self.dimensions = self._ask([PROBE[0]], threading.Event()).shape[1]

    def _ask(self, texts: list[str], stop: threading.Event) -> NDArray[np.float32]:
        def read(answer: Any) -> NDArray[np.float32]:
            try:
                given = {int(item["index"]): item["embedding"] for item in answer["data"]}
            except (KeyError, TypeError):
                raise ValueError("this is no list of embeddings") from None
            if sorted(given) != list(range(len(texts))):
                raise ValueError(f"{len(texts)} texts were not answered with one embedding each")
            return _vectors(
                [given[place] for place in range(len(texts))], len(texts), self.dimensions
            )

        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        return self.client.ask("/embeddings", stop, read, body)


def load_tei(client: ServerClient, role: str) -> TeiClassifier | TeiEmbedder:
    """Return a TEI server's model for a role; `ConfigError` where it has none or is not reached."""
    with impatient(client):
        return (TeiEmbedder if role == "embedder" else TeiClassifier)(TeiServer(client))


def load_openai(client: ServerClient, model: str) -> OpenAIEmbedder:
    """Return a model of the server; `ConfigError` where it does not embed or is not reached."""
    with impatient(client):
        return OpenAIEmbedder(client, model)


@contextlib.contextmanager
def impatient(client: ServerClient) -> Iterator[None]:
    """Within, a server that does not answer is soon given up; all that it refuses is one line."""
    max_outage_s = client.max_outage_s
    client.max_outage_s = min(max_outage_s, PATIENCE_S)
    try:
        yield
    except OutageError as exc:
        said = str(exc.__context__ or exc)
        raise ConfigError(f"{said}; is the server started, and this its address?") from None
    except RejectedError as exc:
        raise ConfigError(f"{client.address}: {exc}") from None
    finally:
        client.max_outage_s = max_outage_s


def _stacked(rows: list[NDArray[np.float32]], width: int) -> NDArray[np.float32]:
    """The rows as one array ``[n, d]``; ``[0, width]`` where there are none."""
    return np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)


def _vectors(answer: Any, n: int, dimensions: int) -> NDArray[np.float32]:
    """``[n, d]`` of an answer; `ValueError` unless all are finite, and of as many dimensions as
    before (0: nothing was before)."""
    try:
        found = np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError("the embeddings are no rows of numbers") from None
    if found.ndim != 2 or len(found) != n or not found.shape[1]:
        raise ValueError(f"{n} texts were answered with numbers of shape {list(found.shape)}")
    if dimensions and found.shape[1] != dimensions:
        raise ValueError(f"an embedding has {found.shape[1]} numbers; before it were {dimensions}")
    if not np.isfinite(found).all():
        raise ValueError("an embedding has a number that is not finite")
    return found


def _probabilities(answer: Any, n: int) -> NDArray[np.float32]:
    """``[n, 3]`` of ``[[{"label", "score"}, ...], ...]`` by the names of the labels."""
    if not isinstance(answer, list) or len(answer) != n:
        raise ValueError(f"{n} pairs were not answered with as many predictions")
    found = np.full((n, len(NLI_LABELS)), np.nan)
    try:
        for row, predictions in zip(found, answer, strict=True):
            if len(predictions) != len(NLI_LABELS):
                raise ValueError(f"a pair has {len(predictions)} labels")
            for one in predictions:
                name = LABEL_NAMES.get(str(one["label"]).strip().lower(), "")
                row[NLI_LABELS.index(name)] = one["score"]
    except (TypeError, KeyError):
        raise ValueError("a prediction is no list of labels with their scores") from None
    except ValueError as exc:
        raise ValueError(f"a prediction has not the three labels of NLI once each: {exc}") from None
    fine = (found >= 0).all() and bool(np.all(np.abs(found.sum(axis=1) - 1) < SUM_TOLERANCE))
    if not fine:
        raise ValueError("the scores of a pair are not three probabilities")
    return found.astype(np.float32)


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
