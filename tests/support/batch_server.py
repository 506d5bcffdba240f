"""Doubles of batch servers without a network, and a machine that can be switched off."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest

from claimscore.cache.key import request_key
from claimscore.config import LLMConfig
from claimscore.errors import ClaimscoreError
from claimscore.file_lock import FileLock
from claimscore.pipeline.llm.batch_jobs import journal as journal_module
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from claimscore.pipeline.llm.batch_jobs.provider import BatchProvider
from claimscore.pipeline.llm.providers.anthropic import AnthropicBatches, AnthropicProvider
from claimscore.pipeline.llm.providers.openai import OpenAIBatches, OpenAIProvider
from claimscore.types import Completion, Message, Request
from tests.fake_server.batches import Batches, Jobs, MessageBatches, call_of
from tests.fake_server.chat import Body

#: What becomes of a line, asked for the n-th time: a body, (status, body), an error, None.
LineFunction = Callable[[Body, int], Any]

BASE_URL = "https://api.example/v1"


def fine(body: Body, n_asked: int) -> Body:
    """An answer that repeats the question."""
    message = {"role": "assistant", "content": f"re {body['messages'][-1]['content']}"}
    return {
        "id": "chatcmpl-1",
        "model": "m-2026",
        "choices": [{"finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }


class BatchServer(Jobs):
    """Executes a batch when it has been looked at `n_looks` times, line by line with `line`.

    `paid` counts executed lines by `custom_id`. `faults` are what goes wrong with a call: a
    response instead of it, an exception or a call before it, or "lost": done, but its answer is
    lost. `judge` says why a batch is refused; `ends` are statuses instead of "completed".
    """

    page_size = 2
    #: How its jobs are asked for.
    family: str
    online: Any
    jobs: Any

    def __init__(self, line: LineFunction = fine, n_looks: int = 2) -> None:
        super().__init__()
        self.line = line
        self.n_looks = n_looks
        self.n_looked: collections.Counter[str] = collections.Counter()
        self.paid: collections.Counter[str] = collections.Counter()
        self.asked: collections.Counter[str] = collections.Counter()
        self.calls: list[str] = []
        self.headers: list[httpx2.Headers] = []
        self.faults: dict[str, list[Any]] = collections.defaultdict(list)
        self.judge: Callable[[list[Body]], list[Body]] = lambda bodies: []
        self.ends: list[str] = []

    @property
    def sizes(self) -> list[int]:
        """Requests in each batch that was made."""
        return [len(self.items(batch)) for batch in self.batches.values()]

    def bodies(self, number: int) -> list[Body]:
        """What the requests of a batch said."""
        return [body for _, body in self.items(list(self.batches.values())[number])]

    def finish(self) -> None:
        """Execute all that waits."""
        for batch in self.batches.values():
            self._execute(batch)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.headers.append(request.headers)
        call = call_of(request.method, request.url.path)
        self.calls.append(call)
        fault = self.faults[call].pop(0) if self.faults[call] else None
        if isinstance(fault, Exception):
            raise fault
        if isinstance(fault, httpx2.Response):
            return fault
        if callable(fault):
            fault()
        url = request.url
        status, body = self.respond(call, url.path, url.query.decode(), request.content)
        if fault == "lost":
            raise httpx2.ReadError("the connection broke")
        as_it_is = isinstance(body, bytes)
        return httpx2.Response(status, **{"content" if as_it_is else "json": body})

    def look(self, batch: Body) -> Body:
        name = batch["id"]
        self.n_looked[name] += 1
        if batch["status"] == "validating" and self.n_looked[name] >= min(2, self.n_looks):
            faults = self.judge([body for _, body in self.items(batch)])
            batch["status"] = "failed" if faults else "in_progress"
            batch["errors"] = {"object": "list", "data": faults}
        if self.n_looked[name] >= self.n_looks:
            self._execute(batch)
        return batch

    def _execute(self, batch: Body) -> None:
        if self.is_open(batch):
            outcomes = [self._outcome(*item) for item in self.items(batch)]
            status = self.ends.pop(0) if self.ends else "completed"
            self.end(batch, status, [outcome for outcome in outcomes if outcome is not None])

    def _outcome(self, name: str, body: Body) -> tuple[str, int, Any] | None:
        self.asked[name] += 1
        outcome = self.line(body, self.asked[name])
        if outcome is None:
            return None
        if isinstance(outcome, str):
            return name, 0, outcome
        status, body = outcome if isinstance(outcome, tuple) else (200, outcome)
        self.paid[name] += status == 200
        return name, status, body


class FileServer(BatchServer, Batches):
    """OpenAI's."""

    family, online, jobs = "openai", OpenAIProvider, OpenAIBatches


