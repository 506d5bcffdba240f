"""How many tokens a request takes, without a tokenizer: at most, and by what servers report."""

from __future__ import annotations

import json
import math

from claimscore.types import Completion, Request, utf8_bytes

#: Bytes of UTF-8 a token, where no answer of the model says better: right for English prose,
#: and not far off for other scripts, whose characters have more bytes.
BYTES_PER_TOKEN = 4.0

#: The first expectation of a prompt counts as so many tokens of it.
_FIRST_TOKENS = 10.0

#: The first expectation of an answer, as a share of the tokens that it may have.
_FIRST_SHARE = 1 / 16

#: About so many answers are remembered.
_MEMORY = 200

#: What a chat template, a server's own system prompt and the order to answer in JSON may add.
_REQUEST_OVERHEAD_TOKENS = 256
_MESSAGE_OVERHEAD_TOKENS = 16


def most_tokens(request: Request) -> tuple[int, int]:
    """Bounds of a request's prompt and completion tokens that need no tokenizer.

    Tokenizers of today's models take at least one byte of UTF-8 for a token, so a text has
    at most as many tokens as bytes. The schema and parameters of one's own (`tools`) count as
    texts; roles, templates and what else a server adds are covered by allowances, several times
    what is usual.
    """
    prompt = _REQUEST_OVERHEAD_TOKENS
    for _, content in request.messages:
        prompt += utf8_bytes(content) + _MESSAGE_OVERHEAD_TOKENS
    if request.output is not None:
        prompt += utf8_bytes(request.output.name) + utf8_bytes(json.dumps(request.output.schema))
    return prompt + _extra_bytes(request), request.max_tokens


class TokenMeans:
    """What requests that are alike took: prompts of one language, answers of one schema."""

    def __init__(self) -> None:
        self.n_seen = 0
        self.output_tokens = 0.0
        self._bytes = BYTES_PER_TOKEN * _FIRST_TOKENS
        self._prompt_tokens = _FIRST_TOKENS

    @property
    def bytes_per_token(self) -> float:
        """Of prompts."""
        return self._bytes / self._prompt_tokens

    def learn(self, n_bytes: int, prompt: int, output: int) -> None:
        """An answer to a prompt of so many bytes."""
        self.n_seen += 1
        keep = 1 - 1 / _MEMORY
        self._bytes = keep * self._bytes + n_bytes
        self._prompt_tokens = keep * self._prompt_tokens + prompt
        self.output_tokens += (output - self.output_tokens) / min(self.n_seen, _MEMORY)


class TokenEstimate:
    """Expects what the server reported of requests with the same output schema.

    Reserving the most that a request may take would leave most of a limit unused; it is reserved
    only until one with its schema was answered. It counts as one answer from then on, since short
    answers come first.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, TokenMeans] = {}

    def expect(self, request: Request) -> tuple[int, int]:
        """Tokens that a request not yet sent takes likely, and that are to be reserved for it."""
        kind = self._kinds.get(_name(request), TokenMeans())
        prompt, most = prompt_bytes(request) / kind.bytes_per_token, request.max_tokens
        n_seen, answers = kind.n_seen, kind.n_seen * min(kind.output_tokens, most)
        likely = math.ceil(prompt + (_FIRST_SHARE * most + answers) / (1 + n_seen))
        reserved = math.ceil(prompt + (most + answers) / (1 + n_seen))
        return likely, reserved if n_seen else sum(most_tokens(request))

    def learn(self, request: Request, completion: Completion) -> int:
        """Tokens that an answered request took, by the server's count where it gave one, and at
        most what it can have taken: one wild count must not stop all sending."""
        n_bytes = prompt_bytes(request)
        prompt, output = completion.usage.prompt_tokens, completion.usage.completion_tokens
        if prompt is None:
            prompt = math.ceil(n_bytes / BYTES_PER_TOKEN)
        if output is None:
            output = math.ceil(utf8_bytes(completion.text) / BYTES_PER_TOKEN)
        prompt, output = map(min, (prompt, output), most_tokens(request))
        self._kinds.setdefault(_name(request), TokenMeans()).learn(n_bytes, prompt, output)
        return prompt + output


def prompt_bytes(request: Request) -> int:
    """Bytes of UTF-8 of all messages, and of parameters of one's own, which may hold texts."""
    return sum(utf8_bytes(content) for _, content in request.messages) + _extra_bytes(request)


def _extra_bytes(request: Request) -> int:
    extra = dict(request.extra)
    return utf8_bytes(json.dumps(extra, ensure_ascii=False)) if extra else 0


def _name(request: Request) -> str:
    return "" if request.output is None else request.output.name
