"""Sentence embeddings of any server that speaks OpenAI's ``POST /embeddings``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from claimscore.pipeline.encoders.distinct import distinct
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.encoders.served.batches import Batches, stacked
from claimscore.pipeline.encoders.served.client import ServerClient
from claimscore.pipeline.encoders.served.tei import impatient, stripped, vectors
from claimscore.pipeline.encoders.served.tei_server import PROBE
from claimscore.pipeline.encoders.throughput import Metered, metered

#: Servers take 32 to 2,048 texts a request and do not say how many.
BATCH = 32
IN_FLIGHT = 8


class OpenAIEmbedder(Metered):
    """One model of such a server; see `Embedder`.

    The protocol tells neither the version of a model nor what it cuts, so results are not stored
    and no row says whether its text was read whole.
    """

    def __init__(self, client: ServerClient, model: str) -> None:
        self.info = ModelInfo(f"openai:{model}", "unknown", "unknown")
        self._client = client
        self._model = model
        self._batches = Batches(self._ask, size=BATCH, in_flight=IN_FLIGHT)
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
        rows = self._batches.rows(unique, [len(text) for text in unique.items], on_batch)
        return stacked(rows, 0)[unique.inverse]

    def _ask(self, texts: list[str], stop: threading.Event) -> NDArray[np.float32]:
        def read(answer: Any) -> NDArray[np.float32]:
            try:
                given = {int(item["index"]): item["embedding"] for item in answer["data"]}
            except (KeyError, TypeError):
                raise ValueError("this is no list of embeddings") from None
            if sorted(given) != list(range(len(texts))):
                raise ValueError(f"{len(texts)} texts were not answered with one embedding each")
            return vectors(
                [given[place] for place in range(len(texts))], len(texts), self.dimensions
            )

        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        return self._client.post("/embeddings", body, stop, read)


def load(client: ServerClient, model: str) -> OpenAIEmbedder:
    """Return the model of the server; `ConfigError` where it does not embed or is not reached."""
    with impatient(client):
        return OpenAIEmbedder(client, model)
