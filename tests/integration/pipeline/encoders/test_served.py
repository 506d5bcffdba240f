"""NLI behind a server: the numbers of a function, in order, and only of a model that judges NLI."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.config import EncoderConfig
from claimscore.errors import AuthenticationError, ConfigError
from claimscore.pipeline.encoders import load_model
from tests.support.served_models import PAIRS, classifier, make_hasty
from tests.support.tei_server import SHA, Tei, probabilities, serving

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    monkeypatch.delenv("CLAIMSCORE_NLI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[Tei]:
    with serving(Tei()) as found:
        yield found


def expected(pairs: Any) -> Any:
    return np.array([probabilities(*pair) for pair in pairs], dtype=np.float32)


def test_rows_in_order_each_pair_asked_once(server: Tei) -> None:
    """Repeats included; progress goes up to the number of pairs."""
    model = classifier(server)
    pairs = [*PAIRS, *PAIRS[::-1], *PAIRS[5:8]]
    before, done = len(server.asked), []
    np.testing.assert_allclose(
        model.classify(pairs, on_batch=done.append), expected(pairs), rtol=1e-6
    )
    asked = [tuple(pair) for _, body in server.asked[before:] for pair in body["inputs"]]
    assert sorted(asked) == sorted(set(PAIRS))
    assert done == sorted(done)
    assert done[-1] == len(pairs)


def test_no_pairs_are_no_rows(server: Tei) -> None:
    """Nothing is asked for nothing."""
    assert classifier(server).classify([]).shape == (0, 3)


def test_batches_are_the_servers_and_several_at_a_time(server: Tei) -> None:
    """Never more inputs than it takes, nor more than it works on at once."""
    server.info |= {"max_client_batch_size": 3, "max_concurrent_requests": 12}
    model = classifier(server)
    server.slow_s, before = 0.02, len(server.sizes)
    np.testing.assert_allclose(model.classify(PAIRS), expected(PAIRS), rtol=1e-6)
    assert set(server.sizes[before:]) == {3}
    assert server.most_at_once == 4


def test_what_is_asked_is_said_explicitly(server: Tei) -> None:
    """Truncation, and probabilities rather than logits, whatever the server's defaults are."""
    classifier(server).classify(PAIRS[:1])
    body = server.asked[-1][1]
    assert (body["truncate"], body["raw_scores"]) == (True, False)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"0": "entailment", "1": "neutral", "2": "contradiction"}, id="other-order"),
        pytest.param({"0": "Contradictory", "1": "entail", "2": " Neutral"}, id="other-names"),
    ],
)
def test_scores_go_by_the_names_of_labels(server: Tei, names: dict[str, str]) -> None:
    """The server sorts by score and names as it likes; the columns stay what they are."""
    server.info["model_type"] = {"classifier": {"id2label": names, "label2id": {}}}
    by_key = dict(zip("120", range(3), strict=True))  # of the double: 1 is entailment
    columns = {"e": 0, "n": 1, "c": 2}
    wanted = expected(PAIRS)
    right = np.empty_like(wanted)
    for key, name in names.items():
        right[:, columns[name.strip()[0].lower()]] = wanted[:, by_key[key]]
    np.testing.assert_allclose(classifier(server).classify(PAIRS), right, rtol=1e-6)


def test_a_host_that_is_not_there() -> None:
    """The system's number of the error says nothing to people."""
    with pytest.raises(ConfigError, match=r"cannot be reached: [A-Z]") as refusal:
        load_model("nli", EncoderConfig(nli="tei:http://no.such.host.invalid:80"))
    assert "Errno" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model_type", "said"),
    [
        ({"classifier": {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}}, "LABEL_0"),
        ({"classifier": {"id2label": {"0": "entailment", "1": "not_entailment"}}}, "not_entail"),
        ({"reranker": {"id2label": {"0": "entailment"}}}, "no classifier"),
        ({"embedding": {"pooling": "cls"}}, "no classifier"),
        ({}, "no answer of text-embeddings-inference"),
    ],
)
def test_other_models_are_refused_at_load(server: Tei, model_type: Any, said: str) -> None:
    """In one line, before anything is judged."""
    server.info["model_type"] = model_type
    with pytest.raises(ConfigError, match=said) as refusal:
        classifier(server)
    assert "\n" not in str(refusal.value)
    assert "/predict" not in server.paths()


def test_what_is_no_such_server_is_refused(server: Tei) -> None:
    """A wrong path, and a port that nobody listens on."""
    with pytest.raises(ConfigError, match="address of the server"):
        load_model("nli", EncoderConfig(nli=f"tei:{server.address}/v1"))
    with serving(Tei()) as gone:
        pass
    with pytest.raises(ConfigError, match=r"cannot be reached.*is the server started"):
        classifier(gone)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tei:", "must look like tei:http://host:8080"),
        ("tei:host:8080", "must look like"),
        ("tei:ftp://host", "must look like"),
        (f"tei:http://me:{KEY}@host:8080", "CLAIMSCORE_NLI_API_KEY"),
        (f"http://me:{KEY}@host:8080", "CLAIMSCORE_NLI_API_KEY"),
        (f"tei:http://host:8080?key={KEY}", "CLAIMSCORE_NLI_API_KEY"),
        ("openai:m@http://host/v1", "that is for --embedder"),
    ],
)
def test_wrong_addresses_are_refused_and_secrets_not_shown(spec: str, said: str) -> None:
    """Nothing is sent; a name of a model is written into run directories."""
    with pytest.raises(ConfigError, match=said) as refusal:
        load_model("nli", EncoderConfig(nli=spec))
    assert KEY not in str(refusal.value)


