"""What each provider promises, whatever it asks: one test for all of `PROVIDERS`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.pipeline.llm.providers.base import (
    PROVIDERS,
    Collecting,
    Provider,
    load_provider,
    provider_class,
)
from claimscore.prompts import load_prompt
from claimscore.types import OutputSchema, Request
from tests.fake_server import FakeServer

BATCHES = [f"{family}-batch" for family in PROVIDERS if provider_class(family).batches]
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("family", [*PROVIDERS, *BATCHES])]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """It and `builtin` make the same claims of this test's sentence."""
    with FakeServer(batch_delay_s=0.0) as server:
        yield server


def provider_of(family: str, server: FakeServer) -> Provider:
    if family == "builtin":
        return load_provider(LLMConfig(model="builtin"))
    return load_provider(LLMConfig(model=f"{family}:m", base_url=server.base_url))


async def test_the_same_question_has_the_same_answer(
    family: str, server: FakeServer, tmp_path: Path
) -> None:
    provider = provider_of(family, server)
    prompt = load_prompt("decompose", "v1")
    request = Request(
        provider=provider.family,
        namespace=provider.namespace,
        model=provider.model,
        messages=prompt.render({"text": "The rooms are large and quiet."}),
        output=OutputSchema("decompose", {"type": "object"}),
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            if isinstance(provider, Collecting):
                provider.start(tasks)
            completion = await provider.complete(request)
            await provider.aclose()
            await provider.aclose()
            tasks.cancel_scope.cancel()
    assert "The rooms are large." in completion.text
    assert "The rooms are quiet." in completion.text
    assert completion.finish_reason == "stop"
    assert provider.family in family
    assert provider.namespace
    assert provider.model
