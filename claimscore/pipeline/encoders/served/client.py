"""JSON over HTTP with one server of a model, patiently, several batches at a time.

A model's server is asked by several threads at once. Where the line, the server or its queue is
broken for a while, a request is sent again by the policy of `claimscore.retry`, until
`max_outage_s` have passed without any answer. A request that fails by itself, while the server
answers others, is refused.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import httpx2
import numpy as np
from numpy.typing import NDArray

from claimscore import __version__
from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    OutageError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.http_headers import retry_after_s
from claimscore.http_policy import (
    key_for,
    open_network,
    scrubbed,
    time_limits,
    translate_http_error,
)
from claimscore.pipeline.encoders.batching import longest_first
from claimscore.pipeline.encoders.distinct import Distinct
from claimscore.pipeline.encoders.protocols import OnBatch, RejectedItemsError
from claimscore.retry import BLOCKING_POLICY, retry_wait_s

if TYPE_CHECKING:
    from tenacity import RetryCallState

logger = logging.getLogger("claimscore")

T = TypeVar("T")
ItemT = TypeVar("ItemT", bound=Hashable)

#: One row of numbers an item, in their order; `RejectedError` where the server refuses the batch.
Ask = Callable[[list[ItemT], threading.Event], NDArray[np.float32]]

#: How often the caller is called, and so may stop, while nothing is answered.
TICK_S = 0.2

#: A batch may stand in the server's queue behind several others; a dead line is noticed before.
TIMEOUT_S = 600.0
LONGEST_TOLD_S = 600.0

#: How often one request may fail while the server answers others.
MAX_FAULTS = 3

#: What one request is refused with: 400 for an empty text, 413 and 422 for one too long or odd.
_REFUSED = (400, 413, 422)
#: Statuses of a gateway before a server that is not there.
_GATEWAY = (502, 503, 504)


class StoppedError(ClaimscoreError):
    """The caller has stopped and takes no answer any more."""


class ServerClient:
    """One server of a model; many threads may ask it at once.

    ``identity``, where set, is called before the next question after every failure of the line
    and every `doubt`: it raises where another model has taken the place of the first.
    """

    def __init__(
        self,
        address: str,
        *,
        key: str | None,
        key_name: str,
        allow_http_key: bool,
        max_outage_s: float,
        alive: str,
    ) -> None:
        self.address = address
        self.max_outage_s = max_outage_s
        self.identity: Callable[[], None] | None = None
        self._alive = alive
        self._key = key_for(address, key, key_name=key_name, allow_http_key=allow_http_key)
        self._key_name = key_name
        kind = "application/json"
        headers = {"accept": kind, "content-type": kind, "user-agent": f"claimscore/{__version__}"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        self._http = httpx2.Client(
            headers=headers,
            transport=open_network(httpx2.HTTPTransport, address),
            timeout=time_limits(TIMEOUT_S),
            trust_env=False,
        )
        weakref.finalize(self, self._http.close).atexit = False  # models have no end of their own
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = False
        self._doubts = self._settled = 0

    def doubt(self) -> None:
        """Time has passed: another model may have taken the place of the first."""
        with self._lock:
            self._doubts += 1

    def ask(
        self, path: str, stop: threading.Event, read: Callable[[Any], T], body: Any = None
    ) -> T:
        """Return what ``read`` makes of the JSON answer; its `ValueError` is a broken answer.

        Raises `RejectedError` where the server refuses this body, or again and again fails at it
        alone; `OutageError`, `QuotaError` or `ConfigError` where nothing can be had; and
        `StoppedError` soon after ``stop`` is set.
        """
        faults = 0

        def attempt() -> T:
            nonlocal faults
            if stop.is_set():
                raise StoppedError("stopped")
            try:
                self._make_sure()
                answer = self._read(self.once(path, body), path, read)
            except TransientError as error:
                if error.kind in ("status", "body", "dropped", "timeout") and self._is_there():
                    faults += 1
                    if faults >= MAX_FAULTS:
                        raise RejectedError(
                            f"tried {MAX_FAULTS} times: {error}", kind="server_error"
                        ) from error
                else:
                    self._failed(error)
                raise
            self._answered()
            return answer

        return BLOCKING_POLICY.copy(sleep=stop.wait, wait=self._wait_s)(attempt)

    def once(self, path: str, body: Any = None) -> Any:
        """One attempt: the JSON answer; `TransientError` and all else that `ask` raises."""
        try:
            return json.loads(self._send(path, body).content)
        except ValueError:
            raise TransientError(
                f"{self.address}{path}: the answer is no JSON; is this its address?", "body"
            ) from None

    def _send(self, path: str, body: Any = None) -> httpx2.Response:
        """A POST of the body as JSON; a GET without one."""
        try:
            if body is None:
                response = self._http.get(self.address + path)
            else:  # ASCII: a text may have lone surrogates
                response = self._http.post(self.address + path, content=json.dumps(body).encode())
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            secrets = (self._key or "",)
            error = translate_http_error(exc, self.address, timeout_s=TIMEOUT_S, secrets=secrets)
            raise error or exc from None
        if response.status_code != 200:
            raise self._error(response, path)
        return response

    def _make_sure(self) -> None:
        """A doubt that comes while the last one is settled is another doubt."""
        doubts = self._doubts
        if self._settled < doubts and self.identity is not None:
            self.identity()
            self._settled = max(self._settled, doubts)

    def _read(self, answer: Any, path: str, read: Callable[[Any], T]) -> T:
        try:
            return read(answer)
        except ValueError as exc:
            raise TransientError(f"{self.address}{path}: {exc}", "body") from None

    def _is_there(self) -> bool:
        """Whether the server answers a question that costs it nothing."""
        try:
            self._send(self._alive)
        except TransientError as exc:
            return exc.kind == "status"
        except ClaimscoreError:
            return True
        return True

    def _failed(self, error: TransientError) -> None:
        """Nothing was answered; `OutageError` where that has lasted too long."""
        now = time.monotonic()
        with self._lock:
            self._doubts += error.kind != "rate_limit"
            self._since = now if self._since is None else self._since
            lasted_s = now - self._since
            tell, self._told = not self._told and lasted_s > 1, self._told or lasted_s > 1
        if lasted_s >= self.max_outage_s:
            raise OutageError(
                f"nothing was answered for {lasted_s:,.0f} s (--max-outage-s "
                f"{self.max_outage_s:g}); the last word: {error}"
            ) from None
        if tell:
            logger.warning("waiting for a model's server: %s", error)

    def _wait_s(self, state: RetryCallState) -> float:
        """The policy's wait, but never far beyond the end of the patience."""
        wait_s, began = retry_wait_s(state), self._since
        error = state.outcome.exception() if state.outcome is not None else None
        if began is None or (isinstance(error, TransientError) and error.retry_after_s is not None):
            return wait_s
        left_s = self.max_outage_s - (time.monotonic() - began)
        return min(wait_s, max(left_s, 0.0) + 0.1)

    def _answered(self) -> None:
        if self._since is not None:
            with self._lock:
                self._since, self._told = None, False

    def _error(self, response: httpx2.Response, path: str) -> ClaimscoreError:
        """An answer with another status than 200, by what can be done about it."""
        status = response.status_code
        said = self._words(response)
        where = f"{self.address}{path}"
        if status in (401, 403):
            need = "refuses the key in" if self._key else "needs a key; set"
            return AuthenticationError(f"{self.address} {need} {self._key_name} ({status}: {said})")
        if status == 402 or "insufficient_quota" in response.text:
            return QuotaError(f"{where}: {said}")
        if status == 429:
            return RateLimitError(f"{where}: too many requests: {said}", _retry_after_s(response))
        if status in _GATEWAY:
            return TransientError(
                f"{where}: {status}: {said}", "connect", retry_after_s=_retry_after_s(response)
            )
        if status in _REFUSED:
            return RejectedError(f"the server refused it ({status}): {said}", kind="refused")
        if status >= 500 or status in (408, 424):
            return TransientError(f"{where}: {status}: {said}", "status")
        if status == 404 and "model" in said.lower():
            return UnknownModelError(f"{where}: {said}")
        return ConfigError(f"{where} answers {status}: {said}; is this the address of the server?")

    def _words(self, response: httpx2.Response) -> str:
        """The server's message, in one short line; a key that it echoes is not shown."""
        try:
            told = json.loads(response.content)
        except ValueError:
            told = response.text
        if isinstance(told, dict):
            told = told.get("error") or told.get("message") or told.get("detail") or ""
        if isinstance(told, dict):
            told = told.get("message") or ""
        words = " ".join(str(told).split()) or "it said nothing"
        words = scrubbed(words, self._key)
        return words if len(words) <= 200 else f"{words[:200]}…"


