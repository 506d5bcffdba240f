"""The language model's calls behind a run's rows: rendered again, and looked up in the cache.

A prompt is shown only where its request comes to the very key that the row has, so what is
shown is what was sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, DiskCache
from claimscore.config import LLMConfig, user_cache_dir
from claimscore.errors import ClaimscoreError, ParseError
from claimscore.metrics.support import BEST
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.question import Answer, token_steps
from claimscore.pipeline.llm_stage import PromptRequest, PromptRequests
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import WINDOW_TOKENS, TaskInput, Unit, side_texts
from claimscore.prompts import Prompt, available_versions, load_prompt
from claimscore.report.report_tables import DetailChunk, LLMCall
from claimscore.runs import RunDirectory
from claimscore.types import Message, Request

NOT_IN_CACHE = "The answer is not in the cache on this machine."
NOT_RENDERED = (
    "The prompt cannot be rendered again: its file, or what it asks about, is not what it was."
)


class RunLLMCalls:
    """Looks up the calls of a run.

    `settings` are those of its directory, `cache` has its answers (None where there is no cache),
    `prompts` are those that it asked with, by task.
    """

    def __init__(
        self, settings: Mapping[str, Any], cache: Cache | None, prompts: Mapping[str, Prompt]
    ) -> None:
        additive = settings["additive"]
        self._providers = {task: _named(llm) for task, llm in additive["llm"].items()}
        self._granularity = additive.get("texts", {}).get("granularity", "sentence")
        support = additive.get("support", {})
        self._how = support.get("window_tokens", WINDOW_TOKENS), support.get("evidence", BEST)
        self._prompts = dict(prompts)
        if "verify" in prompts:
            self._prompts["verify"] = prompts["verify"].sampled(support.get("verify_samples", 1))
        self._max_samples = LLMConfig().max_samples
        self._cache = cache

    def __call__(self, chunk: DetailChunk, keys: frozenset[str]) -> dict[str, LLMCall]:
        """For each key the conversation and the answer, as far as they are there."""
        messages = self._messages(chunk, keys)
        stored = self._cache.get_many(sorted(keys)) if self._cache is not None else {}
        return {
            key: LLMCall(
                messages.get(key),
                "" if key in messages else NOT_RENDERED,
                stored.get(key),
                "" if key in stored else NOT_IN_CACHE,
            )
            for key in keys
        }

    def _messages(self, chunk: DetailChunk, keys: frozenset[str]) -> dict[str, tuple[Message, ...]]:
        """The conversations of the keys. Most are found among first samples of the questions as
        they are asked; what is left is looked for among single texts and later samples."""
        messages: dict[str, tuple[Message, ...]] = {}
        tables = {"claims": chunk.claims, "llm_answers": chunk.llm_answers}
        for name, prompt in self._prompts.items():
            if name not in self._providers:
                continue
            task = TASKS[name]
            texts = side_texts(chunk.records, task.sides_in(chunk.records.columns))
            given = TaskInput(texts, self._granularity, tables, chunk.records, *self._how)
            units = task.units(given)
            prompt_requests = PromptRequests(task, prompt, self._providers[name], self._granularity)
            first = prompt_requests.questions(units)
            _match((question.request for question in first), keys, messages)
            if len(messages) < len(keys):
                single = [
                    question.request
                    for group in first
                    for question in (prompt_requests.alone(group, group.units, units))
                ]
                later = self._later(
                    [*(question.request for question in first), *single], prompt_requests
                )
                _match(later, keys, messages)
            if task.objection is not None and len(messages) < len(keys):
                _match(self._again(first, units, prompt_requests), keys, messages)
        return messages

    def _again(
        self,
        questions: Sequence[PromptRequest],
        units: Sequence[Unit],
        prompt_requests: PromptRequests,
    ) -> Iterator[Request]:
        """What was sent after stored answers that the task objects to."""
        for question in questions:
            place = question.units[0], question.sample
            requests = {request_key(r): r for r in self._later([question.request], prompt_requests)}
            stored = self._cache.get_many(list(requests)) if self._cache is not None else {}
            for key, completion in stored.items():
                with contextlib.suppress(ParseError):
                    value = prompt_requests.parse_one(completion)
                    answer = Answer(key, completion, value, cached=True)
                    again = prompt_requests.again(units, place, answer)
                    yield from self._later([again] if again else [], prompt_requests)

    def _later(
        self, requests: Iterable[Request], prompt_requests: PromptRequests
    ) -> Iterator[Request]:
        """The requests, and what follows where an answer was refused or cut off."""
        limit = prompt_requests.settings.max_tokens_limit
        for request in requests:
            for again in range(self._max_samples):
                index = request.sample_index + again * prompt_requests.n_samples
                for n_tokens in token_steps(request.max_tokens, limit):
                    yield dataclasses.replace(request, sample_index=index, max_tokens=n_tokens)


def _named(llm: Mapping[str, str]) -> Provider:
    """The names of a provider that was asked: nothing is sent."""
    names = SimpleNamespace(
        family=llm["provider"],
        namespace=llm["namespace"],
        model=llm["model"],
        params=json.loads(llm.get("params", "{}")),
    )
    return cast("Provider", names)


@contextlib.contextmanager
def open_llm_calls(
    directory: RunDirectory,
    cache_dir: Path | None,
    prompts: Mapping[str, str],
    prompts_dir: Path | None,
) -> Iterator[RunLLMCalls | None]:
    """Where prompts and answers of a run are looked up; None for one that asked no language model.

    A cache that is not there is not made, and one that cannot be opened is as if it were not. The
    run directory names no file: `prompts` and `prompts_dir` are the user's.
    """
    settings = directory.settings
    if "llm" not in settings["additive"]:
        yield None
        return
    folder = cache_dir or user_cache_dir()
    asked = dict(_prompts(settings["additive"].get("prompts", {}), prompts, prompts_dir))
    with contextlib.ExitStack() as stack:
        cache = None
        if DiskCache.is_in(folder):
            with contextlib.suppress(ClaimscoreError):
                cache = DiskCache(folder)
                stack.callback(cache.close)
        yield RunLLMCalls(settings, cache, asked)


def _match(
    requests: Iterable[Request], keys: frozenset[str], messages: dict[str, tuple[Message, ...]]
) -> None:
    for request in requests:
        key = request_key(request)
        if key in keys:
            messages[key] = request.messages


def _prompts(
    stored: Mapping[str, Mapping[str, str]], named: Mapping[str, str], prompts_dir: Path | None
) -> Iterator[tuple[str, Prompt]]:
    """The prompts of the run as they are now; those that cannot be read are left out."""
    for task in TASKS.keys() & stored.keys():
        version = stored[task].get("version", "")
        chosen = named.get(task, version)
        if task in named or version in available_versions(task, prompts_dir):
            with contextlib.suppress(ClaimscoreError):
                yield task, load_prompt(task, chosen, prompts_dir)
