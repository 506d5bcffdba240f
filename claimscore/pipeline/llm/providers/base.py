"""What a provider is, and how one is found by name."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.types import Completion, Request

#: Family name -> where its class is. Imported when asked for: SDKs are slow to import.
PROVIDERS: dict[str, str] = {
    "builtin": "claimscore.pipeline.llm.providers.builtin:BuiltinProvider",
    "openai": "claimscore.pipeline.llm.providers.openai:OpenAIProvider",
    "openai-batch": "claimscore.pipeline.llm.providers.openai_batch:OpenAIBatchProvider",
}


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
