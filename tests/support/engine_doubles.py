"""For tests of the engine: one with bounds, a provider, and a parser."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio import lowlevel

from claimscore.cache.store import Cache, MemoryCache
from claimscore.config import LLMConfig
from claimscore.errors import ParseError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.types import Completion, Request, Usage


def make(
    provider: Provider,
    cache: Cache | None = None,
    **options: Any,
) -> Engine:
    """An engine; `options` are parameters of it, and fields of `LLMConfig`."""
    names = [field.name for field in dataclasses.fields(LLMConfig) if field.name in options]
    llm = LLMConfig(**{name: options.pop(name) for name in names})
    return Engine(provider, MemoryCache() if cache is None else cache, llm=llm, **options)


class FakeProvider:
    """Answers by a function of the request; remembers what it was asked."""

    family = "fake"
    namespace = "here"
    model = "fake-1"

    def __init__(self, answer: Callable[[Request], Awaitable[Completion]] | None = None) -> None:
        self.asked: list[Request] = []
        self._answer = answer or self.echo
        self.busy = 0
        self.most_busy = 0

    async def echo(self, request: Request) -> Completion:
        await lowlevel.checkpoint()
        return completion(f"{request.messages[-1].content}/{request.sample_index}")

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await self._answer(request)
        finally:
            self.busy -= 1

    async def aclose(self) -> None:
        pass


class Gate:
    """An answer function that waits until it is opened."""

    def __init__(self, n_expected: int = 1) -> None:
        self.n_expected = n_expected
        self.full = anyio.Event()
        self.open = anyio.Event()
        self._n = 0

    async def __call__(self, request: Request) -> Completion:
        self._n += 1
        if self._n == self.n_expected:
            self.full.set()
        await self.open.wait()
        return completion(request.messages[-1].content)


def scripted(*steps: Completion | Exception) -> Callable[[Request], Awaitable[Completion]]:
    """An answer function that gives or raises one step after the other."""
    left = list(steps)

    async def answer(request: Request) -> Completion:
        await lowlevel.checkpoint()
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    return answer


def completion(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(text, "fake-1", finish_reason, Usage(10, 5))


def text(answer: Completion) -> str:
    """A parser that takes everything but "bad..."."""
    if answer.text.startswith("bad"):
        raise ParseError(f"{answer.text} is bad")
    return answer.text
