"""The loopback server keeps its own promises; what is measured against it rests on them.

On a virtual clock and without a network; `test_loopback_wire.py` has the rest.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_server import Body
from tests.fake_server.budget import Bucket, Budget, duration, retry_after
from tests.fake_server.chat import Chat
from tests.fake_server.settings import Outage, Settings


def question(text: str = "Is it warm?", **more: Any) -> Body:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


class Desk:
    """The chat endpoint on a virtual clock, asked without a network."""

    def __init__(self, **settings: Any) -> None:
        self.now = 100.0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        answer = {"text": "warm"} | settings
        self.chat = Chat(
            Settings().changed(answer),
            None,
            later=self._later,
            spawn=lambda work: pytest.fail("nothing to wait for"),
            clock=lambda: self.now,
        )

    def _later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._planned, (self.now + seconds, next(self._order), what, arguments))

    def ask(self, body: Body | None = None, **headers: str) -> Asked:
        """Send one question; its answer comes when the clock gets there."""
        asked = Asked(json.dumps(body or question()).encode(), headers)
        self.chat.take(asked)  # type: ignore[arg-type]  # all of an exchange that is used
        self.pass_s(0)
        return asked

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and do what was planned for it."""
        end = self.now + seconds
        while self._planned and self._planned[0][0] <= end:
            self.now, _, what, arguments = heapq.heappop(self._planned)
            what(*arguments)
        self.now = end


class Asked:
    """A request, and what came back."""

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        self.body = body
        self.line = self
        self.used = self.cut = False
        self.status: int | str | None = None
        self.json: Any = None
        self.limits: dict[str, str] = {}
        self._headers = headers

    def headers(self) -> dict[str, str]:
        return self._headers

    def reply(self, data: bytes, *, close: bool = False) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = "closed" if not data else int(first.split()[1])
        self.limits = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
        if not close and body.endswith(b"}"):
            self.json = json.loads(body)

    def reset(self) -> None:
        self.status = "reset"

    def hold(self, data: bytes, when_lost: Callable[[], None]) -> None:
        self.status = "held"


class TestBucket:
    """The arithmetic of a budget."""

    def test_it_starts_full_and_refills_all_the_time(self) -> None:
        """60 a minute, 2 s deep: two at once, then one a second, never more than two."""
        bucket = Bucket(60, depth_s=2, now=0.0)
        assert [bucket.wait_s(1, 0.0), bucket.capacity] == [0.0, 2.0]
        bucket.take(2, 0.0)
        assert bucket.wait_s(1, 0.25) == pytest.approx(0.75)
        assert bucket.wait_s(1, 1.0) == 0.0
        assert bucket.level(1000.0) == 2.0
        assert bucket.reset_s(0.5) == pytest.approx(1.5)

    def test_what_is_larger_than_the_bucket_leaves_a_debt(self) -> None:
        """It passes when the bucket is full, and the rate over time holds."""
        bucket = Bucket(60, depth_s=2, now=0.0)
        assert bucket.wait_s(10, 0.0) == 0.0
        bucket.take(10, 0.0)
        assert bucket.wait_s(1, 0.0) == pytest.approx(9.0)

    @given(
        gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
        depth_s=st.sampled_from([1.0, 5.0, 60.0]),
    )
    def test_no_window_passes_more_than_depth_and_rate_allow(
        self, gaps: list[float], depth_s: float
    ) -> None:
        """Whatever the arrivals; and who waits as long as told passes."""
        budget = Budget(Settings(rpm=90, depth_s=depth_s), 0.0)
        passed, now = [], 0.0
        for gap in gaps:
            now += gap
            refused = budget.admit(1, now)
            if refused is None:
                passed.append(now)
            else:
                assert budget.buckets["requests"].wait_s(1, now + refused.wait_s) == 0.0
        for i, start in enumerate(passed):
            for n, end in enumerate(passed[i:], start=1):
                assert n <= max(90 * depth_s / 60, 1) + (end - start) * 90 / 60 + 1e-6

    def test_a_refusal_takes_nothing(self) -> None:
        """Neither from its own limit nor from the other one."""
        budget = Budget(Settings(rpm=60, tpm=600, depth_s=1), 0.0)
        assert budget.admit(10, 0.0) is None
        for _ in range(50):
            assert budget.admit(10, 0.5) is not None
        assert budget.admit(10, 1.0) is None
        assert budget.admit(1, 1.0).limit in ("requests", "tokens")  # type: ignore[union-attr]

    def test_a_changed_limit_gives_no_new_credit(self) -> None:
        """A budget that is spent stays spent."""
        desk = Desk(rpm=60, depth_s=1)
        desk.ask()
        desk.chat.change(desk.chat.settings.changed({"rpm": 6000}))
        assert desk.ask().status == 429
        desk.pass_s(0.01)
        assert desk.ask().status == 200

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0.0, "0ms"), (0.02, "20ms"), (0.0201, "21ms"), (1.5, "1.5s"), (360.0, "6m0s")],
    )
    def test_durations_are_as_the_headers_have_them(self, seconds: float, text: str) -> None:
        """Rounded up: a client that waits so long has waited long enough."""
        assert duration(seconds) == text

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ("both", {"retry-after-ms": "251", "retry-after": "1"}),
            ("ms", {"retry-after-ms": "251"}),
            ("s", {"retry-after": "1"}),
            ("none", {}),
        ],
    )
    def test_retry_after_is_never_too_short(self, which: Any, expected: dict[str, str]) -> None:
        """Whole milliseconds and whole seconds, both rounded up."""
        assert retry_after(Settings(retry_after=which), 0.2501) == expected