class BatchesInFlight(Generic[ItemT]):
    """Asks for rows of numbers, ``size`` items a request and at most ``in_flight`` requests.

    Each distinct item is asked once.
    """

    def __init__(self, ask: Ask[ItemT], *, size: int, in_flight: int) -> None:
        self.size = size
        self.in_flight = in_flight
        self._ask = ask

    def rows(
        self, unique: Distinct[ItemT], lengths: Sequence[int], on_batch: OnBatch | None
    ) -> list[NDArray[np.float32]]:
        """Return a row of numbers for each distinct item, the longest asked for first.

        ``on_batch`` hears the number of inputs done after each batch, and now and then while
        nothing comes; when it raises, no more is sent. Raises `RejectedItemsError` naming the
        inputs that the server refused for one reason.
        """
        rows: dict[int, NDArray[np.float32]] = {}
        refused: dict[int, RejectedError] = {}
        counts, done = unique.counts, 0
        stop = threading.Event()
        try:
            order = longest_first(lengths).tolist()
            n_batches, answers = self._begin(unique.items, order, stop)
            while n_batches:
                try:
                    answer = answers.get(timeout=TICK_S)
                except queue.Empty:
                    answer = None
                if isinstance(answer, Exception):
                    raise answer
                if answer is not None:
                    n_batches -= 1
                    rows |= answer.rows
                    refused |= answer.refused
                    done += int(counts[[*answer.rows, *answer.refused]].sum())
                if on_batch is not None:
                    on_batch(done)
        finally:
            stop.set()
        if refused:
            first = refused[min(refused)]
            same = [place for place, error in refused.items() if str(error) == str(first)]
            raise RejectedItemsError(str(first), first.kind, unique.positions(*same)) from first
        return [rows[place] for place in range(len(unique.items))]

    def _begin(
        self, items: Sequence[ItemT], order: list[int], stop: threading.Event
    ) -> tuple[int, queue.SimpleQueue[_BatchAnswer | Exception]]:
        """Ask for all batches from threads that a stopped call does not wait for; return how many
        there are, and where their answers come."""
        batches = [order[at : at + self.size] for at in range(0, len(order), self.size)]
        todo: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        answers: queue.SimpleQueue[_BatchAnswer | Exception] = queue.SimpleQueue()
        for places in batches:
            todo.put(places)

        def work() -> None:
            try:
                while not stop.is_set():
                    answers.put(self._settle(items, todo.get_nowait(), stop))
            except queue.Empty:
                return
            except Exception as exc:  # raised again by the caller's thread
                answers.put(exc)

        for _ in range(min(self.in_flight, len(batches))):
            threading.Thread(target=work, daemon=True).start()
        return len(batches), answers

    def _settle(
        self, items: Sequence[ItemT], places: list[int], stop: threading.Event
    ) -> _BatchAnswer:
        """Ask for one batch, in halves where it is refused, until the items at fault are alone."""
        try:
            answer = self._ask([items[place] for place in places], stop)
        except RejectedError as exc:
            if len(places) == 1:
                return _BatchAnswer({}, {places[0]: exc})
            middle = len(places) // 2
            first = self._settle(items, places[:middle], stop)
            second = self._settle(items, places[middle:], stop)
            return _BatchAnswer(first.rows | second.rows, first.refused | second.refused)
        return _BatchAnswer(dict(zip(places, answer, strict=True)), {})


class _BatchAnswer(NamedTuple):
    """The outcome of a batch, by its items' places: rows of numbers, and refusals."""

    rows: dict[int, NDArray[np.float32]]
    refused: dict[int, RejectedError]


def _retry_after_s(response: httpx2.Response) -> float | None:
    told_s = retry_after_s(response.headers)
    return None if told_s is None else min(told_s, LONGEST_TOLD_S)
