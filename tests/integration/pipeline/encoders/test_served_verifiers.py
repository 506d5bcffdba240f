"""Verifiers behind a chat server: what they are asked, and what is made of Yes and No."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.run import run, usage_of
from claimscore.runs import RunDirectory
from claimscore.types import Completion, TokenLogprob, Usage
from tests.fake_server import FakeServer
from tests.support.command_line import Command
from tests.support.served_models import make_hasty

MINICHECK, GUARDIAN = "bespokelabs/Bespoke-MiniCheck-7B", "ibm-granite/granite-guardian-3.3-8b"


def place(token: str, **top: float) -> TokenLogprob:
    """A token, and the probabilities of the likeliest ones, it among them."""
    said = {" ".join(name.split("_")): math.log(p) for name, p in top.items()}
    return TokenLogprob(token, said.get(token, 0.0), tuple(said.items()))


async def yes(body: Any) -> Completion:
    """Yes for .7 and for .1 of lower case, where the claim is in the document; an empty answer to
    what is odd."""
    text = str(body["messages"]) + str(body.get("documents"))
    if "odd" in text:
        return Completion("Maybe", "fake", "stop", Usage(9, 1), logprobs=(place("Maybe"),))
    if "guardian" in body["model"]:
        tokens = (place("<score>"), place(" no", yes=0.2, no=0.5, _no=0.1), place("</score>"))
    else:
        tokens = (place("Yes", Yes=0.7, yes=0.1, No=0.15),)
    return Completion("Yes", "fake", "stop", Usage(9, 1, 4), logprobs=tokens)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    monkeypatch.delenv("CLAIMSCORE_VERIFIER_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(answer=yes) as found:
        yield found


def spec(server: FakeServer, model: str = MINICHECK) -> str:
    return f"openai:{model}@{server.base_url}"


def verifier(server: FakeServer, model: str = MINICHECK) -> Any:
    return load_model("verifier", EncoderConfig(verifier=spec(server, model)))


@pytest.mark.parametrize(("model", "support"), [(MINICHECK, 0.8), (GUARDIAN, 0.6)])
def test_the_probability_is_that_of_the_word(
    server: FakeServer, model: str, support: float
) -> None:
    """Its spellings are added up; of Granite Guardian it is No, wherever it stands."""
    found = verifier(server, model).classify([("It rained.", "Rain fell."), ("Sun.", "Sun.")])
    assert found[:, 0] == pytest.approx(support)
    assert found[:, 1] == pytest.approx(1 - support)
    assert np.isnan(found[:, 2]).all()


def test_what_says_neither_fails_alone(server: FakeServer) -> None:
    with pytest.raises(RejectedItemsError, match="neither Yes nor No: 'Maybe'") as caught:
        verifier(server).classify([("It rained.", "Rain."), ("odd", "Rain."), ("Sun.", "Sun.")])
    assert caught.value.indices == (1,)


def test_tokens_are_priced_where_the_price_is_known() -> None:
    """One model of OpenAI's table beside one that nobody sells."""

    def asked(model: str) -> Any:
        usage = Counter(requests=2, prompt_tokens=10**6, cached_prompt_tokens=9)
        info = ModelInfo(f"openai:{model}", "unknown", "unknown")
        client = SimpleNamespace(address="https://api.openai.com/v1")
        return SimpleNamespace(usage=usage, info=info, client=client)

    found = usage_of([asked("gpt-4o-mini")])
    assert found["usd"] == pytest.approx(0.15)
    assert (found["requests"], found["cached_prompt_tokens"]) == (2, 9)
    assert usage_of([asked("gpt-4o-mini"), asked("mine")])["usd"] is None


def test_a_server_without_log_probabilities_is_refused(server: FakeServer) -> None:
    server.change(logprobs="ignored")
    with pytest.raises(ConfigError, match=r"cannot verify: .* no log-probabilities"):
        verifier(server)


def test_a_run_stores_and_counts_what_it_asks(
    server: FakeServer, tmp_path: Path, cli: Command
) -> None:
    """The second run asks the probe alone. An address is nothing that a folder refuses."""
    records = [{"id": "a", "summary": "Rain fell. It was cold.", "source": "It rained. Brr."}]

    def judged(name: str) -> Any:
        config = EncoderConfig(verifier=spec(server))
        options: Any = {"units": "sentences", "encoders": config, "cache_dir": tmp_path}
        return run(RunConfig(records, tmp_path / name, "faithfulness", **options)).summary

    first, second = judged("one"), judged("two")
    used = first["last_call"]["model_items"]["served"]
    assert (used["requests"], used["prompt_tokens"], used["completion_tokens"]) == (3, 27, 3)
    assert used["usd"] is None
    assert second["last_call"]["model_items"]["served"]["requests"] == 1
    assert second["last_call"]["model_items"]["stored"] == 2
    rows = RunDirectory.reader(tmp_path / "one").scan("support").collect()
    assert rows["model"].unique().to_list() == [f"openai:{MINICHECK}"]
    assert rows["evidence"].unique().to_list() == ["It rained. Brr."]
    assert rows["verdict"].to_list() == ["supported"] * 2
    assert rows["contradiction"].null_count() == 2
    checked = cli("models", "check", spec(server), "--role", "verifier")
    assert "supported 0.8000" in checked.out


@pytest.mark.parametrize("cap", ["--max-cost", "--max-requests"])
def test_a_cap_that_would_not_bind_is_refused(
    server: FakeServer, tmp_path: Path, cli: Command, cap: str
) -> None:
    """What the message says to do works: the claims under the cap, then the scores without it."""
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": "a", "summary": "Rain fell.", "source": "It rained."}\n')
    out, asks = str(tmp_path / "run"), ["--metrics", "faithfulness", "--verifier", spec(server)]
    command = ["run", str(records), "--out", out, "--cache-dir", str(tmp_path / "cache")]
    server.bodies.clear()
    refused = cli(*command, *asks, cap, "5")
    assert refused.status == 2
    assert f"{cap}: --verifier {spec(server)} is asked without a cap" in refused.err
    assert not server.bodies
    assert cli(*command, "--metrics", "", "--tasks", "decompose", cap, "5").status == 0
    assert cli(*command, *asks).status == 0
    scores = RunDirectory.reader(out).scan("support").collect()
    assert scores["verdict"].to_list() == ["supported"]
