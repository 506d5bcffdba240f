"""A small OpenAI-compatible server for tests and benchmarks.

In a test: `with Loopback() as server: ... server.base_url ...`. For another process:
`python -m tests.loopback --port 0 --latency-ms 50 --log FILE`, which prints its base URL as
its first line. It answers by the rules of `BuiltinProvider`, or by any function given.

Faults are a script, request number (from 1) -> fault: "500", "429" or "429:0.2" (with
`retry-after-ms`), "reset", "malformed", "truncated", "delay:0.5", or any other status.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from claimscore.errors import ClaimscoreError
from claimscore.types import Completion, Message, OutputSchema, Request, Usage

Body = dict[str, Any]
AnswerFunction = Callable[[Body], Awaitable[Completion]]


async def builtin_answer(body: Body) -> Completion:
    """What the built-in rules say to a request as it came over the wire."""
    from claimscore.config import LLMConfig
    from claimscore.pipeline.llm.providers.builtin import BuiltinProvider

    provider = BuiltinProvider.from_config(LLMConfig())
    return await provider.complete(request_from_wire(body))


def request_from_wire(body: Body) -> Request:
    """The request that a client meant."""
    asked = body.get("response_format") or {}
    schema = asked.get("json_schema") if asked.get("type") == "json_schema" else None
    return Request(
        provider="loopback",
        namespace="loopback",
        model=body["model"],
        messages=tuple(Message(m["role"], m["content"]) for m in body["messages"]),
        temperature=body.get("temperature", 1.0),
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens") or 256,
        output=OutputSchema(schema["name"], schema["schema"]) if schema else None,
    )


class Loopback:
    """The server, in a thread of its own while entered.

    `contents` counts chat requests by their content, so that what was paid for twice is
    seen; only those answered with status 200 are counted in `paid`.
    """

    def __init__(
        self,
        *,
        answer: AnswerFunction = builtin_answer,
        latency_s: float = 0.0,
        script: Mapping[int, str] | None = None,
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        self.base_url = ""
        self.n_requests = 0
        self.contents: collections.Counter[str] = collections.Counter()
        self.paid: collections.Counter[str] = collections.Counter()
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self._answer = answer
        self._latency_s = latency_s
        self._script = dict(script or {})
        self._log_path = log
        self._log: TextIO | None = None
        self._port = port
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Loopback:
        portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        _, self.base_url = portal.start_task(self.serve)
        self._stack.callback(portal.call, self._stop)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    async def serve(self, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the base URL when it listens."""
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=self._port, backlog=1024
        )
        with contextlib.ExitStack() as stack:
            if self._log_path is not None:
                self._log = stack.enter_context(self._log_path.open("a", encoding="utf-8"))
            async with listener:
                port = listener.extra(SocketAttribute.local_port)
                with anyio.CancelScope() as self._scope:
                    task_status.started(f"http://127.0.0.1:{port}/v1")
                    await listener.serve(self._connection)

    def _stop(self) -> None:
        self._scope.cancel()

    async def _connection(self, stream: SocketStream) -> None:
        reader = BufferedByteReceiveStream(stream)
        gone = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)
        async with stream:
            with contextlib.suppress(*gone, anyio.ClosedResourceError):
                while await self._exchange(reader, stream):
                    pass

    async def _exchange(self, reader: BufferedByteReceiveStream, stream: SocketStream) -> bool:
        """One request and its answer; False where the connection ends with it."""
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode("latin-1")
        line, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (item.partition(":") for item in lines)
        }
        payload = await reader.receive_exactly(int(headers.get("content-length", "0")))
        method, path, _ = line.split(" ", 2)
        if method == "GET" and path == "/v1/models":
            await stream.send(_response(200, {"object": "list", "data": [{"id": "loopback"}]}))
            return True
        if method != "POST" or path != "/v1/chat/completions":
            await stream.send(_response(404, _error(f"no such path: {path}")))
            return True
        return await self._chat(json.loads(payload), headers, stream)

    async def _chat(self, body: Body, headers: dict[str, str], stream: SocketStream) -> bool:
        self.n_requests += 1
        number = self.n_requests
        content = content_digest(body)
        self.contents[content] += 1
        self.bodies.append(body)
        self.headers.append(headers)
        fault, _, argument = self._script.get(number, "").partition(":")
        await anyio.sleep(float(argument) if fault == "delay" else self._latency_s)
        if fault == "reset":
            self._note(number, content, fault)
            raw = stream.extra(SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fault.isdigit():
            self._note(number, content, fault)
            extra = {}
            if argument:
                extra["retry-after-ms"] = str(round(float(argument) * 1000))
            await stream.send(_response(int(fault), _error("scripted"), extra))
            return True
        try:
            reply = _response(200, await self._completion(body, number))
        except ClaimscoreError as exc:
            self._note(number, content, "400")
            await stream.send(_response(400, _error(str(exc))))
            return True
        if fault == "malformed":
            reply = _raw_response(200, b'{"choices": [{"mess')
        elif fault == "truncated":
            reply = reply[: len(reply) // 2]
        self.paid[content] += 1
        self._note(number, content, fault or "200")
        await stream.send(reply)
        return fault != "truncated"

    async def _completion(self, body: Body, number: int) -> Body:
        answer = await self._answer(body)
        usage = answer.usage
        n_characters = sum(len(message["content"]) for message in body["messages"])
        prompt_tokens = usage.prompt_tokens or n_characters // 4
        completion_tokens = usage.completion_tokens or len(answer.text) // 4
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": answer.finish_reason,
                    "message": {"role": "assistant", "content": answer.text},
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        }

    def _note(self, number: int, content: str, outcome: str) -> None:
        """One line a request, with the system before the answer is sent."""
        if self._log is not None:
            line = {"n": number, "content": content, "outcome": outcome, "time": time.time()}
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()


def text_answer(text: str, finish_reason: str = "stop") -> AnswerFunction:
    """Always the same answer."""

    async def answer(body: Body) -> Completion:
        return Completion(text, body["model"], finish_reason, Usage())

    return answer


def content_digest(body: Body) -> str:
    """The same for the same question, whatever the dialect it came in."""
    content = json.dumps([body["model"], body["messages"]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _error(message: str) -> Body:
    return {"error": {"message": message, "type": "loopback", "param": None, "code": None}}


def _response(status: int, body: Body, headers: Mapping[str, str] | None = None) -> bytes:
    return _raw_response(status, json.dumps(body).encode(), headers)


def _raw_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} x\r\n{head}\r\n".encode() + body


async def _serve_for_ever(server: Loopback) -> None:
    async with anyio.create_task_group() as tasks:
        print(await tasks.start(server.serve), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--log", type=Path, help="append one JSON line a request")
    parser.add_argument(
        "--script", nargs="*", default=[], metavar="N=FAULT", help="such as 3=429:0.2 5=reset"
    )
    parser.add_argument("--text", help="answer everything so, instead of by the rules")
    options = parser.parse_args()
    faults = (item.partition("=") for item in options.script)
    server = Loopback(
        answer=builtin_answer if options.text is None else text_answer(options.text),
        latency_s=options.latency_ms / 1000,
        script={int(number): fault for number, _, fault in faults},
        log=options.log,
        port=options.port,
    )
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(_serve_for_ever, server)


if __name__ == "__main__":
    main()
