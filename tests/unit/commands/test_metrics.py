"""`claimscore metrics`: what can be named, and what it needs."""

from pathlib import Path

import pytest

from claimscore.metrics import METRICS, load_metric
from tests.support.command_line import Command

OWN = Path(__file__).parents[3] / "examples" / "own_metrics.py"


def test_all_are_listed(cli: Command) -> None:
    """Ours in their order, then those of files; each with what a run would ask for it."""
    found = cli("metrics", "list", "--metric-file", OWN, "--json").json()["metrics"]
    own = ["claim-balance", "more-words", "in-all-sources"]
    assert [one["name"] for one in found] == [*METRICS, *own]
    needs = {one["name"]: (one["columns"], one["tasks"], one["models"]) for one in found}
    assert needs["factsim"] == (["source", "summary"], ["facts"], ["embedder"])
    assert needs["caspr"] == (["summary_a", "summary_b"], ["decompose"], ["nli"])
    assert needs["bart-score"][2] == ["seq2seq-lm"]
    assert needs["ds"][1:] == ([], [])
    missing = {one["name"]: one["needs"] for one in found}
    assert missing["ds"] == []
    assert missing["bart-score"][0].endswith("--seq2seq-lm facebook/bart-large-cnn")
    assert missing["summac-conv"][0].startswith("weights: summac-conv:weights=FILE")
    assert missing["qa"] == ["a language model (--llm) for questions, answers"]
    for line in cli("metrics", "list").out.splitlines()[1:]:
        name = line.split()[0]
        assert name not in missing or not missing[name] or "nothing" not in line


@pytest.mark.parametrize("name", METRICS)
def test_the_options_shown_are_those_that_are_understood(cli: Command, name: str) -> None:
    for option, values in cli("metrics", "show", name, "--json").json()["options"].items():
        for value in values or ():
            spec = f"{name}:{option}={value}"
            assert load_metric(spec).name == (name if value == values[0] else spec)


def test_a_metric_is_shown_to_people(cli: Command) -> None:
    shown = cli("metrics", "show", "summac-zs:variant=code").out
    lines = dict(line.split(maxsplit=1) for line in shown.splitlines() if line)
    assert lines["metric"] == "summac-zs:variant=code"
    assert lines["range"] == "-1 to 1"
    assert lines["models"] == "--nli"
    assert lines[":op1="] == "max | mean | min"
    assert "1 to no bound" in cli("metrics", "show", "perplexity").out
    assert cli("metrics", "show", "perplexity", "--json").json()["range"] == [1.0, None]


def test_an_unknown_one_is_refused(cli: Command) -> None:
    status, _, error = cli("metrics", "show", "casper")
    assert status == 2
    assert "unknown metric casper; is caspr meant? known metrics: faithfulness, " in error
    assert "; one of your own needs --metric-file FILE\n" in error
