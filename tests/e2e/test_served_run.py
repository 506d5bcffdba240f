"""Runs whose models are behind a server: the same scores, stored, resumed, failing by the row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main
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


HEAVY = {"torch", "transformers", "openai"}


@pytest.mark.parametrize(
    "what", [["--metrics", "caspr,rouge-1"], ["--metrics", "", "--tasks", "facts"]]
)
def test_a_run_without_models_of_its_own_starts_light(
    server: Tei, tmp_path: Path, what: list[str]
) -> None:
    record = json.loads(EXAMPLES.read_text().splitlines()[0])
    texts = {"summary": record["summary_a"], "references": [record["summary_b"]]}
    records = tmp_path / "one.jsonl"
    records.write_text(json.dumps(record | texts) + "\n")
    served = ["--nli", f"tei:{server.address}", "--out", str(tmp_path / "run")]
    command = ["-X", "importtime", "-m", "claimscore", "run", str(records), *what, *served]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "polars" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_another_address_of_the_same_model(server: Tei, tmp_path: Path, capsys: Any) -> None:
    """Its results are at hand, a run goes on there; another model's is another run."""
    assert scored(tmp_path / "one", f"tei:{server.address}") == 0
    assert last_call(tmp_path / "one")["model_items"]["computed"] > 0
    with serving(Tei()) as other:
        other.info |= server.info
        assert scored(tmp_path / "two", f"tei:{other.address}") == 0
        assert last_call(tmp_path / "two")["model_items"]["computed"] == 0
        assert other.sizes == [1, 1]  # a probe, and one that is too long
        one, two = (tmp_path / name / "scores.parquet" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
        more = ("--metrics", "caspr,ds")
        assert scored(tmp_path / "one", f"tei:{other.address}", *more) == 0
        other.info["model_sha"] = "f" * 40
        capsys.readouterr()
        records = tmp_path / "few.jsonl"
        records.write_text(EXAMPLES.read_text().splitlines()[0] + "\n")
        assert scored(tmp_path / "three", f"tei:{other.address}") == 0
        assert last_call(tmp_path / "three")["model_items"]["stored"] == 0


def test_a_refused_pair_is_a_failure_of_its_record(
    server: Tei, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Tei._refusal

    def refuse(self: Tei, texts: Sequence[str], path: str, *, truncate: bool) -> Any:
        if path == "/predict" and any("breakfast" in text.lower() for text in texts):
            return 422, {"error": "no breakfast here", "error_type": "Validation"}
        return refusal(self, texts, path, truncate=truncate)

    monkeypatch.setattr(Tei, "_refusal", refuse)
    out = tmp_path / "run"
    assert scored(out, f"tei:{server.address}") == 3
    failures = table(out, "failures")
    assert set(failures["stage"]) == {"nli"}
    assert set(failures["kind"]) == {"refused"}
    assert set(failures["message"]) == {"the server refused it (422): no breakfast here"}
    claims = table(out, "claims")
    guilty = claims.filter(pl.col("text").str.to_lowercase().str.contains("breakfast"))["id"]
    assert set(failures["id"]) == set(guilty)
    scores = pl.read_parquet(out / "scores.parquet")
    assert set(scores.filter(pl.col("value").is_null())["id"]) == set(guilty)
    assert 0 < len(set(guilty)) < 12


def test_check_says_what_the_server_is(server: Tei, capsys: Any) -> None:
    spec = f"tei:{server.address}"
    assert main(["models", "check", spec]) == 0
    said = capsys.readouterr().out
    for part in (f"tei:org/model ({SHA}), float16", "16 tokens", "32 items each, 8 at a time"):
        assert part in said
    assert main(["models", "check", spec, "--role", "nli", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["role"] == "nli"
    assert sum(facts["probe"].values()) == pytest.approx(1, abs=1e-3)