class TestKey:
    """CLAIMSCORE_NLI_API_KEY goes to the server of --nli, and is never shown."""

    def test_it_is_sent(self, server: Tei, monkeypatch: pytest.MonkeyPatch) -> None:
        """With every request, and without the line break of a file."""
        server.key = KEY
        monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", KEY + "\n")
        classifier(server).classify(PAIRS)
        assert server.authorizations == {f"Bearer {KEY}"}

    @pytest.mark.parametrize(("key", "said"), [(None, "needs a key"), ("sk-other", "refuses")])
    def test_a_wrong_one_is_said(
        self, server: Tei, monkeypatch: pytest.MonkeyPatch, key: str | None, said: str
    ) -> None:
        """The server echoes what it got."""
        server.key = KEY
        if key:
            monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", key)
        with pytest.raises(AuthenticationError, match=f"{said}.*CLAIMSCORE_NLI_API_KEY") as refusal:
            classifier(server)
        assert "sk-" not in str(refusal.value)

    def test_not_over_plain_http(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """To another machine only where that was asked for."""
        monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", KEY)
        with pytest.raises(ConfigError, match="--allow-http-key") as refusal:
            load_model("nli", EncoderConfig(nli="tei:http://192.0.2.1:8080"))
        assert KEY not in str(refusal.value)

    def test_other_keys_are_not_sent(self, server: Tei, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither that of the language model nor that of the other role."""
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("CLAIMSCORE_EMBEDDER_API_KEY", KEY)
        classifier(server).classify(PAIRS[:1])
        assert server.authorizations == {None}


def test_this_machine_is_asked_without_a_proxy(
    server: Tei, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment is not for loopback."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert classifier(server).classify(PAIRS[:1]).shape == (1, 3)


def test_info_names_what_the_server_has(server: Tei) -> None:
    """Model, commit and dtype; the address is no part of what results are stored under."""
    model = classifier(server)
    assert model.info == ("tei:org/model", SHA, "float16")
    assert model.facts is not None
    assert model.facts["limit"] == "24"
    said = f"{model.info} {model.facts}"
    assert "127.0.0.1" not in said
    with serving(Tei()) as other:
        assert classifier(other).facts == model.facts
        other.info["max_input_length"] = 12
        assert classifier(other).facts != model.facts


def test_results_of_an_unknown_version_are_not_storable(server: Tei) -> None:
    """A model from a folder of the server may be another one tomorrow."""
    server.info["model_sha"] = None
    model = classifier(server)
    assert model.info.revision == "unknown"
    assert getattr(model, "facts", None) is None
    assert model.truncates(PAIRS).tolist() == [False] * len(PAIRS)


WORDS = st.lists(st.sampled_from(["a", "bb", "Zürich", "価格", "x" * 9]), max_size=22)


class TestTruncation:
    """What the server cuts is told without a forward pass."""

    def test_every_pair(self) -> None:
        """As many words as fit, with three special tokens, and not one more."""
        with serving(Tei()) as server:
            model = classifier(server)

            @given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
            def check(lists: list[tuple[list[str], list[str]]]) -> None:
                pairs = [(" ".join(first), " ".join(second)) for first, second in lists]
                wanted = [len(first) + len(second) + 3 > 24 for first, second in lists]
                assert model.truncates(pairs).tolist() == wanted

            check()
            assert "/predict" not in server.paths()[-1]

    def test_only_texts_that_may_be_too_long_are_tokenised(self, server: Tei) -> None:
        """Twenty letters cannot be more than twenty tokens."""
        model = classifier(server)
        before = len(server.asked)
        assert model.truncates([("short", "pair"), ("also", "short")] * 9).tolist() == [False] * 18
        assert len(server.asked) == before
        long = "word " * 30
        assert model.truncates([("short", "pair"), (long, "short")]).tolist() == [False, True]
        assert server.asked[before:] == [
            ("/tokenize", {"inputs": ["short", long], "add_special_tokens": False})
        ]

    def test_texts_that_the_server_does_not_tokenise_are_cut(self, server: Tei) -> None:
        """It refuses texts of very many characters, which it cuts before it tokenises."""
        huge = "word" * 2000
        pairs = [("a b c d e f g", "h"), (huge, "h"), ("a " * 30, "h")]
        assert classifier(server).truncates(pairs).tolist() == [False, True, True]

    def test_a_server_that_does_not_say_is_refused(self, server: Tei) -> None:
        """What is cut could not be told."""
        server.faults.extend([None, (200, [])])
        with pytest.raises(ConfigError, match="how long a pair is"):
            classifier(server)


def test_no_torch_is_loaded(server: Tei) -> None:
    """A machine without a model's weights needs none of what runs them."""
    code = (
        "import sys\n"
        "from claimscore.config import EncoderConfig\n"
        "from claimscore.pipeline.encoders import load_model\n"
        f"model = load_model('nli', EncoderConfig(nli='tei:{server.address}'))\n"
        "assert model.classify([('a', 'b')]).shape == (1, 3)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
