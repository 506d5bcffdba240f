"""What a provider is, and how one is found by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.types import Completion, Request

#: Family name -> where its class is. Imported when asked for: SDKs are slow to import.
PROVIDERS: dict[str, str] = {
    "builtin": "claimscore.pipeline.llm.providers.builtin:BuiltinProvider",
    "openai": "claimscore.pipeline.llm.providers.openai:OpenAIProvider",
    "openai-batch": "claimscore.pipeline.llm.providers.openai_batch:OpenAIBatchProvider",
}


#: Takes answers into the cache; when it returns, a kill loses none of them.
Keep = Callable[[Mapping[str, Completion]], None]
#: The answers that are in the cache already.
Find = Callable[[Sequence[str]], Mapping[str, Completion]]


class Provider(Protocol):
    """Answers one request at a time, many at once; raises only `claimscore.errors`.

    It neither retries nor waits nor remembers answers: that is the engine's work.
    """

    family: str
    namespace: str
    model: str

    async def complete(self, request: Request) -> Completion:
        """Ask; the answer may be empty, cut off (`finish_reason` "length") or off the schema."""

    async def aclose(self) -> None:
        """Close connections; may be called twice."""


@runtime_checkable
class Diagnosable(Protocol):
    """A provider that can find out why nothing is answered."""

    async def diagnose(self) -> None:
        """Raise what will not change by waiting (wrong key, unknown model); else return."""


@runtime_checkable
class Collecting(Protocol):
    """A provider that answers in batches, after minutes or hours, and after a restart too.

    `batch_size` is how many requests should wait at once; it keeps its own limits and time.
    """

    batch_size: int

    async def recover(self, keep: Keep, find: Find | None = None) -> None:
        """Collect what earlier runs have sent; from now on every answer goes to `keep` first."""

    def notice(self) -> str | None:
        """What is under way, for people who stop now; None where nothing is."""

    def under_way(self) -> tuple[str, float]:
        """What is waited for, in words, and for how many seconds already; "" for nothing."""


def load_provider(config: LLMConfig) -> Provider:
    """The provider that `config.model` names: `builtin` or `openai:MODEL`."""
    family, colon, model = config.model.partition(":")
    if family not in PROVIDERS:
        raise ConfigError(
            f"unknown LLM {config.model!r}; known: {', '.join(sorted(PROVIDERS))} "
            "(a hosted model is named openai:MODEL)"
        )
    if colon and not model:
        raise ConfigError(f"--llm {config.model}: a model must follow, as in {family}:MODEL")
    module, _, name = PROVIDERS[family].partition(":")
    loaded: Any = getattr(importlib.import_module(module), name)
    return cast(Provider, loaded.from_config(config))
