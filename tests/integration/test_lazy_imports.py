"""Heavy packages are imported only where they are needed; each case is a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "openai", "transformers", "polars", "nltk", "numpy", "obstore", "ray"}


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        pytest.param(["-c", "import claimscore"], HEAVY, id="import"),
        pytest.param(["-m", "claimscore", "--help"], HEAVY, id="help"),
        pytest.param(
            ["-m", "claimscore", "evaluate", "--help"],
            {"numpy", "scipy", "polars", "rich.table", "torch"},
            id="help of a group",
        ),
        pytest.param(
            [
                "-c",
                "from claimscore.metrics import METRICS, load_metric;"
                "[load_metric(name) for name in METRICS]",
            ],
            {"nltk", "regex", "torch", "openai"},
            id="metrics",
        ),
        pytest.param(
            [
                "-c",
                "from claimscore.pipeline.llm.budget import pricing;"
                "from claimscore.config import LLMConfig; pricing.find_price(LLMConfig())",
            ],
            {"genai_prices"},
            id="the price of the built-in provider",
        ),
        pytest.param(
            ["-c", "import claimscore.pipeline.llm.providers.openai"],
            {"openai"},
            id="the provider of OpenAI's API",
        ),
    ],
)
def test_nothing_heavy_is_imported(arguments: list[str], heavy: set[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert imported.isdisjoint(heavy)
