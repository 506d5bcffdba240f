"""How far a run is, as plain numbers, and the reports of it to listeners and files."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from claimscore.errors import ClaimscoreError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.runs import RunDirectory
from claimscore.types import JSON

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.results import StoreStats

#: Seconds between two calls of a listener, and two notes for `claimscore status` elsewhere.
REPORT_INTERVAL_S, NOTE_INTERVAL_S = 0.2, 1.0

logger = logging.getLogger(__name__)

#: The time over which a pace is measured: long enough to be steady, short enough to notice a
#: pause or another limit.
PACE_WINDOW_S = 120.0

#: A pace that was measured for less says nothing of the end; an expected one counts as so long.
_STEADY_S, _EXPECTED_S = 5.0, 10.0


class Pace:
    """How fast a count grows, over the last two minutes; `expected` is what is known before, by the
    second."""

    def __init__(self) -> None:
        self.expected = 0.0
        self._seen: deque[tuple[float, float]] = deque()

    def see(self, count: float, now: float) -> None:
        """Note the count; a second of distance between two notes is enough."""
        seen = self._seen
        if len(seen) > 1 and now - seen[-2][0] < 1.0:
            seen.pop()
        seen.append((now, count))
        while len(seen) > 2 and now - seen[1][0] > PACE_WINDOW_S:
            seen.popleft()

    def per_second(self) -> float:
        """0.0 where nothing has grown."""
        if len(self._seen) < 2:
            return 0.0
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def seconds_for(self, left: float) -> float | None:
        """How long that many more take; None where nothing is known of the pace."""
        if left <= 0:
            return 0.0
        counted = seconds = 0.0
        if self._seen:
            (first, before), (last, after) = self._seen[0], self._seen[-1]
            counted, seconds = after - before, last - first
        if self.expected:
            counted, seconds = counted + self.expected * _EXPECTED_S, seconds + _EXPECTED_S
        is_known = counted > 0 and seconds >= _STEADY_S
        return left * seconds / counted if is_known else None


@dataclasses.dataclass
class PassDone:
    """The records and items (pairs, texts) that a model pass has done, and its seconds of work:
    without loading the model or waiting for a device; of two devices at the same time both count.
    """

    records: int = 0
    items: int = 0
    seconds: float = 0.0


@dataclasses.dataclass
class Progress:
    """The state of a run. Counts are of this invocation unless they say `total`.

    `passes` has the work of each model pass by its step; `model_chunk_share` is how much of the
    chunks at work is done, all together. A chunk has `chunk_records` of the `records_total`, and
    `weights` are the bytes of the records of those that models judge. `requests_expected` are the
    requests and `model_s_expected` the seconds of models by the estimate, where it knows them.
    Threads of the model stage may report at once. `notice` is what the user should know now, as a
    damaged answer in the cache.
    """

    phase: str = "reading"
    records_total: int = 0
    chunk_records: int = 1
    weights: Mapping[int, int] = dataclasses.field(default_factory=dict)
    model_s_expected: float | None = None
    requests_expected: int | None = None
    llm_chunks_todo: int = 0
    llm_chunks_done: int = 0
    model_chunks_todo: int = 0
    model_chunks_done: int = 0
    model_chunk_share: float = 0.0
    pairs_done: int = 0
    passes: dict[str, PassDone] = dataclasses.field(default_factory=dict)
    engine: EngineStats | None = None
    store: StoreStats | None = None
    notice: str = ""
    started: float = dataclasses.field(default_factory=time.monotonic)
    llm_pace: Pace = dataclasses.field(default_factory=Pace)
    model_pace: Pace = dataclasses.field(default_factory=Pace)
    request_pace: Pace = dataclasses.field(default_factory=Pace)
    pair_pace: Pace = dataclasses.field(default_factory=Pace)
    _shares: dict[int, float] = dataclasses.field(default_factory=dict, repr=False)
    _judged: int = 0
    _busy_s: float = 0.0
    _ticked: float = dataclasses.field(default_factory=time.monotonic)
    _mutex: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def model_chunks(self) -> float:
        """Chunks through the models, those at work by their shares."""
        return self.model_chunks_done + self.model_chunk_share

    @property
    def _models_have_work(self) -> bool:
        """Whether a chunk is there that they have not done."""
        done = self.llm_chunks_done
        return done >= self.llm_chunks_todo or done > self.model_chunks_done

    def tick(self) -> None:
        """Note how far it is; called a few times a second."""
        now = time.monotonic()
        self.llm_pace.see(self.llm_chunks_done, now)
        judged = self._bytes_judged()
        if judged and self._models_have_work:  # waiting for answers is no pace
            self._busy_s += now - self._ticked
        if judged:
            self.model_pace.see(judged, self._busy_s)
        self._ticked = now
        self.request_pace.see(self.engine.sent if self.engine else 0, now)
        self.pair_pace.see(self.pairs_done, now)

    def _bytes_judged(self) -> float:
        with self._mutex:
            shares = sum(share * self.weights.get(n, 0) for n, share in self._shares.items())
            return self._judged + shares

    def records_of(self, chunks: float) -> int:
        """The records of so many chunks, the last of which may be smaller."""
        return min(self.records_total, round(chunks * self.chunk_records))

    def add_pairs(self, chunk: int, pairs: int, share: float) -> None:
        """A batch of a chunk of which now so much is done."""
        with self._mutex:
            self.pairs_done += pairs
            self._shares[chunk] = share
            self.model_chunk_share = sum(self._shares.values())

    def add_pass(self, step: str, records: int, items: int, seconds: float) -> None:
        """A chunk that a model pass has gone through."""
        with self._mutex:
            work = self.passes.setdefault(step, PassDone())
            work.records += records
            work.items += items
            work.seconds += seconds
        logger.debug("models: %s of %d records in %.2f s", step, records, seconds)

    def add_chunk(self, chunk: int) -> None:
        """A chunk that all its model passes have gone through."""
        with self._mutex:
            self._shares.pop(chunk, None)
            self.model_chunk_share = sum(self._shares.values())
            self.model_chunks_done += 1
            self._judged += self.weights.get(chunk, 0)

    def spent(self) -> JSON:
        """The requests and tokens of this call, as far as servers said; dollars are None where the
        price is unknown."""
        engine = self.engine or EngineStats()
        tokens = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens")
        names = (*tokens, "usd", "possibly_billed_usd", "answers_at_most")
        return {
            "requests": engine.sent,
            "cache_hits": engine.hits,
            **{name: getattr(engine, name) for name in names},
            "retries": dict(engine.retries),
            **engine.servers_json(),
        }

    def remaining_s(self) -> float | None:
        """Seconds to the end at the recent pace of the slower stage, pauses and limits
        included; None where one of them has not done anything lately.

        Requests tell the pace where their number is expected: the first chunks are done late, and
        many of them at once. That of models is by the bytes that they judge, and at first as
        expected. Models of which nothing is known, and which wait, are taken to be no slower.
        """
        if not (self.llm_chunks_todo or self.model_chunks_todo):
            return None
        llm_left = self.llm_chunks_todo - self.llm_chunks_done
        llm_s = self.llm_pace.seconds_for(llm_left)
        requests_left = (self.requests_expected or 0) - (self.engine.sent if self.engine else 0)
        if llm_left and requests_left > 0:
            llm_s = self.request_pace.seconds_for(requests_left)
        needed = [llm_s]
        weight = sum(self.weights.values())
        if self.model_s_expected:
            self.model_pace.expected = weight / self.model_s_expected
        model_s = self.model_pace.seconds_for(weight - self._bytes_judged())
        if model_s is not None or self._models_have_work:
            needed.append(model_s)
        if self.engine is not None and self.llm_chunks_done < self.llm_chunks_todo:
            needed.append(self.engine.least_s(0))
        return None if None in needed else max(s for s in needed if s is not None)

    def snapshot(self) -> JSON:
        """Everything as plain JSON, for `claimscore status` in another terminal."""
        engine = self.engine or EngineStats()
        remaining_s = self.remaining_s()
        return {
            "phase": self.phase,
            "notice": self.notice,
            "elapsed_s": round(self.elapsed_s, 1),
            "remaining_s": None if remaining_s is None else round(remaining_s, 1),
            "llm_chunks": [self.llm_chunks_done, self.llm_chunks_todo],
            "model_chunks": [round(self.model_chunks, 2), self.model_chunks_todo],
            "text_pairs": self.pairs_done,
            "requests_per_s": round(self.request_pace.per_second(), 2),
            "engine": engine.as_json(),
        }


P = TypeVar("P", bound=Progress)


class ProgressReporter(Generic[P]):
    """Reports the progress of work to a listener, and to files for other terminals."""

    def __init__(self, progress: P, listener: Callable[[P], None] | None) -> None:
        self.progress = progress
        self._listener = listener
        self._stopped: JSON = {}  # why, where the work ended early

    def phase(self, name: str, directory: RunDirectory) -> None:
        """Begin a phase of the work: `reading`, `running` and so on."""
        self.progress.phase = name
        logger.info("phase: %s", name)
        directory.write_note(self.progress.snapshot())
        self._report()

    def notice(self, text: str) -> None:
        """Show people a fact that they should know now."""
        self.progress.notice = text
        logger.info("%s", text)
        self._report()

    def event_listener(self, directory: RunDirectory) -> Callable[..., None]:
        """A function that keeps an engine's events, and shows people those with a notice."""

        def on_event(kind: str, **fields: object) -> None:
            directory.event(kind, **fields)
            logger.info("%s%s", kind, "".join(f", {name}: {fields[name]}" for name in fields))
            if "notice" in fields:
                self.progress.notice = str(fields["notice"])

        return on_event

    async def keep_reporting(self, directory: RunDirectory, engine: Engine | None) -> None:
        """Call the listener several times a second, and leave a note every second."""
        noted = -NOTE_INTERVAL_S
        while True:
            if engine is not None:
                self.progress.engine = engine.stats
            self.progress.tick()
            self._report()
            if time.monotonic() - noted >= NOTE_INTERVAL_S:
                noted = time.monotonic()
                directory.write_note(self.progress.snapshot())
            await anyio.sleep(REPORT_INTERVAL_S)

    @contextlib.contextmanager
    def running(self, directory: RunDirectory, spent: Callable[[], JSON]) -> Iterator[None]:
        """Report that the work runs while the block does; note what stops it, and what it spent."""
        self.phase("running", directory)
        try:
            yield
        except BaseException as exc:
            with contextlib.suppress(ClaimscoreError):  # the reason to stop is the news
                reason = f"{type(exc).__name__}: {exc}"
                self._stopped = {"stopped": str(exc) or type(exc).__name__}
                logger.info("stopped: %s", reason)
                directory.event("stopped", reason=reason, **spent())
            raise
        finally:
            self.end(directory)

    def end(self, directory: RunDirectory) -> None:
        """Leave the last note: the work is over, however it ended."""
        self.progress.tick()
        directory.write_note({**self.progress.snapshot(), "phase": "ended", **self._stopped})

    def _report(self) -> None:
        """Call the listener; a terminal that is gone is no reason to stop."""
        if self._listener is None:
            return
        try:
            self._listener(self.progress)
        except OSError:
            self._listener = None
