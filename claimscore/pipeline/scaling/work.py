"""How much a run has to do, whoever does it."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, slots=True)
class PassWork:
    """A model pass: its items (pairs or texts) and their tokens, as `passes.counting` counts
    them."""

    step: str
    items: float
    tokens: float

    def times(self, factor: float) -> PassWork:
        return dataclasses.replace(self, items=self.items * factor, tokens=self.tokens * factor)


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What a run asks, computes and writes.

    `waves` are the requests of a chunk that wait for each other's answers, one after the other
    (claims are negated after they were made: 2). `steps` are what the manifest has of a chunk.
    """

    records: float
    requests: float
    prompt_tokens: float
    completion_tokens: float
    passes: tuple[PassWork, ...] = ()
    chunk_records: int = 64
    waves: int = 1
    steps: int = 1

    @property
    def tokens(self) -> float:
        """Tokens of the language model, prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def items(self) -> float:
        """Pairs and texts of all passes."""
        return sum(one.items for one in self.passes)

    @property
    def chunks(self) -> int:
        return math.ceil(self.records / self.chunk_records)

    def times(self, factor: float) -> Work:
        """The same of so many times the records."""
        return dataclasses.replace(
            self,
            records=self.records * factor,
            requests=self.requests * factor,
            prompt_tokens=self.prompt_tokens * factor,
            completion_tokens=self.completion_tokens * factor,
            passes=tuple(one.times(factor) for one in self.passes),
        )
