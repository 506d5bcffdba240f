"""Served models of the tests, what they answer, and waits that no test waits for."""

from typing import Any

import numpy as np
import pytest
from tenacity import wait_random_exponential

from claimscore import retry
from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.served import models
from tests.support.tei_server import Tei, probabilities, vector

PAIRS = [(f"The room {i % 9} was clean.", f"Nobody {i} was there.") for i in range(30)]
TEXTS = [f"The room {i} was clean." for i in range(30)]


def classifier(server: Tei, **options: Any) -> Any:
    return load_model("nli", EncoderConfig(nli=f"tei:{server.address}", **options))


def embedder(server: Tei, **options: Any) -> Any:
    return load_model("embedder", EncoderConfig(embedder=f"tei:{server.address}", **options))


def assert_right(values: Any, items: Any) -> None:
    """The numbers of these pairs or texts, in their order."""
    of_item = [vector(i.strip()) if isinstance(i, str) else probabilities(*i) for i in items]
    np.testing.assert_allclose(values, np.array(of_item, dtype=np.float32), rtol=1e-6)


def make_hasty(patch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another at once, and nobody waits long for a server to start."""
    patch.setattr(retry, "_backoff", wait_random_exponential(multiplier=0.002, max=0.02))
    patch.setattr(models, "PATIENCE_S", 0.2)
