"""Which requests the units of a task make, and what an answer says of which unit. Pure.

A request is about one unit, or about several of one text where the prompt takes a list. An
answer about several is used as far as it is right: a unit that it leaves out or gets wrong is
asked about alone, so it costs the others nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from claimscore.config import Granularity
from claimscore.errors import ParseError
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.tasks.base import Task, Unit
from claimscore.prompts import Prompt, numbered
from claimscore.prompts.prompt import PromptSettings
from claimscore.types import Completion, OutputSchema, Request

#: A unit by its position, and which of its samples.
Place = tuple[int, int]


class Question(NamedTuple):
    """One request, the positions of the units it is about, and which sample it is."""

    request: Request
    units: tuple[int, ...]
    sample: int


def asked_settings(prompt: Prompt, granularity: Granularity) -> PromptSettings:
    """How a sentence, or a whole summary, is asked about."""
    return prompt.summary_settings if granularity == "summary" else prompt.settings


class Asking:
    """One task with one prompt: from units to requests, from answers back to units.

    Of `provider` only the names are used, which are part of every request.
    """

    def __init__(
        self, task: Task, prompt: Prompt, provider: Provider, granularity: Granularity
    ) -> None:
        self.task = task
        self.prompt = prompt
        self.settings = asked_settings(prompt, granularity)
        self.n_samples = self.settings.samples
        self._provider = provider
        schema = prompt.schema
        self._output = OutputSchema(task.name, schema.schema) if schema else None

    def questions(self, units: Sequence[Unit]) -> list[Question]:
        """All that is asked about the units, in their order; of each as many samples as wanted."""
        return [
            self._question(units, group, sample)
            for group in self._groups(units)
            for sample in range(self.n_samples)
        ]

    def alone(
        self, question: Question, left: Iterable[int], units: Sequence[Unit]
    ) -> list[Question]:
        """The same about each unit that is left, by itself."""
        return [self._question(units, (unit,), question.sample) for unit in left]

    def parse_one(self, completion: Completion) -> dict[str, Any]:
        """The answer about one unit; `ParseError` where it cannot be used."""
        if self.prompt.takes_several:
            answers = self.parse_several(completion)
            if set(answers) != {1} or answers[1] is None:
                numbers = ", ".join(map(str, answers))
                raise ParseError(f"text 1 was asked about, and answered was text {numbers}")
            return answers[1]
        answer = self.prompt.parse(completion.text)
        self.task.check(answer)
        return answer if self.task.refine is None else self.task.refine(completion, answer)

    def parse_several(self, completion: Completion) -> dict[int, dict[str, Any] | None]:
        """The answers by the number of the text, None for those that cannot be used;
        `ParseError` where none can."""
        answers, why = self.prompt.parse_several(completion.text), ""
        for number, answer in answers.items():
            try:
                if answer is not None:
                    self.task.check(answer)
            except ParseError as exc:
                answers[number], why = None, f"text {number}: {exc}"
        if all(answer is None for answer in answers.values()):
            raise ParseError(why)
        return answers

    def said(
        self, question: Question, answers: Mapping[int, dict[str, Any] | None]
    ) -> dict[int, dict[str, Any]]:
        """The answers that can be used, by unit. None is where a number is nobody's: who counts
        otherwise than we do may mean another text with every number."""
        if not all(1 <= number <= len(question.units) for number in answers):
            return {}
        return {
            question.units[n - 1]: answer for n, answer in answers.items() if answer is not None
        }

    def _groups(self, units: Sequence[Unit]) -> list[tuple[int, ...]]:
        """Units that are asked about together: neighbours in one text, so many at a time."""
        if not self.prompt.takes_several:
            return [(index,) for index in range(len(units))]
        size = self.settings.texts_per_request
        of_texts = itertools.groupby(
            range(len(units)), key=lambda i: (units[i].id, units[i].side, units[i].summary)
        )
        groups = []
        for _, group in of_texts:
            text = tuple(group)
            groups += [text[start : start + size] for start in range(0, len(text), size)]
        return groups

    def _question(self, units: Sequence[Unit], group: tuple[int, ...], sample: int) -> Question:
        prompt, settings = self.prompt, self.settings
        fields = units[group[0]].fields(prompt.fields)
        if prompt.takes_several:
            fields["texts"] = numbered([units[index].text for index in group])
        request = Request(
            provider=self._provider.family,
            namespace=self._provider.namespace,
            model=settings.model or self._provider.model,
            messages=prompt.render(**fields),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            output=self._output,
            sample_index=sample,
            top_logprobs=self.task.top_logprobs,
        )
        return Question(request, group, sample)
