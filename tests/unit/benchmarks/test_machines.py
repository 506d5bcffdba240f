"""The formulas for how long a run takes: what must hold whatever the figures are."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import Encoders, Host, LanguageModel, predict

from claimscore.pipeline.estimate.run_time import Costs, PassWork, Prediction, Work, disk

amounts = st.floats(0.01, 1e6)
rates = st.floats(0.1, 1e9)
maybe = st.none() | rates

works = st.builds(
    Work,
    records=st.integers(1, 10**8).map(float),
    requests=st.floats(0, 1e9),
    prompt_tokens=st.floats(0, 1e12),
    completion_tokens=st.floats(0, 1e12),
    passes=st.lists(
        st.builds(
            PassWork,
            step=st.sampled_from(["nli", "token_scores"]),
            items=st.floats(0, 1e10),
            tokens=st.floats(0, 1e12),
        ),
        max_size=2,
        unique_by=lambda one: one.step,
    ).map(tuple),
    waves=st.integers(1, 3),
    steps=st.integers(1, 8),
)
llms = st.builds(
    LanguageModel,
    rpm=maybe,
    tpm=maybe,
    tokens_per_s=maybe,
    requests_per_s=maybe,
    latency_s=st.floats(0, 60),
    concurrency=st.integers(1, 10_000),
    outage_s=st.floats(0, 1e5),
    rule_s=st.floats(0, 0.01),
)
encoders = st.builds(
    Encoders,
    devices=st.integers(1, 512),
    tokens_per_s=st.fixed_dictionaries({"nli": rates, "token_scores": rates}),
    on_cpu=st.booleans(),
    between_losses_s=maybe,
    restart_s=st.floats(0, 1e4),
)
counts = st.integers(1, 256)
hosts = st.builds(
    Host,
    cores=counts,
    engines=counts,
    cache_writers=counts,
    part_writers=counts,
    scoring_workers=counts,
    readers=counts,
)


def twice_of(work: Work) -> Work:
    """The same of twice the records."""
    return dataclasses.replace(
        work,
        records=2 * work.records,
        requests=2 * work.requests,
        prompt_tokens=2 * work.prompt_tokens,
        completion_tokens=2 * work.completion_tokens,
        passes=tuple(PassWork(one.step, 2 * one.items, 2 * one.tokens) for one in work.passes),
    )


def by_name(found: Prediction) -> dict[str, float | None]:
    return {stage.name: stage.seconds for stage in found.stages}


@settings(max_examples=25)
@given(works, llms, encoders, hosts)
def test_the_whole_is_its_parts(work: Work, llm: Any, models: Encoders, host: Host) -> None:
    found = predict(work, llm, models, host)
    during = [stage.seconds or 0.0 for stage in found.stages if stage.phase == "during"]
    around = [stage.seconds or 0.0 for stage in found.stages if stage.phase != "during"]
    assert found.total_s == pytest.approx(sum(around) + max(during) + found.tail_s)
    assert 0 <= found.tail_s <= sum(during)
    assert found.bottleneck is not None
    named = by_name(found)
    longest = max(seconds or 0.0 for seconds in named.values())
    if found.bottleneck.seconds != longest:
        assert found.bottleneck.name == "models"
        assert named["cores"] == longest < 2 * (found.bottleneck.seconds or 0.0)


@settings(max_examples=25)
@given(works, llms, encoders, hosts, st.sampled_from([f.name for f in dataclasses.fields(Host)]))
def test_more_workers_are_never_slower(
    work: Work, llm: LanguageModel, models: Encoders, host: Host, name: str
) -> None:
    before = predict(work, llm, models, host)
    more = dataclasses.replace(host, **{name: getattr(host, name) * 2})
    after = predict(work, llm, models, more)
    for stage, seconds in by_name(before).items():
        assert (by_name(after).get(stage) or 0.0) <= (seconds or 0.0) * (1 + 1e-9)


@settings(max_examples=25)
@given(works, llms, encoders, hosts)
def test_twice_the_records_are_twice_the_work(
    work: Work, llm: LanguageModel, models: Encoders, host: Host
) -> None:
    work = dataclasses.replace(work, chunk_records=1)
    models = dataclasses.replace(models, devices=1)
    llm = dataclasses.replace(llm, outage_s=0.0)
    once, twice = (by_name(predict(one, llm, models, host)) for one in (work, twice_of(work)))
    for name, seconds in once.items():
        if name != "start":
            assert twice[name] == pytest.approx(2 * (seconds or 0.0), rel=1e-6), name
    small, large = disk(work), disk(twice_of(work))
    assert large == pytest.approx(tuple(2 * amount for amount in small), abs=1)  # whole bytes


WORK = Work(6_400, 64_000, 64_000 * 300, 64_000 * 30, (PassWork("nli", 1e6, 4e7),), steps=3)
FREE = Costs(0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("llm", "encoder", "host", "part", "seconds"),
    [
        pytest.param({"rpm": 600}, {}, {}, "requests a minute", 6_400, id="requests"),
        pytest.param({"tpm": 2_112_000}, {}, {}, "tokens a minute", 600, id="tokens"),
        pytest.param({"tokens_per_s": 21_120}, {}, {}, "servers", 1_000, id="servers"),
        pytest.param({"latency_s": 2, "concurrency": 64}, {}, {}, "in flight", 2_000, id="flight"),
        pytest.param({"requests_per_s": 10}, {}, {}, "language model", 6_400, id="told"),
        pytest.param({"rpm": 600, "outage_s": 50}, {}, {}, "requests a minute", 6_450, id="outage"),
        pytest.param({"rule_s": 0.01}, {}, {}, "engine", 640, id="rules"),
        pytest.param({}, {"devices": 4}, {}, "models", 10_000, id="models"),
        pytest.param({}, {"devices": 1000}, {}, "models", 400, id="a chunk is one device's"),
        pytest.param(
            {}, {"between_losses_s": 2_000, "restart_s": 600}, {}, "models", 56_000, id="losses"
        ),
    ],
)  # fmt: skip
def test_each_part_by_hand(
    llm: dict[str, Any], encoder: dict[str, Any], host: dict[str, Any], part: str, seconds: float
) -> None:
    """100 chunks of 64 records; a model of 1,000 tokens a second has 400 s of work a chunk."""
    models = Encoders(**{"tokens_per_s": {"nli": 1_000.0}, **encoder})
    found = predict(WORK, LanguageModel(**llm), models, Host(**host), FREE)
    assert found.seconds(part) == pytest.approx(seconds)


def test_costs_by_hand() -> None:
    costs = Costs(10, 20, 0.01, 0.02, 0.001, 0.5, 0.03)
    host = Host(cores=8, engines=4, cache_writers=2, part_writers=5, scoring_workers=16)
    found = predict(WORK, LanguageModel(), Encoders(1, {"nli": 1e9}), host, costs)
    assert by_name(found) == pytest.approx(
        {
            "start": 30,
            "reading": 64,
            "engine": 320,
            "cache writer": 32,
            "models": 0.04,
            "parts": 30,
            "cores": (320 + 30) / 8,
            "scoring": 12,
        }
    )
    assert found.bottleneck is not None
    assert found.bottleneck.name == "engine"


def test_what_nobody_knows_is_not_a_number() -> None:
    found = predict(WORK, LanguageModel(rpm=600), Encoders(), Host(), FREE)
    assert (found.total_s, found.bottleneck, found.unknown) == (None, None, ("models",))
    assert found.known_s == pytest.approx(6_400)
    found = predict(WORK, LanguageModel(known=False), Encoders(1, {"nli": 1e6}), Host(), FREE)
    assert found.unknown == ("language model",)
    said = json.loads(json.dumps(found.to_json()))
    assert said["total_s"] is said["bottleneck"] is None
    unknown = [stage["name"] for stage in said["stages"] if stage["seconds"] is None]
    assert unknown == said["unknown"] == ["language model"]


def test_the_tail_is_a_chunk() -> None:
    slow = LanguageModel(rpm=600, latency_s=1.0, concurrency=10**9)
    found = predict(WORK, slow, Encoders(1, {"nli": 1e5}), Host(), FREE)
    assert found.tail_s == pytest.approx(4)
    found = predict(WORK, slow, Encoders(1, {"nli": 1e3}), Host(), FREE)
    assert found.tail_s == pytest.approx(64 + 1)
    assert predict(WORK, slow, Encoders(1), Host(), FREE).tail_s == 0
