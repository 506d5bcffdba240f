"""The provider behind `--llm builtin`: rules instead of a model, nothing sent anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from claimscore.baseline import decompose_text, facts, negate, paraphrase
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.types import ANSWERS, JSON, TEXT_NUMBER, Completion, Request

MODEL = "builtin-rules-1"


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


class BuiltinProvider:
    """Answers the tasks of `TASKS` by rules; the same request gets the same bytes.

    Samples do not differ: temperature and `sample_index` change nothing.
    """

    family = "builtin"
    namespace = "builtin"
    model = MODEL

    @classmethod
    def from_config(cls, config: LLMConfig) -> BuiltinProvider:
        if config.model not in ("builtin", f"builtin:{MODEL}"):
            raise ConfigError(f"unknown LLM {config.model!r}; known: builtin (or openai:MODEL)")
        return cls()

    async def complete(self, request: Request) -> Completion:
        """`ConfigError` for a task that the rules do not know."""
        answer = ruled(request)
        if answer is None:
            task = request.output.name if request.output is not None else None
            known = ", ".join(TASKS)
            raise ConfigError(
                f"builtin can only do {known}, not {task or 'free text'}; use --llm openai:MODEL"
            )
        return Completion(text=json.dumps(answer, ensure_ascii=False), model=self.model)

    async def aclose(self) -> None:
        """Nothing to close."""


def ruled(request: Request) -> JSON | None:
    """The rules' answer to a request, to each of its texts where it is about several numbered
    ones; None where there are no rules for its task."""
    rule = TASKS.get(request.output.name) if request.output is not None else None
    if rule is None or request.output is None:
        return None
    if set(request.output.schema.get("properties", {})) != {ANSWERS}:
        return rule(input_text(request))
    texts = enumerate(numbered_texts(_last_user(request)), start=1)
    return {ANSWERS: [{TEXT_NUMBER: number, **rule(text)} for number, text in texts]}


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
