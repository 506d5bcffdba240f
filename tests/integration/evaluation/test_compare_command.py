"""`claimscore compare`: what is printed and written, the exit codes, and real runs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from claimscore.cli import main
from tests.support.command_line import Command
from tests.support.compared_runs import write_run
from tests.support.tiny_models import save_tiny_nli

EXAMPLES = Path(__file__).parents[3] / "examples" / "hotels.jsonl"


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


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundled example, scored with claims by two NLI models."""
    folder = tmp_path_factory.mktemp("real")
    models = [save_tiny_nli(folder / f"nli{seed}", seed=seed) for seed in (0, 1)]
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()[:4]
    records = folder / "records.jsonl"
    records.write_text("\n".join(lines) + "\n", encoding="utf-8")
    runs = {"claims": models[0], "other nli": models[1]}
    for name, model in runs.items():
        arguments = ["--metrics", "caspr", "--nli", model, "--device", "cpu"]
        out = ["run", records, "--out", folder / name, "--quiet", *arguments]
        assert main([*map(str, out)]) == 0
    return {name: folder / name for name in runs}


def test_two_nli_models_over_the_same_claims(cli: Command, real: dict[str, Path]):
    _, printed, _ = cli("compare", real["claims"], real["other nli"], "--json")
    (run,) = json.loads(printed)["runs"]
    assert run["shared"] == 4
    for side in run["claims"]:
        assert side["same"] > 0 == side["reworded"] == side["gone"] == side["new"]
    assert any(row["name"].startswith("nli.") for row in run["settings"])
    scores = [pl.read_parquet(real[name] / "scores.parquet") for name in ("claims", "other nli")]
    means = [frame["value"].mean() for frame in scores]
    assert run["differences"][0]["difference"] == pytest.approx(means[1] - means[0])
