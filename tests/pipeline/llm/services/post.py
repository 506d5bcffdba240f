"""A post between engines and services in one process: it delays, loses, and may be down."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio

from claimscore.config import LLMConfig
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.services.client import Client
from claimscore.pipeline.llm.services.head import Services
from claimscore.pipeline.llm.services.letters import Letter, Reply, Unreachable
from claimscore.pipeline.llm.services.opening import open_services
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message


class Killed(Exception):
    """The end of a process, as far as tests can have it: nothing is delivered any more."""


class Post:
    """Carries letters to whichever services there are.

    Letters and replies are copied, as every real transport does. `lose` says which replies get
    lost, `dead` whose engines are killed.
    """

    def __init__(self, services: Services | None = None, delay_s: float = 0.0) -> None:
        self.services = services
        self.delay_s = delay_s
        self.lose: Callable[[Letter], bool] = lambda letter: False
        self.dead: set[str] = set()
        self.letters: list[Letter] = []
        self.ops: Counter[str] = Counter()

    async def __call__(self, letter: Letter) -> Reply:
        await anyio.sleep(self.delay_s)
        services = self.services
        if services is not None and letter[0] not in self.dead:
            self.letters.append(letter)
            self.ops.update(op[0] for op in letter[3])
            reply = copy.deepcopy(await services.handle(copy.deepcopy(letter)))
            if self.services is services and letter[0] not in self.dead and not self.lose(letter):
                return reply
        if letter[0] in self.dead:
            raise Killed(letter[0])
        raise Unreachable("the services are down")


class Run:
    """A folder with everything that services keep, and services that can be killed and made."""

    def __init__(self, folder: Path, llm: LLMConfig, base_url: str | None = None) -> None:
        self.folder = folder
        self.llm = llm
        self.base_url = base_url
        self.post = Post()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.options: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()

    @property
    def spend_file(self) -> Path:
        return self.folder / "spend.jsonl"

    def start(self, run: str = "one") -> Services:
        services = self._stack.enter_context(
            open_services(
                self.llm,
                self.base_url,
                self.folder / "cache",
                spend_file=self.spend_file,
                run=run,
                tell=lambda kind, **fields: self.events.append((kind, fields)),
                **self.options,
            )
        )
        self.post.services = services
        return services

    def end(self) -> None:
        self.post.services = None
        self._stack.close()

    def kill(self) -> None:
        """As by SIGKILL: what was not written is forgotten."""
        services, self.post.services = self.post.services, None
        assert services is not None
        services._purse.account._ended.clear()
        self._stack.close()

    def client(self, name: str, **options: Any) -> Client:
        return Client(self.post, name=name, **options)

    @contextlib.asynccontextmanager
    async def engine(self, name: str, provider: Provider, **options: Any) -> AsyncIterator[Engine]:
        client = self.client(name, **options)
        async with open_engine(self.llm, provider, services=client) as engine:
            yield engine


async def ask(engine: Engine, numbers: range) -> list[Any]:
    """The answers to so many questions."""
    requests = [engine.request([Message("user", str(number))]) for number in numbers]
    return await engine.answer_all(requests, lambda answer: answer.text)
