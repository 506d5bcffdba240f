"""A double of `/files` and `/batches` without a network, and a machine that can be switched off."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import lowlevel, to_thread

from claimscore.cache.key import request_key
from claimscore.errors import ClaimscoreError
from claimscore.file_lock import FileLock
from claimscore.pipeline.llm.batch_jobs import journal as journal_module
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.types import Completion, Message, Request

Body = dict[str, Any]
TakeLock = Callable[[Path], FileLock | None]
#: What becomes of a line, asked for the n-th time: a body, (status, body), an error, None.
LineFunction = Callable[[Body, int], Any]

BASE_URL = "https://api.example/v1"

#: Turns of the event loop in which everything that can go on has gone on.
_TURNS = 40


def fine(body: Body, n_asked: int) -> Body:
    """An answer that repeats the question."""
    message = {"role": "assistant", "content": f"re {body['messages'][-1]['content']}"}
    return {
        "model": "m-2026",
        "choices": [{"finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }


class BatchServer:
    """Executes a batch when it has been looked at `n_looks` times.

    `paid` counts executed lines by `custom_id`. `faults` are what goes wrong with a call: a
    response instead of it, an exception before it, or "lost": done, but its answer is lost.
    """

    def __init__(self, line: LineFunction = fine, n_looks: int = 2) -> None:
        self.line = line
        self.n_looks = n_looks
        self.paid: collections.Counter[str] = collections.Counter()
        self.asked: collections.Counter[str] = collections.Counter()
        self.calls: list[str] = []
        self.headers: list[httpx2.Headers] = []
        self.files: dict[str, tuple[str, bytes]] = {}
        self.batches: dict[str, Body] = {}
        self.faults: dict[str, list[Any]] = collections.defaultdict(list)
        self.judge: Callable[[list[Body]], list[Body]] = lambda items: []
        self.ends: list[str] = []
        self.page_size = 2
        self.looks: dict[int, int] = {}  # for single batches, by their number

    @property
    def sizes(self) -> list[int]:
        """Requests in each batch that was made."""
        return [len(self._items(batch)) for batch in self.batches.values()]

    def bodies(self, number: int) -> list[Body]:
        """What the requests of a batch said."""
        return [item["body"] for item in self._items(list(self.batches.values())[number])]

    def finish(self) -> None:
        """Execute all that waits."""
        for batch in self.batches.values():
            self._execute(batch)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.headers.append(request.headers)
        method, path = request.method, request.url.path.removeprefix("/v1")
        call = _name_of(method, path)
        self.calls.append(call)
        fault = self.faults[call].pop(0) if self.faults[call] else None
        if isinstance(fault, Exception):
            raise fault
        if isinstance(fault, httpx2.Response):
            return fault
        reply = self._reply(call, path, request)
        if fault == "lost":
            raise httpx2.ReadError("the connection broke")
        return reply

    def _reply(self, call: str, path: str, request: httpx2.Request) -> httpx2.Response:
        name = path.split("/")[2] if path.count("/") > 1 else ""
        if call == "upload":
            return httpx2.Response(200, json=self._store(*_file_of(request)))
        if call == "create":
            return httpx2.Response(200, json=self._create(json.loads(request.content)))
        if call == "list files":
            about = [self._about(file) for file in self.files]
            return httpx2.Response(200, json=self._page(about, request))
        if call == "list batches":
            return httpx2.Response(200, json=self._page(list(self.batches.values())[::-1], request))
        if name not in self.files and name not in self.batches:
            return httpx2.Response(404, json={"error": {"message": f"no {name}"}})
        if call == "download":
            return httpx2.Response(200, content=self.files[name][1])
        return httpx2.Response(200, json=self._look(self.batches[name]))

    def _store(self, name: str, content: bytes) -> Body:
        file = f"file-{len(self.files) + 1}"
        self.files[file] = (name, content)
        return self._about(file)

    def _about(self, file: str) -> Body:
        name, content = self.files[file]
        return {"id": file, "object": "file", "filename": name, "bytes": len(content)}

    def _create(self, asked: Body) -> Body:
        batch = {
            "id": f"batch_{len(self.batches) + 1}",
            "object": "batch",
            "status": "validating",
            "input_file_id": asked["input_file_id"],
            "endpoint": asked["endpoint"],
            "metadata": asked["metadata"],
            "n_looked": 0,
        }
        self.batches[batch["id"]] = batch
        return batch

    def _page(self, items: list[Body], request: httpx2.Request) -> Body:
        names = [item["id"] for item in items]
        after = request.url.params.get("after")
        start = names.index(after) + 1 if after else 0
        shown = items[start : start + self.page_size]
        return {"object": "list", "data": shown, "has_more": start + len(shown) < len(items)}

    def _look(self, batch: Body) -> Body:
        batch["n_looked"] += 1
        n_looks = self.looks.get(int(batch["id"].removeprefix("batch_")) - 1, self.n_looks)
        if batch["status"] == "validating" and batch["n_looked"] >= min(2, n_looks):
            faults = self.judge(self._items(batch))
            batch["status"] = "failed" if faults else "in_progress"
            batch["errors"] = {"object": "list", "data": faults}
        if batch["n_looked"] >= n_looks:
            self._execute(batch)
        return batch

    def _items(self, batch: Body) -> list[Body]:
        return [json.loads(line) for line in self.files[batch["input_file_id"]][1].splitlines()]

    def _execute(self, batch: Body) -> None:
        if batch["status"] not in ("validating", "in_progress"):
            return
        good, bad = [], []
        for item in self._items(batch):
            name = item["custom_id"]
            self.asked[name] += 1
            outcome = self.line(item["body"], self.asked[name])
            if outcome is None:
                continue
            error, answer = None, None
            if isinstance(outcome, str):
                error = {"code": outcome, "message": f"it is {outcome}"}
            else:
                status, body = outcome if isinstance(outcome, tuple) else (200, outcome)
                answer = {"status_code": status, "body": body}
                self.paid[name] += status == 200
            kind = good if answer and answer["status_code"] == 200 else bad
            kind.append({"custom_id": name, "response": answer, "error": error})
        batch["status"] = self.ends.pop(0) if self.ends else "completed"
        batch["request_counts"] = {
            "total": len(good) + len(bad), "completed": len(good), "failed": len(bad)
        }  # fmt: skip
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                content = "".join(json.dumps(line) + "\n" for line in lines).encode()
                batch[name] = self._store("out.jsonl", content)["id"]


def _name_of(method: str, path: str) -> str:
    what, _, rest = path.strip("/").partition("/")
    if method == "POST":
        return {"files": "upload", "batches": "create"}[what]
    if not rest:
        return f"list {what}"
    return "download" if what == "files" else "look"


def _file_of(request: httpx2.Request) -> tuple[str, bytes]:
    found = re.search(rb'filename="([^"]+)".*?\r\n\r\n(.*)\r\n--', request.content, re.DOTALL)
    assert found is not None
    assert b'name="purpose"\r\n\r\nbatch\r\n' in request.content
    return found[1].decode(), found[2].partition(b"\r\n--")[0]


class OrderedClock:
    """Time that passes when all tasks sleep; the earliest sleeper wakes first.

    No task sleeps as long as a thread works or a task can go on, so a task that polls does not
    make hours of the moment in which another one writes a file.
    """

    def __init__(self) -> None:
        self.now = 1e6
        self.began = self.now
        self.slept: list[float] = []
        self._deadlines: list[float] = []

    def __call__(self) -> float:
        return self.now

    @property
    def elapsed(self) -> float:
        """How long ago it began."""
        return self.now - self.began

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        deadline = self.now + seconds
        self._deadlines.append(deadline)
        try:
            await self._settled()
            while self.now < deadline:
                if deadline <= min(self._deadlines):
                    self.now = deadline
                await self._settled()
        finally:
            self._deadlines.remove(deadline)

    async def _settled(self) -> None:
        limiter = to_thread.current_default_thread_limiter()
        for _ in range(_TURNS):
            await lowlevel.checkpoint()
            while limiter.borrowed_tokens:
                await anyio.sleep(0.0002)


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
        self.clock = OrderedClock()
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
            for name in ("write_text", "atomic_file"):
                patch.setattr(
                    journal_module, name, self._stepping(name, getattr(journal_module, name))
                )
            patch.setattr(JobJournal, "remove", self._stepping("remove", JobJournal.remove))
            patch.setattr(FileLock, "take", self._take(FileLock.take))
            try:
                yield
            except* KilledError:
                pass
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def provider(self, **options: Any) -> OpenAIBatchProvider:
        """A new process's provider."""
        settings: dict[str, Any] = {
            "base_url": BASE_URL,
            "state": self.state,
            "transport": httpx2.MockTransport(self._serve),
            "clock": self.clock,
            "now": self.clock,
            "sleep": self.clock.sleep,
        }
        return OpenAIBatchProvider("m", **{**settings, **options})

    def keep(self, answers: Mapping[str, Completion]) -> None:
        self._step("before keep")
        self.cache.update(answers)
        self._step("after keep")

    def find(self, keys: Sequence[str]) -> dict[str, Completion]:
        return {key: self.cache[key] for key in keys if key in self.cache}

    def missing(self, requests: list[Request]) -> list[Request]:
        """Those that an engine would ask for."""
        return [request for request in requests if request_key(request) not in self.cache]

    def _serve(self, request: httpx2.Request) -> httpx2.Response:
        name = _name_of(request.method, request.url.path.removeprefix("/v1"))
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


def question(text: str) -> Request:
    """A request to the double."""
    return Request("openai", BASE_URL, "m", (Message("user", text),))


async def ask(provider: OpenAIBatchProvider, requests: list[Request]) -> list[Any]:
    """The answers, or the errors of ours, to requests that are asked at the same time."""
    outcomes: list[Any] = [None] * len(requests)

    async def complete(number: int, request: Request) -> None:
        try:
            outcomes[number] = await provider.complete(request)
        except ClaimscoreError as exc:
            outcomes[number] = exc

    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for number, request in enumerate(requests):
            tasks.start_soon(complete, number, request)
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
