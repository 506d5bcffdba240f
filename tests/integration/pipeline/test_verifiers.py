"""`--verifier`: which model judges claims, what is recorded of it, and what a folder refuses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run
from claimscore.runs import RunDirectory
from tests.support.tiny_models import Folders

RECORDS = [
    {
        "id": str(n),
        "summary": "The hotel was clean. The staff was rude!",
        "source": "The hotel was clean and quiet. The pool was warm. We had a great stay.",
    }
    for n in range(2)
]


def judged(out: Path, **encoders: str) -> pl.DataFrame:
    """The table `support` of a run whose claims are sentences."""
    config = EncoderConfig(device="cpu", offline=True, **encoders)
    run(RunConfig(RECORDS, out, "faithfulness", units="sentences", encoders=config, cache_dir=out))
    return RunDirectory.reader(out).scan("support").collect()


def test_the_verifier_is_recorded_and_decides_what_a_folder_takes(
    tmp_path: Path, tiny: Folders
) -> None:
    nli, other = str(tiny("bert", "nli")), str(tiny("electra", "nli"))
    by_nli = judged(tmp_path / "nli", nli=nli)
    by_verifier = judged(tmp_path / "verifier", nli=other, verifier=nli)
    assert by_verifier.equals(by_nli)
    assert by_nli["model"].unique().to_list() == [nli]
    settings = RunDirectory.reader(tmp_path / "verifier").settings["additive"]
    assert settings["verifier"]["name"] == nli
    assert "nli" not in settings
    summary = json.loads((tmp_path / "verifier" / "summary.json").read_text())
    assert f"verifier:{nli}@" in summary["metrics"]["faithfulness"]["signature"]
    for folder, changed in (
        ("nli", {"nli": nli, "verifier": other}),
        ("verifier", {"verifier": other}),
        ("verifier", {"nli": nli}),
    ):
        with pytest.raises(ConfigError, match="--verifier"):
            judged(tmp_path / folder, **changed)
