"""Sentence embeddings behind a server: text-embeddings-inference, and OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, QuotaError, UnknownModelError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from tests.support.served_models import TEXTS, embedder, make_hasty
from tests.support.tei_server import DIMENSIONS, SHA, Tei, serving, vector


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    monkeypatch.delenv("CLAIMSCORE_EMBEDDER_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[Tei]:
    with serving(Tei(embeds=True)) as found:
        yield found


def expected(texts: list[str]) -> Any:
    return np.array([vector(text.strip()) for text in texts], dtype=np.float32)


class TestTei:
    """`--embedder tei:URL`."""

    def test_vectors_in_order_as_the_server_made_them(self, server: Tei) -> None:
        """Not normalised, each distinct text once, stripped as our own models strip."""
        texts = [*TEXTS, f"  {TEXTS[0]}\n", *TEXTS[::-1]]
        model, done = embedder(server), []
        before = len(server.asked)
        np.testing.assert_allclose(
            model.embed(texts, on_batch=done.append), expected(texts), rtol=1e-6
        )
        asked = [text for _, body in server.asked[before:] for text in body["inputs"]]
        assert sorted(asked) == sorted(TEXTS)
        assert done[-1] == len(texts)

    def test_nothing_and_blank_texts(self, server: Tei) -> None:
        """No texts are no vectors; a blank one has none."""
        model = embedder(server)
        assert model.embed([]).shape == (0, 0)
        with pytest.raises(ValueError, match="text 1 is empty"):
            model.embed(["a", " \n"])

    def test_it_is_stored_with_what_its_numbers_depend_on(self, server: Tei) -> None:
        """Pooling, limit and the server's own prompt: each changes them."""
        model = embedder(server)
        assert model.info == ("tei:org/model", SHA, "float16")
        assert model.facts is not None
        assert model.facts["pooling"] == "mean"
        server.prompt = "query:"
        assert embedder(server).facts != model.facts
        server.info["model_sha"] = None
        assert embedder(server).facts is None

    def test_a_refused_text_is_named(self, server: Tei) -> None:
        """Each place of it; the others' vectors are at hand for the next call."""
        model = embedder(server)
        with pytest.raises(RejectedItemsError) as refusal:
            model.embed(["POISON", *TEXTS, "POISON "])
        assert refusal.value.indices == (0, len(TEXTS) + 1)
        before = len(server.asked)
        np.testing.assert_allclose(model.embed(TEXTS), expected(TEXTS), rtol=1e-6)
        assert len(server.asked) == before

    def test_a_classifier_is_refused(self, server: Tei) -> None:
        """By what the server says of itself."""
        server.info["model_type"] = {"classifier": {"id2label": {"0": "a"}, "label2id": {}}}
        with pytest.raises(ConfigError, match=r"org/model at .* is no embedder"):
            embedder(server)

    @pytest.mark.parametrize("prompt", ["", "query: of a user"])
    def test_truncation(self, prompt: str) -> None:
        """As many words as fit beside two special tokens and the server's own prompt."""
        words = st.lists(st.sampled_from(["a", "Zürich", "x" * 9]), min_size=1, max_size=26)
        with serving(Tei(embeds=True)) as server:
            server.prompt = prompt
            model = embedder(server)

            @given(st.lists(words, min_size=1, max_size=6))
            def check(lists: list[list[str]]) -> None:
                room = 22 - len(prompt.split())
                wanted = [len(found) > room for found in lists]
                assert model.truncates([" ".join(found) for found in lists]).tolist() == wanted

            check()


class TestOpenAI:
    """`--embedder openai:MODEL@URL`."""

    def load(self, server: Tei, model: str = "some/model@v2") -> Any:
        spec = f"openai:{model}@{server.address}/v1"
        server.info["max_client_batch_size"] = 32
        return load_model("embedder", EncoderConfig(embedder=spec))

    def test_vectors_go_by_their_index(self, server: Tei) -> None:
        """Whatever order they come in."""
        model = self.load(server)
        texts = TEXTS + [f"more {i}" for i in range(40)]
        np.testing.assert_allclose(model.embed(texts), expected(texts), rtol=1e-6)
        assert server.asked[-1] == (
            "/v1/embeddings",
            {
                "model": "some/model@v2",
                "input": server.asked[-1][1]["input"],
                "encoding_format": "float",
            },
        )
        assert max(len(body["input"]) for _, body in server.asked) == 32
        assert model.dimensions == DIMENSIONS

    def test_what_is_not_told_is_not_claimed(self, server: Tei) -> None:
        """No version, so nothing is stored; no truncation, so the column is null."""
        model = self.load(server)
        assert model.info == ("openai:some/model@v2", "unknown", "unknown")
        assert getattr(model, "facts", None) is None
        assert not hasattr(model, "truncates")

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda answer: {"data": answer["data"][1:]},
            lambda answer: {"data": [answer["data"][0]] * len(answer["data"])},
            lambda answer: {},
            lambda answer: [],
        ],
    )
    def test_wrong_answers(self, server: Tei, wrong: Any) -> None:
        """Once: no trace."""
        model = self.load(server)
        server.faults.append(wrong)
        np.testing.assert_allclose(model.embed(TEXTS[:5]), expected(TEXTS[:5]), rtol=1e-6)
        assert not server.faults

    def test_what_stops_a_run(self, server: Tei) -> None:
        """A model that the server has not, and an account that is empty."""
        unknown = {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}
        server.faults.append((404, unknown))
        with pytest.raises(UnknownModelError, match="does not exist"):
            self.load(server)
        server.faults.append((429, {"error": {"message": "Empty", "code": "insufficient_quota"}}))
        with pytest.raises(QuotaError, match="Empty"):
            self.load(server)

    @pytest.mark.parametrize("spec", ["openai:m", "openai:", "openai:@http://host/v1", "openai:m@"])
    def test_the_server_is_named_with_the_model(self, spec: str) -> None:
        """No address is guessed, so no key goes astray."""
        with pytest.raises(ConfigError, match="openai:MODEL@https://host/v1"):
            load_model("embedder", EncoderConfig(embedder=spec))