class TestLimits:
    """Budgets as a client meets them."""

    def test_requests_beyond_the_bucket_are_refused_until_the_time_told(self) -> None:
        """Honest `retry-after-ms`, and a refusal costs nothing."""
        desk = Desk(rpm=60, depth_s=3)
        assert [desk.ask().status for _ in range(5)] == [200, 200, 200, 429, 429]
        refused = desk.ask()
        assert refused.json["error"]["code"] == "rate_limit_exceeded"
        desk.pass_s(int(refused.limits["retry-after-ms"]) / 1000)
        assert [desk.ask().status, desk.ask().status] == [200, 429]
        assert desk.chat.counts.outcomes == {"200": 4, "limit": 4}

    def test_headers_tell_the_bucket_of_this_moment(self) -> None:
        """Limit a minute, what is left now, and when all of it is."""
        desk = Desk(rpm=120, depth_s=2)
        desk.ask()
        desk.pass_s(0.25)
        limits = desk.ask().limits
        assert limits["x-ratelimit-limit-requests"] == "120"
        assert limits["x-ratelimit-remaining-requests"] == "2"
        assert limits["x-ratelimit-reset-requests"] == "750ms"
        assert "x-ratelimit-limit-tokens" not in limits

    @pytest.mark.parametrize(
        ("when", "remaining"), [("answer", "5"), ("admission", "3"), ("none", None)]
    )
    def test_headers_as_of_the_answer_or_of_the_admission(
        self, when: str, remaining: str | None
    ) -> None:
        """Or none at all."""
        desk = Desk(rpm=60, depth_s=5, headers=when, latency_s=4.0)
        desk.ask()
        asked = desk.ask()
        desk.pass_s(4.0)
        assert asked.limits.get("x-ratelimit-remaining-requests") == remaining

    def test_headers_may_show_a_full_minute_while_a_second_is_enforced(self) -> None:
        """As hosted providers do."""
        desk = Desk(rpm=600, depth_s=1, shown_depth_s=60)
        statuses = [desk.ask().status for _ in range(11)]
        assert statuses == [200] * 10 + [429]
        assert desk.ask().limits["x-ratelimit-remaining-requests"] == "590"

    @pytest.mark.parametrize(
        ("settings", "admitted", "left_at_the_end"),
        [
            pytest.param({"charge": "known"}, 10, 0, id="known"),
            pytest.param({"charge": "reserved"}, 1, 990, id="reserved"),
        ],
    )
    def test_tokens_are_charged_before_and_settled_after(
        self, settings: dict[str, str], admitted: int, left_at_the_end: int
    ) -> None:
        """10 tokens asked, 90 answered, `max_tokens` 900, 1,000 a minute."""
        desk = Desk(tpm=1000, latency_s=1.0, completion_tokens=90, **settings)
        body = question("x" * 40, max_tokens=900)
        asked = [desk.ask(body) for _ in range(12)]
        assert sum(a.status != 429 for a in asked) == admitted
        level = desk.chat._budget.buckets["tokens"].level
        assert level(desk.now) == pytest.approx(1000 - admitted * (100 if admitted > 1 else 910))
        desk.pass_s(1.0)
        gained = 1000 / 60
        assert level(desk.now) == pytest.approx(1000 - admitted * 100 + gained)


