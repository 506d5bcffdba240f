"""HTTP/1.1 by hand, as fast as Python allows: the fake server must never be the limit."""

from __future__ import annotations

import asyncio  # noqa: TID251  # a bare Protocol costs a third of a stream of anyio's
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any


class Exchange:
    """One request, and the ways in which it may end."""

    __slots__ = ("body", "head", "line", "method", "path", "query")

    def __init__(self, line: Line, head: bytes, body: bytes) -> None:
        self.line = line
        self.head = head
        self.body = body
        first = head[: head.find(b"\r\n")].decode("latin-1")
        self.method, target, _ = first.split(" ", 2)
        self.path, _, self.query = target.partition("?")

    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        items = (line.partition(":") for line in lines)
        return {name.strip().lower(): value.strip() for name, _, value in items}

    def reply(self, data: bytes, *, close: bool = False) -> None:
        """Send an answer; with `close` nothing comes after it."""
        self.line.send(data, close=close)

    def reset(self) -> None:
        """End the connection as a crash does, without an answer."""
        self.line.reset()


class Line(asyncio.Protocol):
    """One connection: a request in, its answer out, the next request."""

    __slots__ = ("_buffer", "_busy", "_handle", "_listener", "_transport", "cut")

    def __init__(self, listener: Listener, handle: Callable[[Exchange], None]) -> None:
        self._listener = listener
        self._handle = handle
        self._buffer = bytearray()
        self._busy = False
        self._transport: Any = None
        self.cut = False  # by the server itself, while a request was under way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._listener.lines.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.lines.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next()

    def _next(self) -> None:
        exchange = self._read()
        if exchange is not None:
            self._busy = True
            self._handle(exchange)

    def _read(self) -> Exchange | None:
        """The next whole request of the buffer, if there is one."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._buffer[:end])
        lower = head.lower()
        start = end + 4
        at = lower.find(b"\r\ncontent-length:")
        length = 0 if at < 0 else int(lower[at + 17 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < start + length:
            return None
        body = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        return Exchange(self, head, body)

    def send(self, data: bytes, *, close: bool) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
        if close:
            self._transport.close()
            return
        self._busy = False
        if self._buffer:
            self._next()

    def reset(self) -> None:
        raw = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it is closed already
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def drop(self) -> None:
        """The server went away."""
        self.cut = True
        self._transport.abort()


class Listener:
    """A port of 127.0.0.1 that can be closed and opened again, and the loop's small services."""

    def __init__(self, handle: Callable[[Exchange], None], port: int) -> None:
        self.port = port
        self.lines: set[Line] = set()
        self.bugs: list[BaseException] = []
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Take connections; a port of 0 becomes a free one, and stays that."""
        self._server = await self._loop.create_server(
            lambda: Line(self, self._handle), "127.0.0.1", self.port, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def close(self) -> None:
        """Take no connections and drop those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for line in list(self.lines):
            line.drop()

    async def end(self) -> None:
        """Close for good."""
        for task in self._tasks:
            task.cancel()
        self.close()
        for _ in range(2):  # dropped connections end in the loop's next turn
            await asyncio.sleep(0)

    def later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> Any:
        """Call a function after some time, at once where that is none."""
        if seconds <= 0:
            return what(*arguments)
        return self._loop.call_later(seconds, what, *arguments)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside; its bug is kept for whoever runs the server."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            self.bugs.append(exc)


def json_response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole response with a JSON body."""
    return response(status, json.dumps(body).encode(), headers)


def response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole response."""
    more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
    return (
        f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n{more}\r\n"
    ).encode() + body


def error_body(
    message: str, *, kind: str = "loopback", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as OpenAI words it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
