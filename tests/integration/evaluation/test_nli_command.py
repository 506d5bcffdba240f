"""The benchmark of NLI models with a real model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from claimscore.cli import main
from tests.support.tiny_models import save_tiny_nli

Evaluate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """A call of the command: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["evaluate", "nli", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_the_command_with_a_real_model(tmp_path: Path, evaluate: Evaluate) -> None:
    rows = [
        {"premise": "The hotel was clean.", "hypothesis": "the pool was warm", "label": label}
        for label in ("entailment", "neutral", "contradiction")
    ]
    data = tmp_path / "pairs.parquet"
    pl.DataFrame(rows).write_parquet(data)
    model = save_tiny_nli(tmp_path / "model")
    turned = save_tiny_nli(tmp_path / "turned", labels=("neutral", "entailment", "contradiction"))
    out = tmp_path / "out"
    code, text, _ = evaluate(data, "--nli", model, "--json", "--out", out, "--split-by", "label")
    found = json.loads(text)
    assert code == 0
    assert found["model"] == str(model)
    assert [row["n"] for row in found["nli"]] == [3]
    assert found["nli"][0]["accuracy"] == pytest.approx(1 / 3)
    predictions = pl.read_parquet(out / "predictions.parquet")
    assert predictions["line"].to_list() == [1, 2, 3]
    again = json.loads(evaluate(data, "--nli", turned, "--json")[1])
    assert again["nli"][0]["nll"] == pytest.approx(found["nli"][0]["nll"], abs=1e-6)
    assert again["confusion"] != found["confusion"]
    names = {path.name for path in out.iterdir()}
    tables = ("nli", "confusion", "temperature", "predictions")
    assert names == {"nli.md", *(f"{name}.{end}" for name in tables for end in ("csv", "parquet"))}