class TestFaults:
    """Each request's fault is known beforehand."""

    def outcomes(self, n: int = 400, **settings: Any) -> list[int | str | None]:
        desk = Desk(**settings)
        return [desk.ask(question(str(i))).status for i in range(n)]

    def test_draws_depend_on_seed_and_number_alone(self) -> None:
        """The same for every client; another seed, other faults."""
        rates = {"500": 0.05, "429": 0.05, "reset": 0.02}
        first = self.outcomes(rates=rates)
        assert first == self.outcomes(rates=rates, latency_sigma=1.0)
        assert first != self.outcomes(rates=rates, seed=1)
        counts = Counter(first)
        assert 10 <= counts[500] <= 30
        assert 10 <= counts[429] <= 30
        assert counts["reset"] > 0

    def test_faults_by_content_are_the_same_when_asked_again(self) -> None:
        """A poisoned question stays poisoned; no other is."""
        desk = Desk(by_content={"filter": 0.1}, on_content={"bomb": "refusal"})
        rounds = [[desk.ask(question(str(i))).status for i in range(200)] for _ in range(2)]
        assert rounds[0] == rounds[1]
        assert 8 <= rounds[0].count(400) <= 35
        assert desk.ask(question("a bomb")).json["choices"][0]["message"]["refusal"]

    @pytest.mark.parametrize(
        ("fault", "status", "code"),
        [
            ("401", 401, "invalid_api_key"),
            ("403", 403, None),
            ("model", 404, "model_not_found"),
            ("quota", 429, "insufficient_quota"),
            ("429", 429, "rate_limit_exceeded"),
            ("context", 400, "context_length_exceeded"),
            ("filter", 400, "content_filter"),
            ("500", 500, None),
            ("503", 503, None),
        ],
    )
    def test_refusals_in_the_words_of_the_protocol(
        self, fault: str, status: int, code: str | None
    ) -> None:
        """And nobody pays for one."""
        desk = Desk(script={1: fault})
        asked = desk.ask()
        assert (asked.status, asked.json["error"]["code"]) == (status, code)
        assert desk.chat.counts.paid.total() == 0

    @pytest.mark.parametrize(
        ("fault", "finish", "content"),
        [
            ("filtered", "content_filter", "warm"),
            ("length", "length", "warm"),
            ("refusal", "stop", None),
            ("empty", "stop", ""),
        ],
    )
    def test_answers_that_are_none(self, fault: str, finish: str, content: str | None) -> None:
        """They are paid for."""
        desk = Desk(script={1: fault})
        choice = desk.ask().json["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == (finish, content)
        assert desk.chat.counts.outcomes == {fault: 1}
        assert desk.chat.counts.paid.total() == 1

    def test_an_outage_by_time_starts_with_the_first_request(self) -> None:
        """From 5 s to 25 s after it."""
        desk = Desk(outages=[{"how": "503", "from_s": 5, "to_s": 25}])
        desk.pass_s(1000)
        statuses = {}
        for second in range(0, 30, 5):
            statuses[second] = desk.ask().status
            desk.pass_s(5)
        assert statuses == {0: 200, 5: 503, 10: 503, 15: 503, 20: 503, 25: 200}

    def test_an_outage_by_number(self) -> None:
        """Both ends are inside."""
        outage = [{"how": "stall", "from_n": 2, "to_n": 3}]
        assert self.outcomes(4, outages=outage) == [200, "held", "held", 200]

    def test_a_spent_quota_answers_only_what_is_in_flight(self) -> None:
        """Refusals from then on, until it is filled."""
        desk = Desk(quota_after=3, latency_s=1.0)
        first = [desk.ask(), desk.ask(), desk.ask(), desk.ask()]
        desk.pass_s(1.0)
        assert [a.status for a in first] == [200] * 4
        assert [desk.ask().status for _ in range(3)] == [429] * 3
        desk.chat.change(desk.chat.settings.changed({"quota_after": None}))
        asked = desk.ask()
        desk.pass_s(1.0)
        assert asked.status == 200

    def test_keys_models_and_lengths(self) -> None:
        """Who may ask what."""
        desk = Desk(key="k", models=["m"], max_prompt_chars=10)
        assert desk.ask(question("short")).status == 401
        assert desk.ask(question("short"), authorization="Bearer k").status == 200
        assert desk.ask(question(model="n"), authorization="Bearer k").status == 404
        assert desk.ask(question("x" * 11), authorization="Bearer k").status == 400

    def test_a_question_without_messages_is_refused(self) -> None:
        """As hosted servers do, with their headers and for nothing."""
        desk = Desk(rpm=60)
        asked = desk.ask({"model": "m", "messages": []})
        assert (asked.status, asked.limits["x-ratelimit-limit-requests"]) == (400, "60")
        assert desk.chat.counts.received == 0

    def test_latencies_are_drawn_by_seed(self) -> None:
        """Lognormal around the median, the same in the next run."""

        def answered(seed: int) -> list[float]:
            desk = Desk(latency_s=1.0, latency_sigma=0.5, seed=seed)
            for i in range(100):
                desk.ask(question(str(i)))
            desk.pass_s(100)
            return list(desk.chat.counts.paid_at)

        assert answered(0) == answered(0) != answered(1)
        assert 0.8 < answered(0)[50] < 1.25
        assert answered(0)[-1] > 1.5

    def test_lengths_by_content_usage_and_the_limit(self) -> None:
        """The same question is as long again; `max_tokens` cuts it; usage may be missing."""
        desk = Desk(completion_tokens=[10, 400])
        lengths = [
            desk.ask(question(str(i % 50))).json["usage"]["completion_tokens"] for i in range(100)
        ]
        assert lengths[:50] == lengths[50:]
        assert 10 <= min(lengths) < 60 < 350 < max(lengths) <= 400
        cut = desk.ask(question("3", max_tokens=9)).json
        assert cut["usage"]["completion_tokens"] == 9
        assert cut["choices"][0]["finish_reason"] == "length"
        assert "usage" not in Desk(usage=False).ask().json

    @pytest.mark.parametrize(
        "values",
        [{"rmp": 3}, {"rates": {"teapot": 0.1}}, {"outages": [{"how": "nap"}]}],
        ids=["name", "fault", "outage"],
    )
    def test_wrong_settings_are_refused(self, values: dict[str, Any]) -> None:
        """A misspelt fault would make a test that tests nothing."""
        with pytest.raises(ValueError, match="known:"):
            Settings().changed(values)

    def test_refused_connections_need_times(self) -> None:
        """Nothing arrives whose number could end them."""
        with pytest.raises(ValueError, match="from_s"):
            Outage("refuse", from_n=1, to_n=2)


class TestCounts:
    """What was asked, answered and paid."""

    def test_duplicates_tokens_and_rates(self) -> None:
        """Two questions, one of them twice; ten answers in a second, then none."""
        desk = Desk(completion_tokens=7)
        for text in ("x" * 40, "x" * 40, "y" * 80):
            desk.ask(question(text))
        stats = desk.chat.counts.to_json()
        assert (stats["paid"], stats["paid_distinct"], stats["paid_twice"]) == (3, 2, 1)
        assert (stats["prompt_tokens"], stats["completion_tokens"]) == (40, 21)
        desk.pass_s(1.0)
        for _ in range(10):
            desk.ask()
            desk.pass_s(0.1)
        counts = desk.chat.counts
        assert counts.paid_rate(1.0, 3.0) == 5.0
        assert counts.to_json(with_times=True)["paid_per_s"] == [3, 10]
        assert len(counts.to_json(with_times=True)["paid_at"]) == 13

    def test_the_most_in_flight(self) -> None:
        """Those that wait for an answer at one moment; refusals leave at once."""
        desk = Desk(latency_s=1.0, rpm=60, depth_s=3)
        for _ in range(5):
            desk.ask()
        assert (desk.chat.counts.in_flight, desk.chat.counts.most_in_flight) == (3, 4)
        desk.pass_s(1.0)
        assert desk.chat.counts.in_flight == 0

    def test_what_the_server_drops_is_not_paid(self) -> None:
        """A crash of the server's own; a client that is gone pays."""
        desk = Desk(latency_s=1.0)
        desk.ask()
        desk.ask().cut = True
        desk.pass_s(1.0)
        assert desk.chat.counts.outcomes == {"200": 1, "cut": 1}
        assert desk.chat.counts.paid.total() == 1
