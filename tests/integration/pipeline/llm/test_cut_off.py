"""The cap reserves a longer answer before it is asked, on the fake server."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from claimscore.config import LLMConfig
from claimscore.errors import BudgetError
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.session import open_engine
from tests.fake_server import FakeServer, text_answer
from tests.support.engine_doubles import text
from tests.unit.pipeline.llm.test_engine import ask

pytestmark = pytest.mark.anyio


async def test_the_cap_reserves_the_larger_sum_before_it_is_sent(tmp_path: Path) -> None:
    """A larger request that may not fit is not sent; what was answered is kept."""
    with FakeServer(answer=text_answer("cut"), completion_tokens=2000) as server:
        prices = {"input_price": 0.0, "output_price": 1.0, "max_cost": 1700 / 1e6}
        llm = LLMConfig(model="openai:m", base_url=server.base_url, **prices)
        cache = tmp_path / "cache"
        for _ in range(2):
            with contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger:
                async with open_engine(llm, load_provider(llm), cache, ledger=ledger) as engine:
                    with pytest.raises(BudgetError, match=r"768 .* may cost up to \$0\.001024"):
                        await engine.answer_all(ask(engine, "a"), text)
            assert [body["max_tokens"] for body in server.bodies] == [256, 512]
