"""`compare --noise` and its verdicts: identical inputs, answered twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Command
from tests.support.compared_runs import write_run

IDS = [str(n) for n in range(40)]
BASELINE = [50.0] * 40
#: Every record moves by 4, half of them up.
AGAIN = [50.0 + 4 * (-1) ** n for n in range(40)]
#: One record moves by 30.
CHANGED = [80.0, *BASELINE[1:]]


def settings(namespace: str = "n", provider: str = "openai", **other: Any) -> dict[str, Any]:
    params = {} if provider == "builtin" else {"params": "{}"}
    llm = {"provider": provider, "namespace": namespace, **params}
    return {"additive": {"llm": {"decompose": llm}, **other}}


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    prompts = {"prompts": {"decompose": {"version": "v2"}}}
    return (
        write_run(tmp_path / "a", IDS, {"ds": BASELINE}, settings=settings()),
        write_run(tmp_path / "b", IDS, {"ds": CHANGED}, settings=settings(**prompts)),
    )


def test_a_move_is_measured_against_that_of_identical_inputs(
    runs: tuple[Path, Path], tmp_path: Path, cli: Command
) -> None:
    again = write_run(tmp_path / "again", IDS, {"ds": AGAIN}, settings=settings("other"))
    page = tmp_path / "page.html"
    said = cli("compare", *runs, "--noise", again, "--wanted", "ds=3", "--html", page)
    assert said.status == 0
    lines = said.out.splitlines()
    line = next(line for line in lines if line.startswith("ds: no difference is shown"))
    # √(4²/2) · 1.96 · √2 = 7.84; 30 in one of 40 records: deviation 4.74
    assert "identical inputs move a record by up to 7.84" in line
    assert line.endswith(
        "40 records show a difference of 2.16 in 80 % of cases; one of 3.00 takes about 22"
    )
    assert next(line for line in lines if "30.00" in line and line.startswith(" ds")).endswith(
        "yes"
    )
    assert line.partition(": ")[2] in page.read_text(encoding="utf-8")
    found = cli("compare", *runs, "--noise", again, "--json").json()
    noise, repeated = found["noise"]["ds"]["difference"], found["noise"]["ds"]["repeatability"]
    assert (noise["n"], noise["same"]) == (40, 0)
    assert (repeated["deviation"], repeated["limit"]) == pytest.approx((8**0.5, 7.84), abs=1e-3)
    assert found["runs"][0]["verdict"][0].startswith("ds: no difference is shown: +0.75 (")


@pytest.mark.parametrize(
    ("noise", "provider", "says"),
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
    noise: dict[str, Any] | None, provider: str, says: str | None, tmp_path: Path, cli: Command
) -> None:
    first = write_run(tmp_path / "a", IDS, {"ds": BASELINE}, settings=settings(provider=provider))
    again = write_run(tmp_path / "again", IDS, {"ds": BASELINE}, settings=noise)
    path = again / "scores.parquet" if noise is None else again
    said = cli("compare", first, first, "--noise", path)
    if says is None:
        assert (said.status, "identical inputs move none of them" in said.out) == (0, True)
    else:
        assert (said.status, says in said.err) == (2, True)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("ds=x", "write a number"),
        ("ds=0", "beyond 2e-05"),
        ("ds=1e-300", "beyond 2e-05"),
        ("ds=nan", "write a number"),
        ("ds=1e300", "write a number"),
        ("ms=1", "they share: ds"),
    ],
)
def test_a_wanted_difference_is_a_number_of_a_shared_metric(
    wanted: str, says: str, runs: tuple[Path, Path], cli: Command
) -> None:
    said = cli("compare", *runs, "--wanted", wanted)
    assert (said.status, says in said.err) == (2, True)
