"""A small OpenAI-compatible server for tests and benchmarks; the README has its use.

`POST /_control` takes the names of `settings.py` as JSON, and `{"reset": true}` (counts, budgets
and draws afresh) and `{"finish_batches": true}`; `GET /_stats` has its counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from claimscore.types import Completion, Usage
from tests.fake_server.answers import plain_answer
from tests.fake_server.azure import Azure
from tests.fake_server.batches import ChatBatches, ChatMessageBatches, call_of
from tests.fake_server.chat import AnswerFunction, Body, Chat, Words
from tests.fake_server.counts import Counts
from tests.fake_server.http import Exchange, Listener, error_body, json_response, response
from tests.fake_server.settings import Settings


def text_answer(text: str, finish_reason: str = "stop") -> AnswerFunction:
    """Always the same answer."""

    async def answer(body: Body) -> Completion:
        return Completion(text, body["model"], finish_reason, Usage())

    return answer


class FakeServer:
    """The server, in a thread of its own while entered.

    `contents` counts chat requests by their content, so that what was paid for twice is
    seen; only those answered with status 200 are counted in `paid`. `bodies` and `headers`
    are kept unless `keep` says no.
    """

    def __init__(
        self,
        *,
        answer: AnswerFunction = plain_answer,
        log: Path | None = None,
        port: int = 0,
        keep: bool = True,
        **settings: Any,
    ) -> None:
        self.base_url = ""
        self.settings = Settings().changed({k: v for k, v in settings.items() if v is not None})
        self._answer = answer
        self._log_path = log
        self._port = port
        self._keep = keep
        self._stack = contextlib.ExitStack()
        self._portal: BlockingPortal | None = None
        self._refusals: list[Any] = []

    # -- what it saw

    @property
    def counts(self) -> Counts:
        return self._chat.counts

    @property
    def n_requests(self) -> int:
        return self._chat.counts.received

    @property
    def contents(self) -> Counter[str]:
        return self._chat.counts.contents

    @property
    def paid(self) -> Counter[str]:
        return self._chat.counts.paid

    @property
    def bodies(self) -> list[Body]:
        return self._chat.bodies

    @property
    def headers(self) -> list[dict[str, str]]:
        return self._chat.headers

    @property
    def batches(self) -> dict[str, Body]:
        return {**self._batches.batches, **self._message_batches.batches}

    def items_of(self, batch: Body) -> list[tuple[str, Body]]:
        """The requests of one of `batches`: `custom_id` and body."""
        is_openai = batch["id"] in self._batches.batches
        return (self._batches if is_openai else self._message_batches).items(batch)

    # -- what it is told

    def change(self, **orders: Any) -> None:
        """Go on with other settings, or `reset` or `finish_batches`."""
        assert self._portal is not None, "enter the server first: with FakeServer() as server"
        self._portal.call(self._obey, orders)

    def finish_batches(self) -> None:
        """Execute the batches that wait for it."""
        self.change(finish_batches=True)

    def _obey(self, orders: Mapping[str, Any]) -> None:
        values = {k: v for k, v in orders.items() if k not in ("reset", "finish_batches")}
        if values:
            self.settings = self.settings.changed(values)
            self._chat.change(self.settings)
        if orders.get("reset"):
            self._chat.restart()
            self._cpu_at = time.process_time()
        if orders.get("finish_batches"):
            self._batches.finish_all()
            self._message_batches.finish_all()
        if "outages" in values or orders.get("reset"):
            self._plan_refusals()

    # -- running

    def __enter__(self) -> FakeServer:
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.enter_context(self._portal.wrap_async_context_manager(self.serving()))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        if self._listener.bugs and exc is None:
            raise self._listener.bugs[0]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve inside the block, at `base_url`."""
        self._listener = Listener(self._handle, self._port)
        with contextlib.ExitStack() as stack:
            log: TextIO | None = None
            if self._log_path is not None:
                log = stack.enter_context(self._log_path.open("a", encoding="utf-8"))
            self._chat = Chat(self.settings, self._answer, self._listener, log=log, keep=self._keep)
            self._batches = ChatBatches(self._chat)
            self._message_batches = ChatMessageBatches(self._chat)
            self._cpu_at = time.process_time()
            await self._listener.open()
            self.base_url = f"http://127.0.0.1:{self._listener.port}/v1"
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._listener.end()

    # -- paths

    def _handle(self, exchange: Exchange) -> None:
        words: Words | None = None
        if exchange.path == "/v1/messages":
            words = self._chat.messages
        elif Azure.is_for(exchange.path):
            words = Azure(exchange.path, exchange.query)
        is_chat = words is not None or exchange.path == "/v1/chat/completions"
        if is_chat and exchange.method == "POST":
            is_first = self._chat.counts.received == 0
            self._chat.take(exchange, words)
            if is_first and self.settings.outages:
                self._plan_refusals()
        elif exchange.path.startswith("/_"):
            self._private(exchange)
        else:
            self._other(exchange)

    def _private(self, exchange: Exchange) -> None:
        """For benchmarks that drive the server from another process."""
        if exchange.path == "/_control":
            try:
                self._obey(json.loads(exchange.body))
            except (ValueError, TypeError) as exc:
                exchange.reply(json_response(400, error_body(str(exc))))
                return
        stats = self.counts.to_json()
        stats["cpu_s"] = time.process_time() - self._cpu_at
        exchange.reply(json_response(200, stats))

    def _other(self, exchange: Exchange) -> None:
        names = self.settings.models or ("fake",)
        call = call_of(exchange.method, exchange.path)
        if (exchange.method, exchange.path) == ("GET", "/v1/models"):
            models = [{"id": name, "object": "model"} for name in names]
            exchange.reply(json_response(200, {"object": "list", "data": models}))
        elif call:
            jobs = self._message_batches if "messages" in exchange.path else self._batches
            status, body = jobs.respond(call, exchange.path, exchange.query, exchange.body)
            as_it_is = isinstance(body, bytes)
            exchange.reply(response(status, body) if as_it_is else json_response(status, body))
        else:
            exchange.reply(json_response(404, error_body(f"no such path: {exchange.path}")))

    # -- refused connections

    def _plan_refusals(self) -> None:
        """Close and open the port as the outages say, once there was a first request."""
        for handle in self._refusals:
            handle.cancel()
        self._refusals = []
        self._open_again()
        if self._chat.counts.first_at is None:
            return
        since = self._chat.counts.since_first_s(time.monotonic())
        for outage in self.settings.outages:
            if outage.how == "refuse":
                self._plan(outage.from_s - since, self._listener.close)
                self._plan(outage.to_s - since, self._open_again)

    def _plan(self, seconds: float, what: Callable[[], None]) -> None:
        if seconds > 0:
            self._refusals.append(self._listener.later(seconds, what))

    def _open_again(self) -> None:
        if not self._listener.is_open:
            self._listener.spawn(self._listener.open())


async def _serve_for_ever(server: FakeServer) -> None:
    async with server.serving():
        print(server.base_url, flush=True)
        await anyio.sleep_forever()


def _setting(item: str) -> tuple[str, Any]:
    """`rpm=600`, `text=hello` or `rates={"500": 0.05}`; a text that is an object stays a text."""
    name, _, value = item.partition("=")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if name not in ("text", "key") or isinstance(parsed, str | None) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append one JSON line a request")
    parser.add_argument("--config", type=Path, help="a JSON object of settings")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings; values are JSON"
    )
    options = parser.parse_args()
    settings: dict[str, Any] = {}
    if options.config is not None:
        settings |= json.loads(options.config.read_text(encoding="utf-8"))
    settings |= dict(map(_setting, options.set))
    server = FakeServer(log=options.log, port=options.port, keep=False, **settings)
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(_serve_for_ever, server)
