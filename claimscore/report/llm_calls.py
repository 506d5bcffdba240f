"""The language model's calls behind a run's rows: rendered again, and looked up in the cache.

A prompt is shown only where its request comes to the very key that the row has, so what is
shown is what was sent. Those of questions that were asked more than once are not looked for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, DiskCache
from claimscore.config import user_cache_dir
from claimscore.errors import ClaimscoreError
from claimscore.metrics.support import BEST
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm_stage import PromptRequests
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import WINDOW_TOKENS, TaskInput, side_texts
from claimscore.prompts import Prompt, available_versions, load_prompt
from claimscore.report.report_tables import DetailChunk, LLMCall
from claimscore.runs import RunDirectory
from claimscore.types import Message


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
        self._cache = cache

    def __call__(self, chunk: DetailChunk, keys: frozenset[str]) -> dict[str, LLMCall]:
        """For each key the conversation and the answer, as far as they are there."""
        messages = self._messages(chunk, keys)
        stored = self._cache.get_many(sorted(keys)) if self._cache is not None else {}
        return {key: LLMCall(messages.get(key), stored.get(key)) for key in keys}

    def _messages(self, chunk: DetailChunk, keys: frozenset[str]) -> dict[str, tuple[Message, ...]]:
        """The conversations of the keys, of those that are of a question as it is asked first."""
        messages: dict[str, tuple[Message, ...]] = {}
        tables = {"claims": chunk.claims, "llm_answers": chunk.llm_answers}
        for name, prompt in self._prompts.items():
            if name not in self._providers:
                continue
            task = TASKS[name]
            texts = side_texts(chunk.records, task.sides_in(chunk.records.columns))
            given = TaskInput(texts, self._granularity, tables, chunk.records, *self._how)
            prompt_requests = PromptRequests(task, prompt, self._providers[name], self._granularity)
            for question in prompt_requests.questions(task.units(given)):
                if (key := request_key(question.request)) in keys:
                    messages[key] = question.request.messages
        return messages


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
