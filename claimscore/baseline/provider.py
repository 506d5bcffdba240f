"""The provider behind `--llm builtin` and `builtin-rules`: nothing is sent anywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from itertools import islice

from anyio import CapacityLimiter, Event, to_thread

from claimscore.baseline import decompose_text, facts, negate, paraphrase
from claimscore.baseline.claim_maker import ClaimMaker
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.types import ANSWERS, JSON, TEXT_NUMBER, Completion, Request

#: What makes the claims: a parser, or rules alone.
PARSER = "builtin-parser-4"
RULES = "builtin-rules-1"
_NAMES = {"builtin": PARSER, "builtin-rules": RULES}


def _decompose(text: str) -> JSON:
    return {"claims": decompose_text(text)}


def _paraphrase(text: str) -> JSON:
    return {"paraphrase": paraphrase(_INSTRUCTION.sub("", text, count=1))}


def _negate(text: str) -> JSON:
    return {"negation": negate(text)}


def _facts(text: str) -> JSON:
    return {"facts": [{"subject": s, "description": d} for s, d in facts(text)]}


#: Task, as the prompt's output schema is named -> its answer for a text.
TASKS: dict[str, Callable[[str], JSON]] = {
    "decompose": _decompose,
    "paraphrase": _paraphrase,
    "negate": _negate,
    "facts": _facts,
}

# Greedy up to the last closing tag: the text itself may contain the tag.
_BLOCK = re.compile(r"<text>(.*)</text>", re.DOTALL)
_NUMBERED = re.compile(r"(\d+)\. (.*)")
_INSTRUCTION = re.compile(r"\A\s*paraphrase this:\s*", re.IGNORECASE)


#: Most requests whose sentences are parsed together.
_TOGETHER = 32


class _Asked:
    """The texts of a request, and their claims once they are made."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.claims: list[list[str]] | None = None
        self.is_over = Event()


class BuiltinProvider:
    """Answers the tasks of `TASKS`; the same request gets the same bytes.

    Rules answer, but claims are made with the parser where the model is `PARSER`. Samples do not
    differ: temperature and `sample_index` change nothing.
    """

    family = "builtin"
    namespace = "builtin"

    def __init__(self, model: str = PARSER) -> None:
        self.model = model
        self._maker = ClaimMaker()
        self._turns = CapacityLimiter(os.cpu_count() or 1)
        self._waiting: list[_Asked] = []

    @classmethod
    def from_config(cls, config: LLMConfig) -> BuiltinProvider:
        return cls(model_of(config))

    async def complete(self, request: Request) -> Completion:
        """`ConfigError` for a task that the rules do not know."""
        answer: JSON | None
        if self.model == PARSER and request.output and request.output.name == "decompose":
            answer = await self._parsed(request)
        else:
            answer = ruled(request)
        if answer is None:
            task = request.output.name if request.output is not None else None
            known = ", ".join(TASKS)
            raise ConfigError(
                f"builtin can only do {known}, not {task or 'free text'}; use --llm openai:MODEL"
            )
        return Completion(text=json.dumps(answer, ensure_ascii=False), model=self.model)

    async def _parsed(self, request: Request) -> JSON:
        """The claims of a request's texts. All requests that wait for a thread go together, since
        the parser reads many sentences in less time than one by one."""
        asked = _Asked(_texts(request))
        self._waiting.append(asked)
        async with self._turns:
            if asked in self._waiting:
                together, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
                try:
                    texts = [text for each in together for text in each.texts]
                    made = iter(await to_thread.run_sync(self._maker.claims, texts))
                    for each in together:
                        each.claims = list(islice(made, len(each.texts)))
                finally:
                    for each in together:
                        each.is_over.set()
        await asked.is_over.wait()
        if asked.claims is None:  # the request that took it along was cancelled, or failed
            return await self._parsed(request)
        claims = iter(asked.claims)
        return _answer(request, lambda _: {"claims": next(claims)})

    async def aclose(self) -> None:
        """Nothing to close."""


def model_of(config: LLMConfig) -> str:
    """What `builtin` or `builtin-rules` is; `ConfigError` for another name."""
    model = _NAMES.get(config.model, config.model.removeprefix("builtin:"))
    if model not in _NAMES.values():
        raise ConfigError(
            f"unknown LLM {config.model!r}; known: builtin, builtin-rules (or openai:MODEL)"
        )
    return model


def ruled(request: Request) -> JSON | None:
    """The rules' answer to a request, to each of its texts where it is about several numbered
    ones; None where there are no rules for its task."""
    rule = TASKS.get(request.output.name) if request.output is not None else None
    return None if rule is None else _answer(request, rule)


def _is_numbered(request: Request) -> bool:
    properties = request.output.schema.get("properties", {}) if request.output else {}
    return set(properties) == {ANSWERS}


def _texts(request: Request) -> list[str]:
    if _is_numbered(request):
        return numbered_texts(_last_user(request))
    return [input_text(request)]


def _answer(request: Request, answer: Callable[[str], JSON]) -> JSON:
    answers = [answer(text) for text in _texts(request)]
    if not _is_numbered(request):
        return answers[0]
    return {ANSWERS: [{TEXT_NUMBER: k, **own} for k, own in enumerate(answers, start=1)]}


def input_text(request: Request) -> str:
    """The text to work on: the last user message, or the `<text>` block in it."""
    content = _last_user(request)
    block = _BLOCK.search(content)
    return (block[1] if block else content).strip()


def _last_user(request: Request) -> str:
    return next((m.content for m in reversed(request.messages) if m.role == "user"), "")


def numbered_texts(content: str) -> list[str]:
    """The texts of the last list `1. ...`, one a line."""
    texts: list[str] = []
    for line in content.split("\n"):
        numbered = _NUMBERED.fullmatch(line)
        if numbered is None:
            continue
        number = int(numbered[1])
        if number == 1:
            texts = []
        if number == len(texts) + 1:
            texts.append(numbered[2])
    return texts
