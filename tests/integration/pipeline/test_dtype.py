"""`--dtype auto`: decided once, kept in the run directory, the same for all that goes on."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import DType, EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline import encoders
from claimscore.pipeline.run import run, score
from claimscore.runs import RunDirectory
from tests.support.tiny_models import Folders

RECORDS = [{"id": "1", "source": "The pool was warm.", "summary": "The staff was rude!"}]


def config(out: Path, nli: str, dtype: DType = "auto") -> RunConfig:
    models = EncoderConfig(device="cpu", offline=True, nli=nli, dtype=dtype)
    return RunConfig(
        RECORDS, out, "faithfulness", units="sentences", encoders=models, cache_dir=out
    )


def test_a_run_goes_on_as_it_began(
    tmp_path: Path, tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the machine has changed; another one is refused."""
    out, nli = tmp_path / "run", str(tiny("bert", "nli"))
    monkeypatch.setattr(encoders, "multiplies_faster", lambda device: True)
    found = run(config(out, nli))
    assert "|dtype:bfloat16|" in found.summary["metrics"]["faithfulness"]["signature"]
    stored = RunDirectory.reader(out)
    assert stored.settings["additive"]["nli"]["dtype"] == "bfloat16"
    monkeypatch.setattr(encoders, "multiplies_faster", lambda device: False)
    again = score(dataclasses.replace(config(out, nli), metrics=("summac-zs",))).summary["metrics"]
    assert run(config(out, nli)).summary["metrics"] == again
    assert "|dtype:bfloat16|" in again["summac-zs"]["signature"]
    with pytest.raises(ConfigError, match="--dtype"):
        run(config(out, nli, "float32"))
    assert "dtype:float32" in str(run(config(tmp_path / "other", nli)).summary["metrics"])


@pytest.mark.parametrize(
    ("asked", "roles", "dtype"),
    [
        ({"nli": "org/nli"}, ["nli"], "bfloat16"),
        ({"nli": "org/nli", "embedder": "tei:http://here"}, ["nli", "embedder"], "bfloat16"),
        ({}, ["nli"], "float32"),
        ({"nli": "org/nli"}, ["nli", "embedder"], "float32"),
        ({"nli": "org/nli", "causal_lm": "org/lm"}, ["nli", "causal_lm"], "float32"),
        ({"nli": "tei:http://here"}, ["nli"], "float32"),
    ],
)
def test_models_that_the_user_names_are_rounded(
    monkeypatch: pytest.MonkeyPatch, asked: Any, roles: list[str], dtype: str
) -> None:
    """Not the embedded ones, and none beside them; nor where likelihoods are summed."""
    monkeypatch.setattr(encoders, "multiplies_faster", lambda device: True)
    config = EncoderConfig(device="cpu", **asked)
    assert encoders.resolve_auto(config, roles) == dataclasses.replace(config, dtype=dtype)
    monkeypatch.setattr(encoders, "multiplies_faster", lambda device: False)
    assert encoders.resolve_auto(config, roles).dtype == "float32"
