"""NLI and sentence embeddings of a text-embeddings-inference server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError, OutageError, RejectedError
from claimscore.pipeline.encoders.distinct import Pair, distinct, distinct_pairs
from claimscore.pipeline.encoders.protocols import (
    LABEL_NAMES,
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    label_columns,
)
from claimscore.pipeline.encoders.served.batches import Batches, stacked
from claimscore.pipeline.encoders.served.client import ServerClient
from claimscore.pipeline.encoders.served.tei_server import PROBE, TeiServer, most_tokens
from claimscore.pipeline.encoders.throughput import Metered, metered

#: How long a server that has just been started may keep a run from beginning.
PATIENCE_S = 10.0

#: Scores of a pair add up to 1; half precision is off by less.
SUM_TOLERANCE = 1e-2


class TeiClassifier(Metered):
    """Probabilities of entailment, neutral and contradiction by ``/predict``; `PairClassifier`.

    Guarantees: rows in the order of the input, each distinct pair asked once, scores by the names
    of their labels, and a row only of three finite numbers that add up to one.
    """

    def __init__(self, server: TeiServer) -> None:
        if not server.info.labels:
            raise ConfigError(f"{server.info.model} at {server.client.address} is no classifier")
        label_columns(server.info.model, server.info.labels)
        self.server = server
        self.info = _model_info(server)
        self.limit = server.info.limit
        stop = threading.Event()
        self._batches = Batches(self._ask, size=server.info.batch, in_flight=server.info.in_flight)
        self.probe = self._ask([PROBE], stop)[0]
        self._overhead = server.pair_overhead(stop)

    @metered()
    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for pairs the server refuses."""
        unique = distinct_pairs(pairs).pairs
        lengths = [len(first) + len(second) for first, second in unique.items]
        self.server.client.doubt()
        rows = self._batches.rows(unique, lengths, on_batch)
        return stacked(rows, len(NLI_LABELS))[unique.inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the server's model reads, ``[n]``.

        The server is asked for the tokens of texts that may be too many, and only of those.
        """
        unique = distinct_pairs(pairs)
        most = np.array([most_tokens(text) for text in unique.texts], dtype=np.int64)
        room = self.limit - self._overhead
        may_be = most[unique.places].sum(axis=1) > room
        asked = np.unique(unique.places[may_be])
        texts = [unique.texts[place] for place in asked.tolist()]
        counts = np.zeros(len(most), dtype=np.int64)
        counts[asked] = self.server.token_counts(texts, special=False, stop=threading.Event())
        cut: NDArray[np.bool_] = may_be & (counts[unique.places].sum(axis=1) > room)
        return cut[unique.pairs.inverse]

    def _ask(self, pairs: list[Pair], stop: threading.Event) -> NDArray[np.float32]:
        body = {"inputs": [list(pair) for pair in pairs], "truncate": True, "raw_scores": False}
        return self.server.client.post(
            "/predict", body, stop, lambda answer: _probabilities(answer, len(pairs))
        )


class PinnedTeiClassifier(TeiClassifier):
    """One whose exact version the server knows, so that its results can be stored."""

    @property
    def facts(self) -> Mapping[str, str]:
        return self.server.facts


class TeiEmbedder(Metered):
    """Sentence embeddings by ``/embed``, as the server pools them; see `Embedder`."""

    def __init__(self, server: TeiServer) -> None:
        if not server.info.pooling:
            raise ConfigError(f"{server.info.model} at {server.client.address} is no embedder")
        self.server = server
        self.info = _model_info(server)
        self.limit = server.info.limit
        self._batches = Batches(self._ask, size=server.info.batch, in_flight=server.info.in_flight)
        self.dimensions = 0
        self.dimensions = self._ask([PROBE[0]], threading.Event()).shape[1]

    @metered()
    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts; no texts give ``[0, 0]``.

        Raises `ValueError` for a blank text, `RejectedItemsError` for those the server refuses.
        """
        unique = distinct(stripped(texts))
        self.server.client.doubt()
        rows = self._batches.rows(unique, [len(text) for text in unique.items], on_batch)
        return stacked(rows, 0)[unique.inverse]

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether it is longer than the server's model reads, ``[n]``."""
        unique = distinct([text.strip() for text in texts])
        most = np.array([most_tokens(text) for text in unique.items], dtype=np.int64)
        asked = np.flatnonzero(most + self.server.overhead > self.limit)
        cut = np.zeros(len(most), dtype=bool)
        given = [unique.items[place] for place in asked.tolist()]
        counts = self.server.token_counts(given, special=True, stop=threading.Event())
        cut[asked] = counts > self.limit
        return cut[unique.inverse]

    def _ask(self, texts: list[str], stop: threading.Event) -> NDArray[np.float32]:
        body = {"inputs": texts, "truncate": True, "normalize": False}
        return self.server.client.post(
            "/embed", body, stop, lambda answer: vectors(answer, len(texts), self.dimensions)
        )


class PinnedTeiEmbedder(TeiEmbedder):
    """One whose exact version the server knows, so that its results can be stored."""

    @property
    def facts(self) -> Mapping[str, str]:
        return self.server.facts


def load_classifier(client: ServerClient) -> TeiClassifier:
    """Return the server's NLI model; `ConfigError` where it has none or cannot be reached."""
    with impatient(client):
        server = TeiServer(client)
        return (PinnedTeiClassifier if server.info.revision else TeiClassifier)(server)


def load_embedder(client: ServerClient) -> TeiEmbedder:
    """Return the server's sentence encoder; `ConfigError` as `load_classifier`."""
    with impatient(client):
        server = TeiServer(client)
        return (PinnedTeiEmbedder if server.info.revision else TeiEmbedder)(server)


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


def stripped(texts: Sequence[str]) -> list[str]:
    """The texts without space around them; `ValueError` for a blank one."""
    found = [text.strip() for text in texts]
    if "" in found:
        raise ValueError(f"text {found.index('')} is empty: it has no embedding")
    return found


def vectors(answer: Any, n: int, dimensions: int) -> NDArray[np.float32]:
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


def _model_info(server: TeiServer) -> ModelInfo:
    info = server.info
    return ModelInfo(f"tei:{info.model}", info.revision or "unknown", info.dtype)
