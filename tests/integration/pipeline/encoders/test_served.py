"""Models behind a server: the numbers of a function, in order, and only of a model of the role."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.config import EncoderConfig
from claimscore.errors import AuthenticationError, ConfigError, QuotaError, UnknownModelError
from claimscore.pipeline.encoders import load_model
from tests.support.served_models import PAIRS, TEXTS, assert_right, classifier, embedder, make_hasty
from tests.support.tei_server import DIMENSIONS, SHA, Tei, probabilities, serving

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    for role in ("NLI", "EMBEDDER"):
        monkeypatch.delenv(f"CLAIMSCORE_{role}_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[Tei]:
    with serving(Tei()) as found:
        yield found


@pytest.fixture
def embedding() -> Iterator[Tei]:
    with serving(Tei(embeds=True)) as found:
        yield found


# text-embeddings-inference


@pytest.mark.parametrize("embeds", [False, True], ids=["pairs", "texts"])
def test_rows_in_order_each_item_asked_once(embeds: bool) -> None:
    items: list[Any] = (
        [*TEXTS, f"  {TEXTS[0]}\n", *TEXTS[::-1]] if embeds else [*PAIRS, *PAIRS[::-1]]
    )
    with serving(Tei(embeds=embeds)) as server:
        model, done = embedder(server) if embeds else classifier(server), list[int]()
        ask = model.embed if embeds else model.classify
        before = len(server.asked)
        assert_right(ask(items, on_batch=done.append), items)
        asked = [item for _, body in server.asked[before:] for item in body["inputs"]]
        assert sorted(asked) == sorted(TEXTS if embeds else map(list, set(PAIRS)))
        body = server.asked[-1][1]
        assert (body["truncate"], body.get("raw_scores", False)) == (False, False)
        assert embeds or "raw_scores" in body, "probabilities, whatever the server's default is"
        assert done == sorted(done)
        assert done[-1] == len(items)
        assert len(ask([])) == 0
        if embeds:
            with pytest.raises(ValueError, match="text 1 is empty"):
                model.embed(["a", " \n"])


def labels(*names: str) -> dict[str, Any]:
    return {"classifier": {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {}}}


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("entailment", "neutral", "contradiction"), (2, 0, 1)),
        (("Contradictory", "entail", " Neutral"), (0, 1, 2)),
    ],
)
def test_scores_go_by_the_names_of_labels(
    server: Tei, names: tuple[str, ...], columns: tuple[int, ...]
) -> None:
    """The double gives its numbers for contradiction, entailment and neutral these names."""
    server.info["model_type"] = labels(*names)
    expected = np.array([probabilities(*pair) for pair in PAIRS])[:, columns]
    np.testing.assert_allclose(classifier(server).classify(PAIRS), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("load", "model_type", "said"),
    [
        (classifier, labels("LABEL_0", "LABEL_1", "LABEL_2"), "LABEL_0"),
        (classifier, labels("entailment", "not_entailment"), "not_entail"),
        (classifier, {"reranker": {"id2label": {"0": "entailment"}}}, "no classifier"),
        (classifier, {"embedding": {"pooling": "cls"}}, "no classifier"),
        (classifier, {}, "no answer of such a server"),
        (embedder, labels("a"), r"org/model at .* is no embedder"),
    ],
)
def test_other_models_are_refused_at_load(
    server: Tei, load: Any, model_type: Any, said: str
) -> None:
    server.info["model_type"] = model_type
    with pytest.raises(ConfigError, match=said) as refusal:
        load(server)
    assert "\n" not in str(refusal.value)
    assert "/predict" not in server.paths()


def test_what_is_no_such_server_is_refused(server: Tei) -> None:
    with pytest.raises(ConfigError, match="address of the server"):
        load_model("nli", EncoderConfig(nli=f"tei:{server.address}/v1"))
    with serving(Tei()) as gone:
        pass
    with pytest.raises(ConfigError, match=r"cannot be reached.*is the server started"):
        classifier(gone)
    with pytest.raises(ConfigError, match=r"cannot be reached: [A-Z]") as refusal:
        load_model("nli", EncoderConfig(nli="tei:http://no.such.host.invalid:80"))
    assert "Errno" not in str(refusal.value), "the system's number says nothing to people"


@pytest.mark.parametrize(
    ("role", "spec", "said"),
    [
        ("nli", "tei:", "must look like tei:http://host:8080"),
        ("nli", "tei:ftp://host", "must look like"),
        ("nli", f"tei:http://me:{KEY}@host:8080", "CLAIMSCORE_NLI_API_KEY"),
        ("nli", f"tei:http://host:8080?key={KEY}", "CLAIMSCORE_NLI_API_KEY"),
        ("nli", "openai:m@http://host/v1", "that is for --embedder"),
        ("verifier", "anthropic:m@http://host", "a language model judges by --verifier llm"),
        ("embedder", "openai:m", "openai:MODEL@https://host/v1"),
        ("embedder", "openai:", "openai:MODEL@https://host/v1"),
    ],
)
def test_wrong_addresses_are_refused_and_secrets_not_shown(role: str, spec: str, said: str) -> None:
    """Nothing is sent: no address is guessed, so no key goes astray."""
    config: dict[str, Any] = {role: spec}
    with pytest.raises(ConfigError, match=said) as refusal:
        load_model(role, EncoderConfig(**config))
    assert KEY not in str(refusal.value)


def test_the_key_of_the_role_is_sent_and_no_other(
    server: Tei, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CLAIMSCORE_EMBEDDER_API_KEY", KEY)
    classifier(server).classify(PAIRS[:1])
    assert server.authorizations == {None}
    server.authorizations.clear()
    server.key = "sk-of-nli"
    monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", "sk-of-nli\n")
    classifier(server).classify(PAIRS)
    assert server.authorizations == {"Bearer sk-of-nli"}


@pytest.mark.parametrize("key", [None, "sk-other"])
def test_a_wrong_key_is_said_and_not_shown(
    server: Tei, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """The server echoes what it got."""
    server.key = KEY
    if key:
        monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", key)
    with pytest.raises(
        AuthenticationError, match=r"refused the key.*CLAIMSCORE_NLI_API_KEY"
    ) as refusal:
        classifier(server)
    assert "sk-" not in str(refusal.value)


def test_a_key_is_not_sent_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", KEY)
    with pytest.raises(ConfigError, match="--allow-http-key") as refusal:
        load_model("nli", EncoderConfig(nli="tei:http://192.0.2.1:8080"))
    assert KEY not in str(refusal.value)


@pytest.mark.parametrize("load", [classifier, embedder])
def test_results_are_stored_under_what_they_depend_on(load: Any) -> None:
    """Model, commit, dtype, limit, pooling and the server's own prompt, not its address; a model
    without a version may be another one tomorrow, so nothing of it can be stored."""
    embeds = load is embedder
    with serving(Tei(embeds=embeds)) as server, serving(Tei(embeds=embeds)) as other:
        model = load(server)
        assert model.info == ("tei:org/model", SHA, "float16")
        assert model.facts["limit"] == "24"
        assert model.facts["pooling"] == ("mean" if embeds else "")
        assert "127.0.0.1" not in f"{model.info} {model.facts}"
        assert load(other).facts == model.facts
        other.info["max_input_length"] = 12
        assert load(other).facts != model.facts
        server.prompt = "query:"
        assert load(server).facts != model.facts
        server.info["model_sha"] = None
        unknown = load(server)
        assert (unknown.info.revision, unknown.facts) == ("unknown", None)


WORDS = st.lists(st.sampled_from(["a", "bb", "Zürich", "価格", "x" * 9]), max_size=22)


def test_what_is_cut_is_told(server: Tei, embedding: Tei) -> None:
    """As many words as fit, with three special tokens, and not one more: such a pair is asked about
    once more, by itself. What was not asked about is."""
    model = classifier(server)

    @given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
    def check(lists: list[tuple[list[str], list[str]]]) -> None:
        pairs = [(" ".join(first), " ".join(second)) for first, second in lists]
        wanted = [len(first) + len(second) + 3 > 24 for first, second in lists]
        assert model.truncates(pairs).tolist() == wanted
        assert_right(model.classify(pairs), pairs)
        n_asked = len(server.asked)
        assert model.truncates(pairs[::-1]).tolist() == wanted[::-1]
        assert len(server.asked) == n_asked

    check()
    embedding.prompt = "query: of a user"
    texts = [" ".join("a" * n_words) for n_words in (18, 19)]
    assert embedder(embedding).truncates(texts).tolist() == [False, True]


# OpenAI's protocol


def openai_embedder(server: Tei) -> Any:
    spec = f"openai:some/model@v2@{server.address}/v1"
    server.info["max_client_batch_size"] = 32
    return load_model("embedder", EncoderConfig(embedder=spec))


def test_vectors_of_openai_go_by_their_index(embedding: Tei) -> None:
    """No version, so nothing is stored; no truncation, so the column is null."""
    model = openai_embedder(embedding)
    texts = TEXTS + [f"more {i}" for i in range(40)]
    assert_right(model.embed(texts), texts)
    path, body = embedding.asked[-1]
    assert path == "/v1/embeddings"
    assert body.keys() == {"model", "input", "encoding_format"}
    assert (body["model"], body["encoding_format"]) == ("some/model@v2", "float")
    assert max(len(body["input"]) for _, body in embedding.asked) == 32
    assert model.dimensions == DIMENSIONS
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
def test_a_wrong_answer_of_openai_is_asked_again(embedding: Tei, wrong: Any) -> None:
    model = openai_embedder(embedding)
    embedding.faults.append(wrong)
    assert_right(model.embed(TEXTS[:5]), TEXTS[:5])
    assert not embedding.faults


def test_what_stops_a_run(embedding: Tei) -> None:
    unknown = {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}
    embedding.faults.append((404, unknown))
    with pytest.raises(UnknownModelError, match="does not exist"):
        openai_embedder(embedding)
    embedding.faults.append((429, {"error": {"message": "Empty", "code": "insufficient_quota"}}))
    with pytest.raises(QuotaError, match="Empty"):
        openai_embedder(embedding)
