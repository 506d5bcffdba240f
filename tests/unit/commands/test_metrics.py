"""`claimscore metrics`: what can be named, and what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.metrics import METRICS, load_metric

OWN = Path(__file__).parents[3] / "examples" / "own_metrics.py"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """The JSON that the command prints."""
    assert main(["metrics", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours in their order, then those of files; each with what a run would ask for it."""
    found = said(capsys, "list", "--metric-file", OWN)["metrics"]
    assert [one["name"] for one in found] == [*METRICS, "claim-balance", "more-words"]
    needs = {one["name"]: (one["columns"], one["tasks"], one["models"]) for one in found}
    assert needs["factsim"] == (["source", "summary"], ["facts"], ["embedder"])
    assert needs["caspr"] == (["summary_a", "summary_b"], ["decompose"], ["nli"])
    assert needs["bart-score"][2] == ["seq2seq-lm"]
    assert needs["ds"][1:] == ([], [])


@pytest.mark.parametrize("name", METRICS)
def test_the_options_shown_are_those_that_are_understood(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Every value of every option makes a metric; the default leaves the name as it is."""
    for option, values in said(capsys, "show", name)["options"].items():
        for value in values or ():
            spec = f"{name}:{option}={value}"
            assert load_metric(spec).name == (name if value == values[0] else spec)


def test_a_metric_is_shown_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    """With the bounds that this variant has; a bound that there is not is said."""
    assert main(["metrics", "show", "summac-zs:variant=code"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    assert lines["metric"] == "summac-zs:variant=code"
    assert lines["range"] == "-1 to 1"
    assert lines["models"] == "--nli"
    assert lines[":op1="] == "max | mean | min"
    assert main(["metrics", "show", "perplexity"]) == 0
    assert "1 to no bound" in capsys.readouterr().out
    assert said(capsys, "show", "perplexity")["range"] == [1.0, None]


def test_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    assert main(["metrics", "show", "casper"]) == 2
    assert (
        "unknown metric casper; is caspr meant? known metrics: caspr, ds" in capsys.readouterr().err
    )
