"""A post between engines and services in one process: it delays, loses, and may be down."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import anyio

from claimscore.pipeline.llm.services.head import Services
from claimscore.pipeline.llm.services.letters import Letter, Reply, Unreachable


class Post:
    """Carries letters to whichever services there are; `lose` says which replies get lost.

    Letters and replies are copied, as every real transport does.
    """

    def __init__(self, services: Services | None, delay_s: float = 0.0) -> None:
        self.services = services
        self.delay_s = delay_s
        self.lose: Callable[[Letter], bool] = lambda letter: False
        self.cut: set[str] = set()
        self.letters: list[Letter] = []
        self.ops: Counter[str] = Counter()

    async def __call__(self, letter: Letter) -> Reply:
        await anyio.sleep(self.delay_s)
        services = self.services
        if services is None or letter[0] in self.cut:
            raise Unreachable("the services are down")
        self.letters.append(letter)
        self.ops.update(op[0] for op in letter[3])
        reply = copy.deepcopy(await services.handle(copy.deepcopy(letter)))
        if self.services is not services or self.lose(letter) or letter[0] in self.cut:
            raise Unreachable("the reply was lost")
        return reply
