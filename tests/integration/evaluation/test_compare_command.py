"""`claimscore compare`: what is printed, and the exit codes."""

from pathlib import Path

import pytest

from tests.support.command_line import Command
from tests.support.compared_runs import write_run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    ids = [str(number) for number in range(12)]
    claims, others = {("10", "a"): ["a\x1b[31m [x] \u202e red"]}, {("10", "a"): ["Else."]}
    values = [50.0 + number for number in range(11)] + [None]
    return (
        write_run(tmp_path / "a", ids, {"ds": [50.0] * 12}, claims=claims),
        write_run(tmp_path / "b", ids, {"ds": values}, claims=others),
    )


def test_what_is_printed(cli: Command, pair: tuple[Path, Path]):
    """Runs, differences, records, method; nothing that a terminal would obey."""
    code, text, _ = cli("compare", *pair, "--samples", 100, "--top", 12)
    assert code == 0
    assert f"{pair[0]} (baseline)" in text
    assert "ds: 1 of the shared records have no score in B: 1 x decompose failed" in text
    assert "95 % paired bootstrap interval (100 samples" in text
    for words in ("higher", "letter trigrams", "[x]"):
        assert words in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing", "missing"), "missing: there is no such run directory"),
        (("a", "b", "--differences", "x.txt"), "must end in .csv or .parquet"),
        (("a", "b", "--top", "-3"), "--top must be at least 0"),
        (("a", "b", "--html", "."), "is a directory"),
        (("a", "b", "--html", "x.csv", "--differences", "x.csv"), "x.csv: two outputs"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(
    cli: Command,
    pair: tuple[Path, Path],
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(pair[0].parent)
    code, text, error = cli("compare", *arguments)
    assert (code, text) == (2, "")
    assert message in error
    assert "Traceback" not in error
    assert not Path("x.csv").exists()
