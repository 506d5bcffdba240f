"""`compare --fail-if`: what fails a build, what does not, and what cannot be judged."""

from pathlib import Path

import pytest

from claimscore.console import table
from tests.support.command_line import Command
from tests.support.compared_runs import write_run

IDS = [str(n) for n in range(40)]
#: Mean differences of 3 (spread 1) of `up`, of 3 (spread 20) of `noisy`, none of `same`.
A = {name: [50.0] * 40 for name in ("up", "noisy", "same")}
B = {
    "up": [53.0 + (-1) ** n for n in range(40)],
    "noisy": [53.0 + 20 * (-1) ** n for n in range(40)],
    "same": [50.0] * 40,
}


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write_run(tmp_path / "a", IDS, A), write_run(tmp_path / "b", IDS, B)


@pytest.mark.parametrize(
    ("condition", "status", "said"),
    [
        ("up > +2", 4, "up > +2: fails; "),
        ("up > 3", 0, "up > 3: passes; "),
        ("up>-1", 4, "fails"),
        ("up < 0", 0, "at most +3."),
        ("noisy > 2", 0, "noisy > 2: not shown to be above; "),
        ("noisy > 0.5", 0, "; a difference of 0.5 takes about 12,"),
        ("same > 0", 0, "difference +0, the same in 40 records; such values of a metric without"),
    ],
)
def test_only_what_is_shown_fails(
    condition: str,
    status: int,
    said: str,
    runs: tuple[Path, Path],
    cli: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = cli("compare", *runs, "--fail-if", condition)
    line = plain.out.splitlines()[-1]
    assert (plain.status, line.partition(":")[0]) == (status, "gate")
    assert said in line
    monkeypatch.setattr(table, "terminal_width", lambda: 80)
    narrow = cli("compare", *runs, "--fail-if", condition).out
    assert max(map(len, narrow[narrow.index("gate: ") :].splitlines())) <= 80
    assert "".join(line.split()) in "".join(narrow.split()), "a path is broken anywhere"
    loud = cli("compare", *runs, "--fail-if", condition, "--quiet")
    assert (loud.status, loud.out, bool(loud.err)) == (status, "", status == 4)
    (found,) = cli("compare", *runs, "--fail-if", condition, "--json").json()["gates"]
    assert (found["n"], found["fails"]) == (40, status == 4)
    worse = cli("compare", *reversed(runs), "--fail-if", "up < -2", "--fail-if", "same > 1")
    assert worse.status == 4
    assert "up < -2: fails" in worse.out
    assert "same > 1: passes" in worse.out


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("up", "write a metric, > or <, and a difference, as in 'faithfulness < -"),
        ("up = 2", "write a metric"),
        ("up > two", "write a metric"),
        ("up > nan", "write a metric"),
        ("up > 1e999", "write a metric"),
        ("same < 1", "same < 1: cannot be judged; "),
        ("other > 2", "share no metric other; they share: up, noisy, same"),
    ],
)
def test_a_gate_that_cannot_be_judged_is_an_error(
    condition: str, said: str, runs: tuple[Path, Path], cli: Command
) -> None:
    refused = cli("compare", *runs, "--fail-if", condition)
    assert refused.status == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1


def test_equal_differences_of_a_metric_with_a_range_have_a_bound(
    tmp_path: Path, cli: Command
) -> None:
    """Six equal records do not show that no record would fall: at most 1 − 0.05^(1/6)."""
    same = [write_run(tmp_path / name, IDS[:6], {"faithfulness": [0.0] * 6}) for name in "ab"]
    gate = cli("compare", *same, "--fail-if", "faithfulness < 0.3")
    assert (gate.status, "faithfulness < 0.3: not shown to be below; " in gate.out) == (0, True)
    assert "difference +0, at most +0.393 (one-sided 95 % bound, 6 records)" in gate.out
    assert cli("compare", *same, "--fail-if", "faithfulness < 0.4").status == 4


def test_a_difference_beyond_the_width_of_the_range_is_refused(
    tmp_path: Path, cli: Command
) -> None:
    runs = [write_run(tmp_path / name, IDS, {"faithfulness": [0.5] * 40}) for name in "ab"]
    refused = cli("compare", *runs, "--fail-if", "faithfulness < -2")
    said = (
        "--fail-if 'faithfulness < -2': scores of faithfulness are from 0 to 1, and no difference"
    )
    assert (refused.status, said in refused.err) == (2, True)


def test_too_few_records_are_an_error(tmp_path: Path, cli: Command) -> None:
    few = [write_run(tmp_path / name, IDS[:4], {"m": [1.0] * 4}) for name in "ab"]
    refused = cli("compare", *few, "--fail-if", "m > 1")
    assert (refused.status, "only 4 records of" in refused.err) == (2, True)


def test_moves_within_the_noise_of_machines_pass_every_gate(tmp_path: Path, cli: Command) -> None:
    runs = [write_run(tmp_path / n, IDS, {"m": [0.5 + d] * 40}) for n, d in (("a", 0), ("b", 1e-6))]
    for condition in ("m > 0", "m < 0", "m > 0.00000000001", "m > 1e-300", "m<-2e-6"):
        passed = cli("compare", *runs, "--fail-if", condition)
        assert (passed.status, "passes" in passed.out) == (0, True), condition
    (metric,) = cli("compare", *runs, "--json").json()["runs"][0]["metrics"]
    assert (metric["difference"]["same"], metric["difference"]["mean"]) == (40, 0.0)
