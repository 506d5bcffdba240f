"""Members and their claims: at most one owner a key, whoever dies or comes back."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.services.members import Members
from claimscore.pipeline.llm.stats import EngineStats
from tests.pipeline.llm.fakes import VirtualClock


def test_a_key_is_one_members_until_it_is_released() -> None:
    """Others are refused; a release by a stranger frees nothing."""
    members = Members(10.0, VirtualClock())
    members.join("a", [])
    members.join("b", [])
    assert members.claim("a", "k")
    assert members.claim("a", "k")
    assert not members.claim("b", "k")
    assert not members.release("b", "k")
    assert members.release("a", "k")
    assert members.claim("b", "k")


def test_the_silent_are_found() -> None:
    """Who was not heard of for longer than is allowed, while others were."""
    clock = VirtualClock()
    members = Members(10.0, clock)
    members.join("a", ["k"])
    members.join("b", [])
    for clock.now in (4.0, 8.0, 10.0):
        members.find("b")
    assert members.silent() == []
    clock.now = 10.1
    assert members.silent() == ["a"]
    assert members.remove("a") == {"k"}
    assert members.find("a") is None
    assert members.claim("b", "k")


def test_when_nobody_was_heard_of_nobody_is_lost() -> None:
    """The services themselves, or the way to them, were away."""
    clock = VirtualClock()
    members = Members(10.0, clock)
    members.join("a", [])
    members.join("b", [])
    clock.now = 60.0
    members.find("b")
    assert members.silent() == []


def test_who_comes_back_has_the_keys_that_are_free() -> None:
    """And its numbers count once."""
    members = Members(10.0, VirtualClock())
    members.join("a", ["k", "l"]).stats = EngineStats(sent=5)
    members.join("b", [])
    members.remove("a")
    assert members.stats().sent == 5
    assert members.claim("b", "k")
    back = members.join("a", ["k", "l"])
    assert back.keys == {"l"}
    assert members.stats().sent == 5
    back.stats = EngineStats(sent=7)
    assert members.stats().sent == 7


def test_members_of_the_same_run_are_waited_for(tmp_path: Path) -> None:
    """Until all are back, or time is up; those of another run are not."""
    clock, roll = VirtualClock(), tmp_path / "members.json"
    before = Members(10.0, clock, roll, "one")
    before.join("a", [])
    before.join("b", [])
    before.join("c", [])
    before.remove("c")
    assert not before.incomplete
    after = Members(10.0, clock, roll, "one")
    after.join("a", [])
    assert after.incomplete
    assert Members(10.0, clock, roll, "one").incomplete, "it may be started anew meanwhile"
    after.join("b", [])
    assert not after.incomplete
    late = Members(10.0, clock, roll, "one")
    clock.now = 10.5
    assert not late.incomplete
    assert not Members(10.0, clock, roll, "two").incomplete
    roll.write_text("{")
    assert not Members(10.0, clock, roll, "one").incomplete
    roll.write_text(json.dumps([1]))
    assert not Members(10.0, clock, roll, "one").incomplete


_NAMES = st.sampled_from("abc")
_KEYS = st.sampled_from("xyz")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), _NAMES, st.lists(_KEYS)),
        st.tuples(st.just("remove"), _NAMES),
        st.tuples(st.just("claim"), _NAMES, _KEYS),
        st.tuples(st.just("release"), _NAMES, _KEYS),
    ),
    max_size=30,
)


@given(_STEPS)
def test_no_key_ever_has_two_owners(steps: list[tuple[str, ...]]) -> None:
    """And every key of a member is known to be its own."""
    members = Members(10.0, VirtualClock())
    for what, name, *more in steps:
        if what in ("join", "remove") or name in members._members:
            getattr(members, what)(name, *more)
        owned = [key for member in members._members.values() for key in member.keys]
        assert sorted(owned) == sorted(members._owners)
