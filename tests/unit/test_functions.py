"""Stages as functions: rows and their order, failures, what is kept, wrong input."""

import json
from typing import Any

import anyio
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import claimscore
from claimscore import functions
from claimscore.errors import ClaimscoreError, ConfigError, RejectedError
from claimscore.pipeline.llm.providers import base
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, completion
from tests.support.pass_doubles import FakeModel

LLM = "openai:fake-1"


async def words_as_claims(request: Request) -> Completion:
    """Each word of the text is a claim and a fact; `refused` is refused, `mute` says nothing."""
    asked = request.messages[-1].content
    if "refused" in asked:
        raise RejectedError("not this one", kind="content_filter")
    words = [] if "mute" in asked else asked.split()
    facts = [{"subject": word, "description": "said"} for word in words]
    name = request.output.name if request.output else ""
    return completion(json.dumps({"claims": words} if name == "decompose" else {"facts": facts}))


async def verdict(request: Request) -> Completion:
    source, _, claim = request.messages[-1].content.partition("Claim: ")
    if "refused" in source:
        raise RejectedError("not this one", kind="content_filter")
    said = "supported" if claim.strip() in source else "unmentioned"
    if f"not {claim.strip()}" in source:
        said = "contradicted"
    evidence = claim.strip() if said != "unmentioned" else ""
    return completion(json.dumps({"verdict": said, "evidence": evidence}))


def asks(patch: pytest.MonkeyPatch, answer: Any) -> FakeProvider:
    provider = FakeProvider(answer)
    patch.setattr(base, "load_provider", lambda llm: provider)
    return provider


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """The model of every role; `loads` are the roles that were loaded."""
    model = FakeModel()
    model.loads = []  # type: ignore[attr-defined]

    def load(role: str, config: Any) -> FakeModel:
        model.loads.append(role)  # type: ignore[attr-defined]
        return model

    monkeypatch.setattr(functions, "load_model", load)
    return model


