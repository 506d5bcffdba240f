"""A server that fails: asked again, waited for, or said; never a made-up number."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from claimscore.errors import ConfigError, OutageError, StoppedEarly
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.pipeline.encoders.served import client
from tests.support.served_models import PAIRS, assert_right, classifier, embedder, make_hasty
from tests.support.tei_server import Tei, serving

HANG_UP = (200, None)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)


@pytest.fixture
def server() -> Iterator[Tei]:
    with serving(Tei()) as found:
        yield found


def _changed(answer: Any, change: Callable[[list[Any]], None]) -> Any:
    change(answer[0])
    return answer


WRONG = {
    "no-json": (200, b"<html>hello</html>"),
    "a-row-less": lambda answer: answer[:-1],
    "two-labels": lambda answer: _changed(answer, lambda row: row.pop()),
    "a-label-twice": lambda answer: _changed(
        answer, lambda row: row[0].update(label=row[1]["label"])
    ),
    "an-unknown-label": lambda answer: _changed(answer, lambda row: row[0].update(label="maybe")),
    "nan": lambda answer: _changed(answer, lambda row: row[0].update(score=float("nan"))),
    "null": lambda answer: _changed(answer, lambda row: row[0].update(score=None)),
    "logits": lambda answer: _changed(answer, lambda row: row[0].update(score=7.5)),
    "negative": lambda answer: _changed(
        answer, lambda row: (row[0].update(score=1.5), row[1].update(score=-0.5))
    ),
    "an-object": lambda answer: {"error": "no"},
}
WRONG_VECTORS = [
    lambda answer: answer[:-1],
    lambda answer: [row[:-1] for row in answer],
    lambda answer: [[*row[:-1], float("inf")] for row in answer],
    lambda answer: [answer[0], answer[1][:2], *answer[2:]],
    lambda answer: [["x", *row[1:]] for row in answer],
]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([429, 429, 429, 429, 429], id="overloaded"),
        pytest.param([429, HANG_UP, HANG_UP, 500, 502, 503, 504, WRONG["nan"], 424], id="all"),
    ],
)
def test_what_passes_leaves_no_trace(server: Tei, faults: list[Any]) -> None:
    model = classifier(server)
    server.faults.extend(faults)
    assert_right(model.classify(PAIRS), PAIRS)
    assert not server.faults


@pytest.mark.parametrize("wrong", [*WRONG.values(), *WRONG_VECTORS])
def test_a_wrong_answer_is_asked_again_and_then_refused(wrong: Any) -> None:
    embeds = wrong in WRONG_VECTORS
    items: list[Any] = ["one text", "another text"] if embeds else PAIRS
    with serving(Tei(embeds=embeds)) as server:
        model = embedder(server) if embeds else classifier(server)
        ask = model.embed if embeds else model.classify
        server.faults.append(wrong)
        assert_right(ask(items), items)
        assert not server.faults
        server.faults.extend([wrong] * 100)
        with pytest.raises(RejectedItemsError, match=f"tried {client.MAX_FAULTS} times") as refusal:
            ask(["a text", "a new one"] if embeds else [("a new", "pair")])
    assert refusal.value.kind == "server_error"
    assert refusal.value.indices[0] == 0


@pytest.mark.parametrize(
    ("word", "kind"), [("POISON", "rejected"), ("HEAVY", "too_large"), ("BROKEN", "server_error")]
)
def test_refused_pairs_are_named(server: Tei, word: str, kind: str) -> None:
    model = classifier(server)
    bad = (f"It is {word}.", "Indeed.")
    pairs = [*PAIRS[:5], bad, *PAIRS[5:20], (f"{word} again", "x"), *PAIRS[20:], bad]
    with pytest.raises(RejectedItemsError) as refusal:
        model.classify(pairs)
    assert refusal.value.kind == kind
    assert refusal.value.indices == (5, 21, len(pairs) - 1)
    rest = [pair for i, pair in enumerate(pairs) if i not in refusal.value.indices]
    assert_right(model.classify(rest), rest)


def test_an_outage_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """The server dies between two calls and comes back at its address; progress is asked for."""
    with serving(Tei()) as first:
        model = classifier(first)
    port = urlsplit(first.address).port
    assert port is not None
    ticks: list[int] = []
    missed, back = threading.Event(), threading.Event()

    def on_batch(done: int) -> None:
        ticks.append(done)
        if ticks.count(0) >= 2 and caplog.records:
            missed.set()

    def come_back() -> None:
        missed.wait(60)
        with serving(Tei(), port):
            back.wait(60)

    thread = threading.Thread(target=come_back, daemon=True)
    thread.start()
    try:
        with caplog.at_level(logging.WARNING):
            found = model.classify(PAIRS, on_batch=on_batch)
    finally:
        back.set()
        thread.join()
    assert_right(found, PAIRS)
    assert missed.is_set()
    assert [record.message[:7] for record in caplog.records] == ["waiting"]


def test_an_outage_that_lasts_stops_the_run() -> None:
    """With the server's last word and the option that says how long, whatever wait the server asks
    for; one that is always overloaded answers nothing either."""
    with serving(Tei()) as server:
        model = classifier(server, max_outage_s=0.3)
        server.retry_after = "86400"
        server.faults.extend([429] * 10_000)
        with pytest.raises(OutageError, match="HTTP 429: overloaded"):
            model.classify(PAIRS)
        server.faults.clear()
        model = classifier(server, max_outage_s=0.3)
    with pytest.raises(OutageError, match=r"max-outage-s 0\.3.*cannot be reached"):
        model.classify(PAIRS)


def test_another_model_at_the_address_is_noticed() -> None:
    """After the line broke, whoever answers is asked who it is."""
    with serving(Tei()) as first:
        model = classifier(first)
    other = Tei()
    other.info["model_sha"] = "f" * 40
    with (
        serving(other, urlsplit(first.address).port or 0),
        pytest.raises(ConfigError, match=r"serves org/model@fff.* now; it was org/model@0123"),
    ):
        model.classify(PAIRS)
    assert "/predict" not in other.paths()[1:]


# `on_batch` may raise: no more is sent, and nobody waits for what is under way


def test_a_stop_while_nothing_is_answered() -> None:
    """By a server that works on and on, and one that is not there."""
    looks: list[int] = []

    def stop(done: int) -> None:
        looks.append(done)
        if len(looks) % 3 == 0:
            raise StoppedEarly("interrupted")

    with serving(Tei()) as server:
        model = classifier(server)
        server.slow_s = 60.0
        with pytest.raises(StoppedEarly):
            model.classify(PAIRS, on_batch=stop)
    with pytest.raises(StoppedEarly):
        model.classify(PAIRS, on_batch=stop)
    assert looks == [0] * 6
