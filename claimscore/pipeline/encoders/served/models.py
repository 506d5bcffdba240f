"""The models of servers: text-embeddings-inference (TEI), and OpenAI's ``POST /embeddings``.

TEI's protocol (1.x): ``GET /info``, ``POST /predict``, ``/embed`` and ``/tokenize``; an error is
``{"error", "error_type"}`` with 400, 413 or 422 (this input), 424 (inference), 429 (overloaded)
or 503; one input that is refused refuses its batch. The protocol of OpenAI tells neither the
version of a model nor what it cuts.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError, OutageError, RejectedError, TransientError
from claimscore.pipeline.encoders.batching import longest_first
from claimscore.pipeline.encoders.distinct import Distinct, Pair, distinct_pairs, distinct_texts
from claimscore.pipeline.encoders.protocols import (
    LABEL_NAMES,
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    RejectedItemsError,
    label_columns,
)
from claimscore.pipeline.encoders.served.client import Session, in_session
from claimscore.pipeline.llm.providers.server import ServerProvider

ItemT = TypeVar("ItemT", bound=Hashable)

#: How long a server that has just been started may keep a run from beginning.
PATIENCE_S = 10.0

#: Requests at the same time, at most: enough to fill a server's own batches of 16,384 tokens.
IN_FLIGHT = 8

#: Texts a request of OpenAI's protocol: servers take 32 to 2,048 and do not say how many.
OPENAI_BATCH = 32

#: Scores of a pair add up to 1; half precision is off by less.
SUM_TOLERANCE = 1e-2

PROBE = ("Nobody answered the phone.", "Service was poor.")


class ServedModel(Generic[ItemT]):
    """A model behind a server, which gives a row of numbers for each item.

    Made once it has answered a probe; `ConfigError` where the server cannot be reached or its model
    is not one of the role. ``facts`` change the numbers; None where the server does not know its
    model's exact version, so that no result can be stored. ``tells_cuts``: the server can refuse
    what it would read in part. ``probe`` is its row for the ``probed`` item, of so many
    ``dimensions``.
    """

    info: ModelInfo
    probe: NDArray[np.float32]
    probed: ItemT
    dimensions = 0
    facts: Mapping[str, str] | None = None
    limit: int | None = None
    size, in_flight = OPENAI_BATCH, IN_FLIGHT
    tells_cuts = False

    def __init__(self, connect: Callable[[], ServerProvider], max_outage_s: float) -> None:
        self.address = connect().base_url
        self._connect = connect
        self._max_outage_s = min(max_outage_s, PATIENCE_S)
        self._cut: dict[ItemT, bool] = {}
        try:
            in_session(self._session, self._load)
        except OutageError as exc:
            message = f"{exc.__context__ or exc}; is the server started, and this its address?"
            raise ConfigError(message) from None
        except RejectedError as exc:
            raise ConfigError(str(exc)) from None
        self._max_outage_s = max_outage_s

    def _session(self) -> Session:
        return Session(self._connect(), self._look, self._max_outage_s)

    async def _look(self, session: Session) -> None:
        """See `Session`."""
        raise NotImplementedError

    async def _load(self, session: Session) -> None:
        """Ask the server a probe."""
        self.probe = (await self._ask(session, [self.probed], cut=True))[0]
        self.dimensions = len(self.probe)

    async def _ask(self, session: Session, items: list[ItemT], *, cut: bool) -> NDArray[np.float32]:
        """A row for each item, which may be ``cut``; `RejectedError` where the batch is refused."""
        raise NotImplementedError

    def _rows(
        self, unique: Distinct[ItemT], lengths: Sequence[int], on_batch: OnBatch | None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]``, asking about each distinct item once, the longest first.

        A batch that is refused is asked in halves, until items at fault are alone; these once more
        together, to be read in part. ``on_batch`` hears the number of inputs done now and then;
        when it raises, no more is sent. Raises `RejectedItemsError` naming the inputs that the
        server refused for one reason.
        """
        items, counts, n_done = unique.items, unique.counts, 0
        rows: dict[int, NDArray[np.float32]] = {}
        was_cut: dict[ItemT, bool] = {}
        refused: dict[int, RejectedError] = {}

        async def take(
            session: Session, todo: deque[list[int]], left: list[int], cut: bool
        ) -> None:
            nonlocal n_done
            while todo:
                places = todo.popleft()
                middle, asked = len(places) // 2, [items[place] for place in places]
                try:
                    rows.update(zip(places, await self._ask(session, asked, cut=cut), strict=True))
                except RejectedError as exc:
                    if middle:
                        todo.extendleft([places[middle:], places[:middle]])
                        continue
                    if not cut and exc.kind != "server_error":
                        left += places
                        continue
                    refused[places[0]] = exc
                was_cut.update(dict.fromkeys(asked, cut))
                n_done += int(counts[places].sum())

        async def work(session: Session) -> None:
            left = longest_first(lengths).tolist()
            for cut in (False, True) if self.tells_cuts else (True,):
                todo = deque(left[at : at + self.size] for at in range(0, len(left), self.size))
                left = []
                async with anyio.create_task_group() as group:
                    for _ in range(self.in_flight):
                        group.start_soon(take, session, todo, left, cut)

        def tell() -> None:
            if on_batch is not None:
                on_batch(n_done)

        if items:
            in_session(self._session, work, tell)
        tell()
        if refused:
            first = refused[min(refused)]
            same = [place for place, error in refused.items() if str(error) == str(first)]
            raise RejectedItemsError(str(first), first.kind, unique.positions(*same)) from first
        self._cut = was_cut
        values = [rows[place] for place in range(len(items))]
        return np.stack(values)[unique.inverse] if values else np.zeros((0, 0), dtype=np.float32)

    def _were_cut(self, unique: Distinct[ItemT]) -> NDArray[np.bool_]:
        """Return ``[n]``: which items the server could read in part only; those that were not in
        the last call are asked about."""
        if not self._cut.keys() >= set(unique.items):
            self._rows(unique, [1] * len(unique.items), None)
        return np.array([self._cut[item] for item in unique.items], dtype=bool)[unique.inverse]


