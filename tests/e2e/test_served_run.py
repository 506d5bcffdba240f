"""Runs whose models are behind a server: the same scores, stored, resumed, failing by the row."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.pipeline.encoders import nli
from tests.support.command_line import claimscore, table
from tests.support.pass_doubles import FunctionClassifier
from tests.support.served_models import make_hasty
from tests.support.tei_server import SHA, Tei, probabilities, serving

EXAMPLES = Path(__file__).parents[2] / "examples" / "hotels.jsonl"
KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)


@pytest.fixture
def server() -> Iterator[Tei]:
    with serving(Tei()) as found:
        found.info |= {"max_input_length": 16, "max_client_batch_size": 32}
        yield found


def scored(out: Path, model: str, *more: object) -> int:
    arguments = ("run", EXAMPLES, "--out", out, "--metrics", "caspr", "--nli", model, "--quiet")
    return claimscore(*arguments, *more)


def last_call(out: Path) -> Any:
    return json.loads((out / "summary.json").read_text())["last_call"]


def test_the_same_scores_as_on_this_machine(
    server: Tei, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.key = KEY
    monkeypatch.setenv("CLAIMSCORE_NLI_API_KEY", KEY)
    assert scored(tmp_path / "served", f"tei:{server.address}") == 0
    monkeypatch.setattr(nli, "load", lambda config: FunctionClassifier(probabilities))
    assert scored(tmp_path / "local", "embedded") == 0
    numbers = ["id", "entailment", "neutral", "contradiction"]
    found, wanted = (table(tmp_path / name, "nli") for name in ("served", "local"))
    assert found.height > 100
    assert found.select(numbers).equals(wanted.select(numbers))
    scores = [pl.read_parquet(tmp_path / name / "scores.parquet") for name in ("served", "local")]
    assert (
        scores[0].select("id", "value", "reason").equals(scores[1].select("id", "value", "reason"))
    )
    assert found.select("model", "revision", "dtype").unique().rows() == [
        ("tei:org/model", SHA, "float16")
    ]
    signature = scores[0]["signature"][0]
    assert f"nli:tei:org/model@{SHA}" in signature
    assert "dtype:float16" in signature
    for path in (tmp_path / "served").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_another_address_of_the_same_model(server: Tei, tmp_path: Path) -> None:
    """Its results are at hand, and a run goes on there."""
    assert scored(tmp_path / "one", f"tei:{server.address}") == 0
    assert last_call(tmp_path / "one")["model_items"]["computed"] > 0
    with serving(Tei()) as other:
        other.info |= server.info
        assert scored(tmp_path / "two", f"tei:{other.address}") == 0
        assert last_call(tmp_path / "two")["model_items"]["computed"] == 0
        assert other.sizes == [1]  # a probe
        one, two = (tmp_path / name / "scores.parquet" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
        more = ("--metrics", "caspr,ds")
        assert scored(tmp_path / "one", f"tei:{other.address}", *more) == 0