class MessageServer(BatchServer, MessageBatches):
    """Anthropic's, in virtual time."""

    family, online, jobs = "anthropic", AnthropicProvider, AnthropicBatches

    def now(self) -> float:
        return anyio.current_time()


class KilledError(BaseException):
    """The machine was switched off."""


class Machine:
    """Runs providers over one state folder and one cache, and dies at a step, if it is told to.

    Steps are all calls of the server and all writes to the disk, each before and after it
    takes effect. A dead machine takes no further step.
    """

    def __init__(self, server: BatchServer, state: Path) -> None:
        self.server = server
        self.state = state
        self.cache: dict[str, Completion] = {}
        self.kill_at: int | None = None
        self.steps: list[str] = []
        self.dead = False
        self._locks: list[FileLock] = []

    @contextmanager
    def switched_on(self, kill_at: int | None = None) -> Iterator[None]:
        """What happens inside is counted; it ends quietly where the machine dies."""
        self.dead, self.kill_at, self.steps = False, kill_at, []
        with pytest.MonkeyPatch.context() as patch:
            write = self._stepping("write", journal_module.write_text)
            patch.setattr(journal_module, "write_text", write)
            patch.setattr(JobJournal, "remove", self._stepping("remove", JobJournal.remove))
            patch.setattr(FileLock, "take", self._take(FileLock.take))
            try:
                yield
            except* KilledError:
                pass
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def provider(
        self,
        *,
        key: str | None = None,
        max_outage_s: float = 3600.0,
        max_requests: int | None = None,
    ) -> BatchProvider:
        """A new process's provider."""
        network = httpx2.MockTransport(self._serve)
        server = self.server
        batches = server.jobs(server.online("m", base_url=BASE_URL, key=key, transport=network))
        provider = BatchProvider(batches, LLMConfig(max_outage_s=max_outage_s))
        if max_requests is not None:
            provider.batch_size = provider._most = max_requests
        provider.open(self.state, cast(Any, self), lambda _: None)
        return provider

    def put_many(self, answers: Mapping[str, Completion]) -> None:
        """The cache of its providers."""
        self._step("before keep")
        self.cache.update(answers)
        self._step("after keep")

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        return {key: self.cache[key] for key in keys if key in self.cache}

    def question(self, text: str) -> Request:
        """A request to the double."""
        url = BASE_URL.removesuffix("/v1") if self.server.family == "anthropic" else BASE_URL
        return Request(self.server.family, url, "m", (Message("user", text),))

    def missing(self, requests: list[Request]) -> list[Request]:
        """Those that an engine would ask for."""
        return [request for request in requests if request_key(request) not in self.cache]

    def _serve(self, request: httpx2.Request) -> httpx2.Response:
        name = call_of(request.method, request.url.path)
        self._step(f"before {name}")
        reply = self.server(request)
        self._step(f"after {name}")
        return reply

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if self.dead or len(self.steps) - 1 == self.kill_at:
            self.dead = True
            raise KilledError

    def _stepping(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **options: Any) -> Any:
            self._step(f"before {name}")
            result = function(*arguments, **options)
            self._step(f"after {name}")
            return result

        return stepping

    def _take(self, take: Callable[[Path], FileLock | None]) -> Callable[[Path], FileLock | None]:
        def taking(path: Path) -> FileLock | None:
            lock = take(path)
            if lock is not None:
                self._locks.append(lock)
            return lock

        return taking


async def ask(provider: BatchProvider, requests: list[Request]) -> list[Any]:
    """The answers, or the errors of ours, to requests that are asked at the same time."""
    return (await ask_each((provider, requests)))[0]


async def ask_each(*asked: tuple[BatchProvider, list[Request]]) -> list[list[Any]]:
    """The outcomes of several processes that ask at the same time."""
    outcomes: list[list[Any]] = [[None] * len(requests) for _, requests in asked]

    async def complete(to: int, number: int) -> None:
        provider, requests = asked[to]
        try:
            outcomes[to][number] = await provider.complete(requests[number])
        except ClaimscoreError as exc:
            outcomes[to][number] = exc

    async with anyio.create_task_group() as tasks:
        for to, (provider, requests) in enumerate(asked):
            provider.start(tasks)
            for number in range(len(requests)):
                tasks.start_soon(complete, to, number)
    return outcomes


def texts(outcomes: Sequence[Any]) -> list[str]:
    """What was answered; raises what was raised."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome.text for outcome in outcomes]


def error(status: int, message: str = "no", **fields: Any) -> tuple[int, Body]:
    """A refusal as the server says it."""
    return status, {"error": {"message": message, **fields}}
