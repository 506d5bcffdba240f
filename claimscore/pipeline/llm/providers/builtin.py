"""The provider behind `--llm builtin`: rules instead of a model, nothing sent anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm import rules
from claimscore.types import JSON, Completion, Request

MODEL = "builtin-rules-1"


def _decompose(text: str) -> JSON:
    return {"claims": rules.decompose_text(text)}


def _paraphrase(text: str) -> JSON:
    return {"paraphrase": rules.paraphrase(_INSTRUCTION.sub("", text, count=1))}


def _negate(text: str) -> JSON:
    return {"negation": rules.negate(text)}


def _facts(text: str) -> JSON:
    return {"facts": [{"subject": s, "description": d} for s, d in rules.facts(text)]}


#: Task, as the prompt's output schema is named -> its answer for a text.
TASKS: dict[str, Callable[[str], JSON]] = {
    "decompose": _decompose,
    "paraphrase": _paraphrase,
    "negate": _negate,
    "facts": _facts,
}

# Greedy up to the last closing tag: the text itself may contain the tag.
_BLOCK = re.compile(r"<text>(.*)</text>", re.DOTALL)
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
        task = request.output.name if request.output is not None else None
        answer = TASKS.get(task or "")
        if answer is None:
            known = ", ".join(TASKS)
            raise ConfigError(
                f"builtin can only do {known}, not {task or 'free text'}; use --llm openai:MODEL"
            )
        text = json.dumps(answer(input_text(request)), ensure_ascii=False)
        return Completion(text=text, model=self.model)

    async def aclose(self) -> None:
        """Nothing to close."""


def input_text(request: Request) -> str:
    """The text to work on: the last user message, or the `<text>` block in it."""
    content = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    block = _BLOCK.search(content)
    return (block[1] if block else content).strip()
