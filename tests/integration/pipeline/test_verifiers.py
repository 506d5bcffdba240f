"""`--verifier`: which model judges claims, what is recorded of it, and what a folder refuses."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.run import run
from claimscore.records.columns import in_first_half
from claimscore.runs import RunDirectory
from tests.support.command_line import Command
from tests.support.tiny_models import Folders, save_tiny_nli

RECORDS = [
    {
        "id": str(n),
        "summary": "The hotel was clean. The staff was rude!",
        "source": "The hotel was clean and quiet. The pool was warm. We had a great stay.",
    }
    for n in range(2)
]


def judged(out: Path, **encoders: Any) -> pl.DataFrame:
    """The table `support` of a run whose claims are sentences."""
    config = EncoderConfig(device="cpu", offline=True, **encoders)
    run(RunConfig(RECORDS, out, "faithfulness", units="sentences", encoders=config, cache_dir=out))
    return RunDirectory.reader(out).scan("support").collect()


def test_the_verifier_decides_what_a_folder_takes(tmp_path: Path, tiny: Folders) -> None:
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
    for folder, changed, was, now in (
        ("nli", {"nli": nli, "verifier": other}, "nli", other),
        ("verifier", {"verifier": other}, nli, other),
        ("verifier", {"nli": nli}, nli, "nli"),
    ):
        said = re.escape(f'--verifier: was "{was}", now "{now}"')
        with pytest.raises(ConfigError, match=said):
            judged(tmp_path / folder, **changed)


def test_a_verifier_of_two_labels_claims_no_contradiction(tmp_path: Path) -> None:
    """Its results are stored, and labels that are given are recorded and compared."""
    folder = str(save_tiny_nli(tmp_path / "two", labels=("LABEL_0", "LABEL_1")))
    labels = {"verifier": folder, "verifier_labels": ("supported", "unsupported")}
    rows = judged(tmp_path / "run", **labels)
    assert rows["verifier"].unique().to_list() == ["binary"]
    assert rows["contradiction"].null_count() == rows.height > 0
    assert "contradicted" not in rows["verdict"].to_list()
    turned = {**labels, "verifier_labels": ("unsupported", "supported")}
    other = judged(tmp_path / "turned", **turned)
    assert (rows["probability"] + other["probability"]).to_list() == pytest.approx([1] * 4)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "(supported,unsupported)|" in summary["metrics"]["faithfulness"]["signature"]
    assert judged(tmp_path / "run", **labels).equals(rows)
    with pytest.raises(ConfigError, match="--verifier-labels"):
        judged(tmp_path / "run", **turned)


def test_evaluate_support_asks_verifiers(tmp_path: Path, tiny: Folders, cli: Command) -> None:
    """The summary of a row is one claim: the probability is that of the table `support`."""
    path, source = tmp_path / "rows.jsonl", RECORDS[0]["source"]
    cases = [next(c for c in "abcdefgh" if in_first_half(c, 0) == half) for half in (True, False)]
    claims = ["The hotel was clean.", "The pool was warm.", "The staff was rude!", "It was bad."]
    rows = [
        {
            "id": str(n),
            "summary": claim,
            "source": source,
            "label": int(n < 2),
            "case": cases[n % 2],
        }
        for n, claim in enumerate(claims)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    nli, two = str(tiny("bert", "nli")), save_tiny_nli(tmp_path / "two", labels=("yes", "correct"))
    verifiers = f"nli,{two}"
    options = ("--nli", nli, "--device", "cpu", "--offline", "--set", "samples=9", "--json")
    refused = cli("evaluate", "support", str(path), "--verifier", verifiers, *options)
    assert "--verifier-labels" in refused.err
    labels = ("--set", "verifier-labels=unsupported,supported")
    said = cli("evaluate", "support", str(path), "--verifier", verifiers, *options, *labels).json()
    found = {row["score"]: row["auc"] for row in said["support"]}
    assert list(found)[2:] == ["verifier nli", f"verifier {two}"]
    config = EncoderConfig(nli=nli, device="cpu", offline=True)
    run(RunConfig(rows, tmp_path / "run", "faithfulness", units="sentences", encoders=config))
    by_run = RunDirectory.reader(tmp_path / "run").scan("support").sort("id").collect()
    values = by_run["probability"].to_list()
    above = [(a > b) + (a == b) / 2 for a in values[:2] for b in values[2:]]
    assert found["verifier nli"] == pytest.approx(sum(above) / 4)