class TeiInfo(NamedTuple):
    """The answer of ``/info``. ``revision`` is empty for a model from a folder of the server,
    ``labels`` unless it is a classifier, ``pooling`` unless it is an embedder."""

    model: str
    revision: str
    dtype: str
    limit: int
    batch: int
    most: int
    version: str
    labels: Mapping[str, str]
    pooling: str

    @classmethod
    def read(cls, answer: Any) -> TeiInfo:
        """``/info`` as a record; `ValueError`, `KeyError` or the like for what it lacks."""
        kind, about = next(iter(answer["model_type"].items()))
        numbers = "max_input_length", "max_client_batch_size", "max_concurrent_requests"
        limit, batch, most = (int(answer[name]) for name in numbers)
        if min(limit, batch, most) < 1:
            raise ValueError("its limits are not numbers from one on")
        names = str(answer["model_id"]), str(answer.get("model_sha") or ""), answer["model_dtype"]
        labels = dict(about["id2label"]) if kind == "classifier" else {}
        pooling = str(about["pooling"]) if kind == "embedding" else ""
        version = str(answer.get("version", ""))
        return cls(*names, limit, batch, most, version, labels, pooling)

    def __str__(self) -> str:
        return f"{self.model}@{self.revision or 'unknown'} in {self.dtype}"


