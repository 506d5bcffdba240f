"""`--dtype auto`: decided once, kept in the run directory, the same for all that goes on."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import DType, EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import arithmetic, load_model
from claimscore.pipeline.run import run, score
from claimscore.runs import RunDirectory
from tests.support.tiny_models import Folders

RECORDS = [{"id": "1", "source": "The pool was warm.", "summary": "The staff was rude!"}]


def config(out: Path, nli: str, dtype: DType = "auto") -> RunConfig:
    encoders = EncoderConfig(device="cpu", offline=True, nli=nli, dtype=dtype)
    return RunConfig(
        RECORDS, out, "faithfulness", units="sentences", encoders=encoders, cache_dir=out
    )


def test_a_run_goes_on_as_it_began(
    tmp_path: Path, tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the machine, or the verdict on the model, has changed; another one is refused."""
    out, nli = tmp_path / "run", str(tiny("bert", "nli"))
    monkeypatch.setattr(arithmetic, "multiplies_faster", lambda device: True)
    monkeypatch.setattr(arithmetic, "compare_numbers", lambda *_: {"safe": True})
    found = run(config(out, nli))
    assert "|dtype:bfloat16|" in found.summary["metrics"]["faithfulness"]["signature"]
    stored = RunDirectory.reader(out)
    assert stored.settings["additive"]["nli"]["dtype"] == "bfloat16"
    monkeypatch.setattr(arithmetic, "multiplies_faster", lambda device: False)
    again = score(dataclasses.replace(config(out, nli), metrics=("summac-zs",))).summary["metrics"]
    assert run(config(out, nli)).summary["metrics"] == again
    assert "|dtype:bfloat16|" in again["summac-zs"]["signature"]
    with pytest.raises(ConfigError, match="--dtype"):
        run(config(out, nli, "float32"))
    assert "dtype:float32" in str(run(config(tmp_path / "other", nli)).summary["metrics"])


@pytest.mark.parametrize("is_safe", [True, False])
@pytest.mark.parametrize(
    ("role", "kind"), [("nli", "nli"), ("embedder", "encoder"), ("token_encoder", "encoder")]
)
def test_a_model_is_tried_once(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch, role: Any, kind: str, is_safe: bool
) -> None:
    """And what it was found to be is kept."""
    tried: list[tuple[int, ...]] = []

    def compare(role: str, exact: Any, rounded: Any) -> dict[str, Any]:
        assert exact.shape == rounded.shape
        assert 0 < abs(exact - rounded).max() < 0.2
        tried.append(exact.shape)
        return {"safe": is_safe}

    monkeypatch.setattr(arithmetic, "N_PAIRS", 20)
    monkeypatch.setattr(arithmetic, "multiplies_faster", lambda device: True)
    monkeypatch.setattr(arithmetic, "compare_numbers", compare)
    model, dtype = str(tiny("bert", kind)), "bfloat16" if is_safe else "float32"
    named: dict[str, Any] = {role: model, "token_layer": 1, "rescale_with_baseline": False}
    asked = EncoderConfig(device="cpu", offline=True, **named)
    for _ in range(2):
        assert load_model(role, asked).info.dtype == dtype
    assert len(tried) == 1
