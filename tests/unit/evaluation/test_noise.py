"""`compare --noise`: identical inputs, answered twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Command
from tests.support.compared_runs import write_run

IDS = [str(n) for n in range(40)]
BASELINE = [50.0] * 40
#: Every record moves by 4, half of them up.
AGAIN = [50.0 + 4 * (-1) ** n for n in range(40)]
#: One record moves by 30, one by 5.
CHANGED = [80.0, 55.0, *BASELINE[2:]]


def settings(namespace: str = "n", provider: str = "openai", **other: Any) -> dict[str, Any]:
    params = {} if provider == "builtin" else {"params": "{}"}
    llm = {"provider": provider, "namespace": namespace, **params}
    return {"additive": {"llm": {"decompose": llm}, **other}}


def test_a_move_is_measured_against_that_of_identical_inputs(tmp_path: Path, cli: Command) -> None:
    few, none = [1.0] * 4 + [None] * 36, {"ds": CHANGED, "ms": [2.0] * 40}
    a = write_run(tmp_path / "a", IDS, {"ds": BASELINE, "ms": [1.0] * 40}, settings=settings())
    prompts = {"decompose": {"version": "v2"}}
    b = write_run(tmp_path / "b", IDS, none, settings=settings(prompts=prompts))
    scores = {"ds": AGAIN, "ms": few}
    again = write_run(tmp_path / "again", IDS, scores, settings=settings("other"))
    page = tmp_path / "page.html"
    shown = cli("compare", a, b, "--noise", again, "--html", page, "--full")
    assert shown.status == 0
    # √(4²/2) · 1.96 · √2 = 7.84
    limit = "identical inputs move a record by up to 7.84, the mean by 0.00"
    assert limit in page.read_text(encoding="utf-8")
    rows = [tuple(line.split()) for line in shown.out.splitlines()]
    assert limit in next(line for line in shown.out.splitlines() if " in ds " in line)
    assert ("ds", "0", "50.00", "80.00", "+30.00", "yes") in rows
    assert ("ds", "1", "50.00", "55.00", "+5.00", "no") in rows
    assert ("ms", "0", "1.0000", "2.0000", "+1.0000", "not", "known") in rows
    noise = cli("compare", a, b, "--noise", again, "--json").json()["noise"]
    assert noise.keys() == {"ds"}  # four records are too few
    assert (noise["ds"]["difference"]["n"], noise["ds"]["difference"]["same"]) == (40, 0)
    assert noise["ds"]["limit"] == pytest.approx(7.84, abs=1e-3)


@pytest.mark.parametrize(
    ("noise", "provider", "message"),
    [
        (
            settings("other", prompts={"decompose": {"version": "v3"}}),
            "openai",
            "version (not set, v3)",
        ),
        (settings(), "openai", "run it with another --cache-namespace"),
        (settings(provider="builtin"), "builtin", None),
        (None, "openai", "must be run directories"),
    ],
)
def test_only_a_repetition_measures_noise(
    noise: dict[str, Any] | None, provider: str, message: str, tmp_path: Path, cli: Command
) -> None:
    first = write_run(tmp_path / "a", IDS, {"ds": BASELINE}, settings=settings(provider=provider))
    again = write_run(tmp_path / "again", IDS, {"ds": BASELINE}, settings=noise)
    path = again / "scores.parquet" if noise is None else again
    shown = cli("compare", first, first, "--noise", path)
    if message is None:
        assert (shown.status, "identical inputs move none of them" in shown.out) == (0, True)
    else:
        assert (shown.status, message in shown.err) == (2, True)
