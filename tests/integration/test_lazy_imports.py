"""Heavy packages are imported only where they are needed; each case is a fresh process."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "openai", "transformers", "polars", "nltk", "numpy", "obstore", "ray"}
MORE = {"rich", "pydantic", "anyio"}
METRICS = "from claimscore.metrics import METRICS, load_metric; [*map(load_metric, METRICS)]"
PRICE = (
    "from types import SimpleNamespace; from claimscore.config import LLMConfig;"
    "from claimscore.pipeline.llm.budget.pricing import find_price;"
    "find_price(LLMConfig(), SimpleNamespace(is_local=True, family='builtin'), 'm')"
)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["-c", "import claimscore"], HEAVY),
        (["-m", "claimscore", "--help"], HEAVY | MORE),
        (["-m", "claimscore", "map", "--help"], HEAVY | MORE),
        (
            ["-m", "claimscore", "evaluate", "--help"],
            {"numpy", "scipy", "polars", "rich.table", "torch"},
        ),
        (["-c", METRICS], {"nltk", "regex", "torch", "openai"}),
        (["-c", PRICE], {"genai_prices"}),
        (["-c", "import claimscore.pipeline.llm.providers.openai"], {"openai"}),
    ],
    ids=lambda given: given[-1] if isinstance(given, list) else "",
)
def test_nothing_heavy_is_imported(arguments: list[str], heavy: set[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert imported.isdisjoint(heavy)