class _TeiModel(ServedModel[ItemT]):
    """The base of both kinds of TEI's models; what they are called, and what ``/info`` says of
    such a model alone."""

    tells_cuts = True
    about: TeiInfo
    what: str
    trait: str

    async def _look(self, session: Session) -> None:
        about = await session.once("/info", TeiInfo.read)
        known = self.__dict__.setdefault("about", about)
        if about[:4] != known[:4]:
            raise ConfigError(f"{self.address} serves {about} now; it was {known} when this began")

    async def _load(self, session: Session) -> None:
        # a digest of the tokens tells whether two servers put the same prompt before a text
        probe = {"inputs": [PROBE[0]], "add_special_tokens": True}
        tokens = await session.ask("/tokenize", _digest, probe)
        about = self.about  # which the session has looked at
        if not getattr(about, self.trait):
            raise ConfigError(f"{about.model} at {self.address} is no {self.what}")
        if about.labels:
            label_columns(about.model, about.labels)
        self.info = ModelInfo(f"tei:{about.model}", about.revision or "unknown", about.dtype)
        self.limit = about.limit
        self.size = min(about.batch, about.most)
        self.in_flight = max(1, min(IN_FLIGHT, about.most // self.size))
        if about.revision:
            named = {"version": about.version, "limit": str(about.limit), "pooling": about.pooling}
            self.facts = {"server": "text-embeddings-inference", "tokens": tokens, **named}
        await super()._load(session)


class TeiClassifier(_TeiModel[Pair]):
    """Probabilities of entailment, neutral and contradiction by ``/predict``; `Verifier`.

    Guarantees: rows in the order of the input, each distinct pair asked once, scores by the names
    of their labels, and a row only of three finite numbers that add up to one.
    """

    kind = "nli"
    threshold = None
    what, trait, probed = "classifier", "labels", PROBE

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for pairs the server refuses."""
        unique = distinct_pairs(pairs).pairs
        lengths = [len(first) + len(second) for first, second in unique.items]
        return self._rows(unique, lengths, on_batch).reshape(-1, len(NLI_LABELS))

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether the server could read it in part only, ``[n]``."""
        return self._were_cut(distinct_pairs(pairs).pairs)

    async def _ask(self, session: Session, items: list[Pair], *, cut: bool) -> NDArray[np.float32]:
        body = {"inputs": [list(pair) for pair in items], "truncate": cut, "raw_scores": False}
        return await session.ask("/predict", lambda given: _probabilities(given, len(items)), body)


class ServedEmbedder(ServedModel[str]):
    """Vectors of texts; see `Embedder`."""

    probed = PROBE[0]

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts; no texts give ``[0, 0]``.

        Raises `ValueError` for a blank text, `RejectedItemsError` for those the server refuses.
        """
        unique = distinct_texts(texts)
        return self._rows(unique, [len(text) for text in unique.items], on_batch)


class TeiEmbedder(_TeiModel[str], ServedEmbedder):
    """Sentence embeddings by ``/embed``, as the server pools them."""

    what, trait = "embedder", "pooling"

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether the server could read it in part only, ``[n]``."""
        return self._were_cut(distinct_texts(texts))

    async def _ask(self, session: Session, items: list[str], *, cut: bool) -> NDArray[np.float32]:
        body, n = {"inputs": items, "truncate": cut, "normalize": False}, len(items)
        return await session.ask("/embed", lambda given: _vectors(given, n, self.dimensions), body)


class EmbeddingsModel(ServedEmbedder):
    """One model of a server of OpenAI's protocol, called ``FAMILY:MODEL``.

    Its results are not stored, and no row says whether its text was read whole.
    """

    def __init__(
        self, name: str, connect: Callable[[], ServerProvider], max_outage_s: float
    ) -> None:
        self.info = ModelInfo(name, "unknown", "unknown")
        super().__init__(connect, max_outage_s)

    async def _look(self, session: Session) -> None:
        if (await session.get("/models")).status >= 500:
            raise TransientError(f"{self.address} does not answer", "connect")

    async def _ask(self, session: Session, items: list[str], *, cut: bool) -> NDArray[np.float32]:
        def read(answer: Any) -> NDArray[np.float32]:
            rows, n = {int(one["index"]): one["embedding"] for one in answer["data"]}, len(items)
            if sorted(rows) != list(range(n)):
                raise ValueError(f"{n} texts were not answered with one embedding each")
            return _vectors([rows[place] for place in range(n)], n, self.dimensions)

        name = self.info.model.partition(":")[2]
        body = {"model": name, "input": items, "encoding_format": "float"}
        return await session.ask("/embeddings", read, body)


def _digest(answer: Any) -> str:
    """Of the tokens of one text."""
    (tokens,) = answer
    ids = [int(token["id"]) for token in tokens]
    return hashlib.sha256(str(ids).encode()).hexdigest()[:12]


def _vectors(answer: Any, n: int, dimensions: int) -> NDArray[np.float32]:
    """``[n, d]`` of an answer; `ValueError` unless all are finite, and of as many dimensions as
    before (0: nothing was before)."""
    try:
        vectors = np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError("the embeddings are no rows of numbers") from None
    if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]:
        raise ValueError(f"{n} texts were answered with numbers of shape {list(vectors.shape)}")
    if dimensions not in (0, vectors.shape[1]):
        raise ValueError(f"an embedding has {vectors.shape[1]} numbers, not {dimensions}")
    if not np.isfinite(vectors).all():
        raise ValueError("an embedding has a number that is not finite")
    return vectors


def _probabilities(answer: Any, n: int) -> NDArray[np.float32]:
    """``[n, 3]`` of ``[[{"label", "score"}, ...], ...]`` by the names of the labels."""
    if not isinstance(answer, list) or len(answer) != n:
        raise ValueError(f"{n} pairs were not answered with as many predictions")
    rows = [
        {LABEL_NAMES.get(str(one["label"]).strip().lower()): one["score"] for one in predictions}
        for predictions in answer
    ]
    if any(len(p) != 3 or set(row) != set(NLI_LABELS) for p, row in zip(answer, rows, strict=True)):
        raise ValueError("a prediction has not the three labels of NLI once each")
    values = np.array([[row[label] for label in NLI_LABELS] for row in rows], dtype=np.float64)
    if not ((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) < SUM_TOLERANCE).all()):
        raise ValueError("the scores of a pair are not three probabilities")
    return values.astype(np.float32)
