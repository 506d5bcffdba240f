"""JSON over HTTP with one server of a model, patiently. The model stage's home of httpx2, tenacity.

A model's server is asked by several threads at once. What is broken for a while (the line, the
server, its queue) is asked again, with jitter, until `max_outage_s` have passed without any
answer. What one request alone cannot get, while the server answers, is refused for that request.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    wait_random_exponential,
)

from claimscore import __version__
from claimscore.addresses import is_loopback, is_public_http, usable_key
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
from claimscore.http_policy import tls_context

logger = logging.getLogger("claimscore")

T = TypeVar("T")

#: A batch may stand in the server's queue behind several others; a dead line is noticed before.
TIMEOUT_S = 600.0
CONNECT_S = 15.0
KEEP_ALIVE_S = 60
#: Below the five seconds after which many servers close an idle connection.
LONGEST_IDLE_S = 4.0
LONGEST_TOLD_S = 600.0

#: How often one request may fail while the server answers others.
MAX_FAULTS = 3

#: Full jitter: after attempt n, a random time up to 0.25 * 2 ** (n - 1) seconds, at most 30.
_backoff = wait_random_exponential(multiplier=0.25, max=30.0)

#: What one request is refused with: 400 for an empty text, 413 and 422 for one too long or odd.
_REFUSED = (400, 413, 422)
#: Who answers so stands before a server that is not there.
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
        self._key = usable_key(key, key_name)
        self._key_name = key_name
        if self._key and not allow_http_key and is_public_http(address):
            raise ConfigError(
                f"{address}: {key_name} would be sent unencrypted; use https, unset the key if "
                "the server needs none, or accept it with --allow-http-key"
            )
        self._http = _http_client(address, self._key)
        weakref.finalize(self, self._http.close).atexit = False  # models have no end of their own
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = False
        self._doubts = self._settled = 0

    def doubt(self) -> None:
        """Time has passed: another model may have taken the place of the first."""
        with self._lock:
            self._doubts += 1

    def get(self, path: str, stop: threading.Event, read: Callable[[Any], T]) -> T:
        """As `post`, without a body."""
        return self._ask("GET", path, None, stop, read)

    def post(self, path: str, body: Any, stop: threading.Event, read: Callable[[Any], T]) -> T:
        """Return what ``read`` makes of the JSON answer; its `ValueError` is a broken answer.

        Raises `RejectedError` where the server refuses this body, or again and again fails at it
        alone; `OutageError`, `QuotaError` or `ConfigError` where nothing can be had; and
        `StoppedError` soon after ``stop`` is set.
        """
        return self._ask("POST", path, body, stop, read)

    def once(self, method: str, path: str, body: Any = None) -> Any:
        """One attempt: the JSON answer; `TransientError` and all else that `post` raises."""
        try:
            return json.loads(self._send(method, path, body).content)
        except ValueError:
            raise TransientError(
                f"{self.address}{path}: the answer is no JSON; is this its address?", "body"
            ) from None

    def _send(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        try:
            response = self._http.request(
                method,
                self.address + path,
                content=None if body is None else json.dumps(body).encode(),
                headers={} if body is None else {"content-type": "application/json"},
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as exc:
            raise self._not_reached(exc) from None
        except httpx2.TimeoutException:
            raise TransientError(
                f"{self.address}: no answer in {TIMEOUT_S:g} s", "timeout"
            ) from None
        except (httpx2.TransportError, httpx2.DecodingError):
            raise TransientError(f"{self.address}: the connection broke", "dropped") from None
        except httpx2.InvalidURL as exc:
            raise ConfigError(f"{self.address}: {exc}") from None
        if response.status_code != 200:
            raise self._error(response, path)
        return response

    def _ask(
        self,
        method: str,
        path: str,
        body: Any,
        stop: threading.Event,
        read: Callable[[Any], T],
    ) -> T:
        faults = 0

        def attempt() -> T:
            nonlocal faults
            if stop.is_set():
                raise StoppedError("stopped")
            try:
                self._make_sure()
                answer = self._read(self.once(method, path, body), path, read)
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

        retry = Retrying(
            sleep=sleep_using_event(stop),
            wait=self._wait_s,
            retry=retry_if_exception_type(TransientError),
            reraise=True,
        )
        return retry(attempt)

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
            self._send("GET", self._alive)
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
        """The server's own figure where it gave one; else never far beyond what is waited for."""
        backoff = _backoff(state)
        error = state.outcome.exception() if state.outcome is not None else None
        told = error.retry_after_s if isinstance(error, TransientError) else None
        if told is not None:
            return told + min(backoff, 0.1 + told / 4)
        began = self._since
        left_s = self.max_outage_s - (time.monotonic() - began) if began is not None else backoff
        return min(backoff, max(left_s, 0.0) + 0.1)

    def _answered(self) -> None:
        if self._since is not None:
            with self._lock:
                self._since, self._told = None, False

    def _not_reached(self, exc: httpx2.HTTPError) -> ClaimscoreError:
        why = re.sub(r"^\[Errno -?\d+\] ", "", str(exc)) or "it took too long"
        if "CERTIFICATE_VERIFY_FAILED" in why:
            return ConfigError(
                f"{self.address}: its certificate is not trusted; name the certificate of your "
                "own authority in SSL_CERT_FILE"
            )
        return TransientError(f"{self.address} cannot be reached: {why}", "connect")

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
        """What the server said, in one short line; a key that it echoes is not shown."""
        try:
            told = json.loads(response.content)
        except ValueError:
            told = response.text
        if isinstance(told, dict):
            told = told.get("error") or told.get("message") or told.get("detail") or ""
        if isinstance(told, dict):
            told = told.get("message") or ""
        words = " ".join(str(told).split()) or "it said nothing"
        if self._key:
            words = words.replace(self._key, "[key]")
        return words if len(words) <= 200 else f"{words[:200]}…"


def _http_client(address: str, key: str | None) -> httpx2.Client:
    """This machine is reached directly: a proxy would see the key."""
    headers = {"accept": "application/json", "user-agent": f"claimscore/{__version__}"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    limits = httpx2.Limits(keepalive_expiry=LONGEST_IDLE_S)
    transport = None
    if is_loopback(urlsplit(address).hostname or "") or not getproxies():
        transport = httpx2.HTTPTransport(
            limits=limits, socket_options=_keep_alive(), verify=tls_context()
        )
    try:
        return httpx2.Client(
            headers=headers,
            timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S, pool=None),
            limits=limits,
            transport=transport,
            verify=tls_context(),
        )
    except (ImportError, ValueError, httpx2.InvalidURL) as exc:
        raise ConfigError(f"the proxy named in the environment cannot be used: {exc}") from None


def _keep_alive() -> list[tuple[int, int, int]]:
    """Notice a server that is gone long before the time-out."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if hasattr(socket, "TCP_KEEPIDLE"):
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S // 4),
        ]
    return options


def _retry_after_s(response: httpx2.Response) -> float | None:
    text = response.headers.get("retry-after", "").strip()
    return min(float(text), LONGEST_TOLD_S) if text.isdecimal() else None
