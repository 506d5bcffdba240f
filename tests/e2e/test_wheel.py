"""What people install: the built wheel, without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline with the build backend of the test extra."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    (built,) = out.glob("*.whl")
    return built


def test_it_puts_one_name_into_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"claimscore"}


def test_it_holds_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for needed in (
        "py.typed",
        "prompts/decompose/v1.toml",
        "report/assets/run.html",
        "report/assets/run.js",
        "report/assets/page.css",
        "report/assets/vendor/plot.umd.min.js",
        "metrics/data/rouge_stem_exceptions.tsv",
        "baseline/data/facts.toml",
        "baseline/data/parser.safetensors",
        "baseline/data/words.toml",
        "pipeline/encoders/data/embedded_nli.safetensors",
        "pipeline/encoders/data/MODEL_CARD.md",
        "pipeline/encoders/data/bertscore_baseline.json",
        "pipeline/encoders/data/bert_score_baselines.json",
    ):
        assert f"claimscore/{needed}" in names


def test_it_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    records = tmp_path / "pairs.jsonl"
    records.write_text('{"id": "1", "summary_a": "It is warm.", "summary_b": "It is cold."}\n')
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import claimscore.cli\n"
        f"assert claimscore.__file__.startswith({str(tmp_path)!r}), claimscore.__file__\n"
        "sys.exit(claimscore.cli.main(sys.argv[1:]))"
    )
    arguments = ["run", str(records), "--out", str(tmp_path / "run"), "--quiet"]
    arguments += ["--cache-dir", str(tmp_path / "cache")]
    result = subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "caspr" in result.stdout
    assert (tmp_path / "run" / "report.html").is_file()
