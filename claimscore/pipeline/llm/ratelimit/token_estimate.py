"""How many tokens a request will take, without a tokeniser: learnt from what servers report."""

from __future__ import annotations

import math

from claimscore.types import Completion, Request

#: English text has about four characters a token.
CHARACTERS_PER_TOKEN = 4.0

#: The first expectation counts as so many tokens of prompt, and as one answer.
_FIRST_TOKENS = 10.0

#: Before any was seen, answers are expected to be this much shorter than they may be.
_FIRST_SHARE = 1 / 8

#: About so many answers are remembered.
_MEMORY = 200


class _Kind:
    """Requests that are alike: prompts of one language, answers of one schema."""

    def __init__(self) -> None:
        self.n_seen = 0
        self._characters = CHARACTERS_PER_TOKEN * _FIRST_TOKENS
        self._prompt_tokens = _FIRST_TOKENS
        self._output_tokens = 0.0

    def prompt_tokens(self, characters: int) -> float:
        return characters * self._prompt_tokens / self._characters

    def output_tokens(self, max_tokens: int) -> float:
        seen = self.n_seen * self._output_tokens
        return min((max_tokens * _FIRST_SHARE + seen) / (1 + self.n_seen), max_tokens)

    def learn(self, characters: int, prompt: int, output: int) -> None:
        self.n_seen += 1
        n = min(self.n_seen, _MEMORY)
        keep = 1 - 1 / _MEMORY
        self._characters = keep * self._characters + characters
        self._prompt_tokens = keep * self._prompt_tokens + prompt
        self._output_tokens += (output - self._output_tokens) / n


class TokenEstimate:
    """Expects what the server reported of requests with the same output schema.

    Reserving `max_tokens` instead would leave most of a limit unused. Before the first
    answer with a schema, prompts are expected to be like those of others.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._all = _Kind()

    def expect(self, request: Request) -> int:
        """Prompt and completion tokens of a request not yet sent."""
        kind = self._kinds.get(_name(request))
        prompt = (kind or self._all).prompt_tokens(_characters(request))
        output = (kind or _NEW).output_tokens(request.max_tokens)
        return math.ceil(prompt + output)

    def learn(self, request: Request, completion: Completion) -> int:
        """Tokens that an answered request took, by the server's count where it gave one."""
        characters = _characters(request)
        kind = self._kinds.setdefault(_name(request), _Kind())
        prompt, output = completion.usage.prompt_tokens, completion.usage.completion_tokens
        if prompt is None:
            prompt = math.ceil(characters / CHARACTERS_PER_TOKEN)
        if output is None:
            output = math.ceil(len(completion.text) / CHARACTERS_PER_TOKEN)
        kind.learn(characters, prompt, output)
        self._all.learn(characters, prompt, output)
        return prompt + output


_NEW = _Kind()


def _name(request: Request) -> str:
    return "" if request.output is None else request.output.name


def _characters(request: Request) -> int:
    return sum(len(message.content) for message in request.messages)
