"""What a request can cost at most, and what one did cost, by the prices that are known."""

from __future__ import annotations

import json
from collections.abc import Mapping

from claimscore.pipeline.llm.account import Ended, Most
from claimscore.pipeline.llm.prices import Price
from claimscore.types import OutputSchema, Request, Usage

#: What a chat template, a server's own system prompt and the order to answer in JSON may add.
_REQUEST_OVERHEAD_TOKENS = 256
_MESSAGE_OVERHEAD_TOKENS = 16


class Reservation:
    """One attempt that may be sent. It is ended once: settled, released or kept."""

    __slots__ = ("number", "pico_usd", "request")

    def __init__(self, request: Request, number: int = 0, pico_usd: int = 0) -> None:
        self.request = request
        self.number = number
        self.pico_usd = pico_usd


class Billing:
    """The prices of a run's models; `others` are those besides the one of `price`."""

    def __init__(self, price: Price | None, others: Mapping[str, Price] | None = None) -> None:
        self.price = price
        self._others = dict(others or {})
        self._schema: tuple[OutputSchema | None, int] = (None, 0)

    def price_of(self, request: Request) -> Price | None:
        """What its model costs: the run's, or another that a prompt names."""
        return self._others.get(request.model, self.price)

    def most(self, request: Request) -> Most:
        """Bounds of what it may use, and what that costs."""
        prompt, completion = self.most_tokens(request)
        price = self.price_of(request)
        return Most(prompt, completion, 0 if price is None else price.most(prompt, completion))

    def most_tokens(self, request: Request) -> tuple[int, int]:
        """Bounds of a request's prompt and completion tokens that need no tokenizer.

        Tokenizers of today's models take at least one byte of UTF-8 for a token, so a text has
        at most as many tokens as bytes. The schema counts as a text; roles, templates and what
        else a server adds are covered by allowances, several times what is usual.
        """
        prompt = _REQUEST_OVERHEAD_TOKENS + self._schema_bytes(request.output)
        for _, content in request.messages:
            prompt += _n_bytes(content) + _MESSAGE_OVERHEAD_TOKENS
        return prompt, request.max_tokens

    def answered(self, reservation: Reservation, usage: Usage) -> Ended:
        """What an answer cost; where usage is missing, the most that it can have."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        reported_prompt, reported_completion = prompt or 0, completion or 0
        if prompt is None or completion is None:
            most_prompt, most_completion = self.most_tokens(reservation.request)
            prompt = most_prompt if prompt is None else prompt
            completion = most_completion if completion is None else completion
        price = self.price_of(reservation.request)
        pico = 0
        if price is not None:
            pico = price.cost(prompt, completion, usage.cached_prompt_tokens or 0)
            prompt = completion = 0  # priced
        return Ended(
            reservation.number, 1, reported_prompt, reported_completion, pico, 0, prompt, completion
        )

    def unanswered(self, reservation: Reservation) -> Ended:
        """What a request counts for of which nobody knows whether it was billed: all of it."""
        prompt, completion = self.most_tokens(reservation.request)
        pico, price = 0, self.price_of(reservation.request)
        if price is not None:
            pico = reservation.pico_usd or price.most(prompt, completion)
            prompt = completion = 0  # priced
        return Ended(reservation.number, 1, 0, 0, 0, pico, prompt, completion)

    def _schema_bytes(self, output: OutputSchema | None) -> int:
        """The schema's length as it is sent; that of the last one is remembered."""
        if output is None:
            return 0
        known, n_bytes = self._schema
        if known is not output:
            n_bytes = _n_bytes(output.name) + _n_bytes(json.dumps(output.schema))
            self._schema = (output, n_bytes)
        return n_bytes


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