SENTENCES = st.lists(st.sampled_from(["one", "two three", "refused", "mute"]), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(texts=st.lists(SENTENCES, max_size=3))
def test_no_sentence_is_lost(texts: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    provider = asks(monkeypatch, words_as_claims)
    frame = claimscore.decompose(["\n".join(lines) for lines in texts], LLM, "v1")
    expected: list[tuple[Any, ...]] = []
    for place, lines in enumerate(texts):
        for number, line in enumerate(lines):
            if line == "refused":
                expected.append((place, number, None, None, "content_filter: not this one"))
            elif line != "mute":
                expected += [(place, number, word, None, None) for word in line.split()]
    assert frame.rows() == expected
    assert list(frame.schema.items()) == [
        *(("text", pl.Int64), ("sentence", pl.Int32), ("claim", pl.String)),
        *(("left_out", pl.String), ("error", pl.String)),
    ]
    provider.asked.clear()
    again = claimscore.decompose(["\n".join(lines) for lines in texts], LLM, "v1")
    assert again.equals(frame)
    sent = {request.messages[-1].content for request in provider.asked}
    assert sent <= {"refused"}, "answers are kept, failures are asked again"


def test_whole_texts_and_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = asks(monkeypatch, words_as_claims)
    texts = pl.Series(["one two\nthree", "refused", " ", "mute"])
    frame = claimscore.decompose(texts, LLM, "v1", granularity="summary")
    assert frame.rows() == [
        *((0, None, word, None, None) for word in ("one", "two", "three")),
        (1, None, None, None, "content_filter: not this one"),
    ]
    facts = claimscore.extract_facts(texts, LLM)
    assert facts.columns == ["text", "index", "subject", "description", "error"]
    assert facts.rows() == [
        *((0, n, word, "said", None) for n, word in enumerate(("one", "two", "three"))),
        (1, None, None, None, "content_filter: not this one"),
    ]
    assert len(provider.asked) == 6, "the blank text is not asked about"


def test_a_cap_stops_and_the_same_call_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, words_as_claims)
    with pytest.raises(claimscore.ClaimscoreError, match="max-requests"):
        claimscore.decompose(["one\ntwo"], LLM, "v1", max_requests=1, max_concurrency=1)
    rest = claimscore.decompose(["one\ntwo"], LLM, "v1", max_requests=1)
    assert rest["claim"].to_list() == ["one", "two"]


@pytest.mark.anyio
async def test_a_notebook_has_a_loop_already(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, words_as_claims)
    await anyio.lowlevel.checkpoint()
    assert claimscore.decompose(["one"], LLM, "v1")["claim"].to_list() == ["one"]


def test_nli_keeps_the_order_and_a_refused_pair(model: FakeModel) -> None:
    pairs = [("four", "b"), ("huge", "b"), ("x" * 80, "b"), ("four", "b")]
    frame = claimscore.nli(pairs)
    entailment = pytest.approx([0.04, None, 0.8, 0.04])
    assert frame["entailment"].to_list() == entailment
    assert frame["label"].to_list() == ["neutral", None, "entailment", "neutral"]
    assert frame["error"].to_list() == [None, "out_of_memory: a text does not fit", None, None]
    table = pl.DataFrame({"n": range(4), "hypothesis": ["b"] * 4, "premise": [p for p, _ in pairs]})
    for data in (table, table.lazy(), table.to_dicts(), list(map(list, pairs))):
        assert claimscore.nli(data).equals(frame)
    assert model.loads == ["nli"], "loaded once"  # type: ignore[attr-defined]
    claimscore.nli(pairs, dtype="float32", model="other")
    assert model.loads == ["nli", "nli"]  # type: ignore[attr-defined]


def test_of_several_sources_the_one_that_decides_counts(model: FakeModel) -> None:
    """The double's support is the length of the premise."""
    short, long = "A pool.", "A pool and a bar and a garden with a lawn and a very old tree."
    pairs: list[tuple[Any, str]] = [
        ([short, long], "It has a pool."),
        ([short, ""], "It has a pool."),
        ([], "It has a pool."),
        (short, " "),
        ([short, "huge"], "It has a pool."),
    ]
    frame = claimscore.verify(pairs)
    assert frame["source"].to_list() == [[short, long], [short, ""], [], [short], [short, "huge"]]
    assert frame.select("verdict", "probability", "evidence", "error").rows() == [
        ("supported", pytest.approx(len(long) / 100), long, None),
        ("unmentioned", pytest.approx(len(short) / 100), short, None),
        (None, None, None, "no text in source"),
        (None, None, None, "no text in claim"),
        (None, None, None, "out_of_memory: a text does not fit"),
    ]
    one = claimscore.verify(pl.DataFrame({"source": [long], "claim": ["A pool."]}))
    assert one.row(0)[:3] == (long, "A pool.", "supported")


def test_a_language_model_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = asks(monkeypatch, verdict)
    pairs: list[tuple[Any, str]] = [
        (["It is not shut.", "Well, it is shut."], "shut"),
        (["It is not shut.", "Well."], "shut"),
        ("refused", "shut"),
        ("", "shut"),
    ]
    frame = claimscore.verify(pairs, "llm", LLM)
    assert frame.select("verdict", "probability", "evidence", "error").rows() == [
        ("supported", 1.0, "shut", None),
        ("contradicted", 0.0, "shut", None),
        (None, None, None, "content_filter: not this one"),
        (None, None, None, "no text in source"),
    ]
    n_sent = len(provider.asked)
    assert claimscore.verify(pairs[:2], "llm", LLM).equals(frame[:2])
    assert len(provider.asked) == n_sent


def test_vectors_are_rows_of_the_texts(model: FakeModel) -> None:
    vectors = claimscore.embed(["ab", "eee", "ab"])
    assert vectors.tolist() == [[2, 1], [3, 3], [2, 1]]
    assert (vectors.dtype, claimscore.embed([]).shape) == (np.float32, (0, 2))
    with pytest.raises(ConfigError, match=r"texts\[1\] cannot be embedded: a text does not fit"):
        claimscore.embed(["ab", "huge"])


def test_nothing_gives_the_same_columns(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, words_as_claims)
    for empty, one in (
        (claimscore.decompose([], LLM), claimscore.decompose(["mute"], LLM, "v1")),
        (claimscore.nli([]), claimscore.nli([("a", "b")])),
        (claimscore.verify([]), claimscore.verify([("a", "b")])),
    ):
        assert empty.is_empty()
        assert empty.schema == one.schema


@pytest.mark.parametrize(
    ("name", "arguments", "options", "said"),
    [
        ("decompose", ["x"], {}, "texts must be a list or a column of texts, not str"),
        ("decompose", [["x", None]], {}, "texts[1] must be a text, not null"),
        ("extract_facts", [["\ud800"]], {}, "texts[0] has half a character"),
        ("decompose", [["x"], LLM], {"max_cots": 1}, "unknown option max_cots; is max_cost meant?"),
        ("decompose", [["x"], LLM], {"device": "cpu"}, "unknown option device; known: allow_http_"),
        ("decompose", [["x"], LLM, "v77"], {}, "there is no prompt decompose=v77"),
        ("decompose", [["x"], LLM], {"granularity": "word"}, "granularity must be 'sentence' or"),
        ("nli", [5], {}, "pairs must be tuples of premise and hypothesis, or a table with these"),
        ("nli", [["ab"]], {}, "pairs[0] must be a tuple of premise and hypothesis, not str"),
        ("nli", [[("a", "b"), ("a",)]], {}, "pairs[1] must be a tuple of premise and hypothesis"),
        ("nli", [[(["a"], "b")]], {}, "pairs[0]: premise must be a text, not list of 1"),
        ("nli", [pl.DataFrame({"a": ["x"]})], {}, "pairs[0] has no column premise; it has a"),
        ("nli", [[("a", "b")], 3], {}, "nli must be text, not 3 of type int"),
        ("verify", [[(["a", None], "b")]], {}, "pairs[0]: source must be a text, not null"),
        ("verify", [[("a", "b")]], {"llm": LLM}, 'llm and prompt go with verifier="llm"'),
        ("verify", [[("a", "b")], "llm"], {}, "verify: --llm builtin can only do "),
        ("embed", [["a", " "]], {}, "texts[1] is blank: it has no vector"),
        ("embed", [["a"]], {"batch_tokens": 0}, "--batch-tokens must be at least 1, not 0"),
    ],
)
def test_wrong_input_is_one_line(
    name: str, arguments: list[Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ClaimscoreError) as caught:
        getattr(claimscore, name)(*arguments, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
