"""How much a server lets wait: smaller batches, waiting, and an end of the patience."""

from __future__ import annotations

import pytest

from claimscore.errors import OutageError
from claimscore.pipeline.llm.providers.batch.course import Batch
from claimscore.pipeline.llm.providers.batch.files import BatchState
from claimscore.pipeline.llm.providers.batch.lines import ServerBatch
from claimscore.pipeline.llm.providers.batch.room import Room
from claimscore.pipeline.llm.providers.batch.waiting import Waiter
from tests.pipeline.llm.fakes import VirtualClock
from tests.pipeline.llm.providers.batch_server import question


def batch(status: str, n_requests: int = 8, wanted: bool = True) -> Batch:
    state = BatchState("u", "created", "m", n_requests, 0, "", 0.0, 0.0)
    made = Batch(state, frozenset(), None)
    made.server = ServerBatch("b", status, None, None, 0, 0, ())
    if wanted:
        Waiter("k", question("a"), made)
    return made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def room(clock: VirtualClock) -> Room:
    return Room(100, 600.0, clock)


def test_nobody_waits_before_a_refusal(room: Room):
    """Batches are sent as they come."""
    assert not room.is_taken([batch("validating"), batch("in_progress")])
    assert (room.limit, room.wait_s) == (100, 0.0)


def test_a_batch_that_is_refused_alone_is_halved(room: Room):
    """Again and again, with growing waits, down to a single request."""
    sizes, waits = [], []
    for _ in range(6):
        room.refused(batch("failed", room.limit), [], "full")
        sizes.append(room.limit)
        waits.append(room.wait_s)
    assert sizes == [50, 25, 12, 6, 3, 1]
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_after_a_refusal_the_next_waits_for_the_last_ones_acceptance(room: Room):
    """So that not several are refused for one reason; batches that nobody wants do not count."""
    room.refused(batch("failed"), [], "full")
    assert room.is_taken([batch("validating")])
    assert not room.is_taken([batch("in_progress")])
    assert not room.is_taken([batch("validating", wanted=False)])


def test_a_batch_refused_beside_another_waits_for_its_end(room: Room):
    """It is not made smaller."""
    other = batch("in_progress")
    room.refused(batch("failed"), [other], "full")
    assert room.limit == 100
    assert room.is_taken([other])
    room.landed()
    assert not room.is_taken([other])


def test_room_is_tried_for_again_after_a_batch_has_ended(room: Room):
    """The limit grows back, never above what was set."""
    room.refused(batch("failed", 100), [], "full")
    room.landed()
    assert (room.limit, room.wait_s) == (100, 0.0)
    room.landed()
    assert room.limit == 100


def test_patience_has_an_end(room: Room, clock: VirtualClock):
    """Where nothing is taken and nothing of ours ends; a batch under way begins it anew."""
    room.refused(batch("failed"), [], "full")
    clock.now = 599.0
    room.refused(batch("failed"), [batch("in_progress")], "full")
    clock.now = 1000.0
    room.refused(batch("failed"), [], "full")
    clock.now = 1601.0
    with pytest.raises(OutageError, match=r"no batch was taken for 600 s: full"):
        room.refused(batch("failed"), [], "full")
