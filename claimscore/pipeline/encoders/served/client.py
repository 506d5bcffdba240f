"""What one call of an encoder asks the server of a model, patiently.

An encoder is called from a thread, so each call has an event loop and connections of its own. Where
the line, the server or its queue is broken for a while, a request is sent again by the policy of
`claimscore.retry`, until `max_outage_s` have passed without any answer. A request that fails by
itself, while the server is there, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from claimscore.errors import RejectedError, TransientError
from claimscore.pipeline.llm.circuit_breaker import CircuitBreaker
from claimscore.pipeline.llm.providers.schema import encode_json
from claimscore.pipeline.llm.providers.server import ServerProvider, decode_json
from claimscore.retry import POLICY, retry_wait_s

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from claimscore.pipeline.llm.providers.connection import Reply

logger = logging.getLogger("claimscore")

T = TypeVar("T")

#: How often the caller is called, and so may stop, while nothing is answered.
TICK_S = 0.2

#: A batch may stand in the server's queue behind several others; a dead line is noticed before.
TIMEOUT_S = 600.0

#: How often one request may fail while the server is there.
MAX_FAULTS = 3


class HttpServer(ServerProvider):
    """A server that no SDK knows; it has one model."""

    async def send(self, path: str, body: bytes) -> Reply:
        http, kind = self.connection.http, {"content-type": "application/json"}
        url = self.base_url + path
        return await self.connection.call(lambda: http.post(url, content=body, headers=kind))


class Session:
    """One server, as long as a call of an encoder asks it.

    ``look`` asks it something that costs it nothing, before the first question and after every
    failure: it raises where another model has taken the place of the first.
    """

    def __init__(
        self,
        server: ServerProvider,
        look: Callable[[Session], Awaitable[object]],
        max_outage_s: float,
    ) -> None:
        self.server = server
        self._look = look
        self._breaker = CircuitBreaker(max_outage_s)
        self._looking = anyio.Lock()
        self._is_doubted = True
        self._is_told = False

    async def ask(self, path: str, read: Callable[[Any], T], body: Any) -> T:
        """What ``read`` makes of the JSON answer; its `ValueError` is a broken answer.

        Raises `RejectedError` where the server refuses this body, or again and again fails at it
        alone; `OutageError`, `QuotaError` or `ConfigError` where nothing can be had.
        """
        faults = list[TransientError]()

        async def attempt() -> T:
            try:
                await self._make_sure()
                if len(faults) >= MAX_FAULTS:
                    message = f"tried {MAX_FAULTS} times: {faults[-1]}"
                    raise RejectedError(message, kind="server_error") from None
                answer = await self.once(path, read, body)
            except TransientError as error:
                self._is_doubted |= error.kind != "rate_limit"
                if error.kind in ("connect", "rate_limit"):
                    self._breaker.refused(error)
                else:
                    faults.append(error)
                if self._breaker.failing_s > 1 and not self._is_told:
                    self._is_told = True
                    logger.warning("waiting for a model's server: %s", error)
                raise
            self._breaker.answered()
            return answer

        return await POLICY.copy(wait=self._wait_s)(attempt)

    async def once(self, path: str, read: Callable[[Any], T], body: Any = None) -> T:
        """One attempt of `ask`: a POST of the body as JSON, a GET without one."""
        server = self.server
        where = f"{server.base_url}{path}"
        reply = await (self.get(path) if body is None else server.send(path, encode_json(body)))
        if reply.status != 200:
            raise server.error(server.refusal(*reply), str((body or {}).get("model", "")))
        try:
            answer = decode_json(reply.body)
            if answer is None:
                raise ValueError("the answer is no JSON; is this its address?")
            return read(answer)
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as exc:
            unlike = "this is no answer of such a server; is this its address?"
            why = exc if isinstance(exc, ValueError) else unlike
            raise TransientError(f"{where}: {why}", "body") from None

    async def get(self, path: str) -> Reply:
        """The reply to a GET, of any status."""
        http, url = self.server.connection.http, self.server.base_url + path
        return await self.server.connection.call(lambda: http.get(url))

    async def _make_sure(self) -> None:
        """Look at a server that is doubted; a doubt that comes meanwhile is another one."""
        async with self._looking:
            if self._is_doubted:
                self._is_doubted = False
                try:
                    await self._look(self)
                except TransientError as exc:
                    raise TransientError(str(exc), "connect") from None

    def _wait_s(self, state: RetryCallState) -> float:
        """The policy's wait, but never far beyond the end of the patience."""
        return min(retry_wait_s(state), self._breaker.check_patience() + 0.1)


def in_session(
    connect: Callable[[], Session],
    work: Callable[[Session], Awaitable[T]],
    on_tick: Callable[[], object] = lambda: None,
) -> T:
    """The result of ``work``, in a session and an event loop of its own.

    ``on_tick`` is called now and then meanwhile; when it raises, all that is under way is given up.
    """

    async def main() -> T:
        session = connect()
        try:
            return await work(session)
        finally:
            with anyio.CancelScope(shield=True):
                await session.server.aclose()

    with start_blocking_portal() as portal:
        future = portal.start_task_soon(main)
        while not wait([future], TICK_S).done:
            on_tick()
        try:
            return future.result()
        except BaseExceptionGroup as group:  # of tasks, of which the first that failed ends all
            raise group.exceptions[0] from None
