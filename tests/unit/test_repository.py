"""What files of the repository may not hold, and what no other test would find wrong in them."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.fake_server.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDERS = ("claimscore", "tests", "docs", "examples", "scripts", "benchmarks", ".ci", "changelog.d")
REGISTRIES = re.compile(
    r"registry\.npm|pythonhosted\.|pypi\.(?:org|python)|download\.pytorch|anaconda\."
)


def test_no_host_of_a_package_registry_is_named() -> None:
    """Packages come through their ordinary clients, which know where: a mirror must do."""
    files = [file for file in ROOT.iterdir() if file.is_file()]
    files += [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")]
    named = []
    for file in files:
        if ".venvs" in file.parts:  # the peers of the benchmarks
            continue
        if file.is_file() and file.suffix in {"", ".md", ".py", ".toml", ".txt", ".js", ".json"}:
            text = file.read_text(encoding="utf-8", errors="replace")
            named += [str(file)] if file != Path(__file__) and REGISTRIES.search(text) else []
    assert not named


def test_tests_import_no_private_name() -> None:
    """A test that imports an underscore name breaks when code is only moved."""
    wrong = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("claimscore"):
                names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
                wrong += [f"{file}: {n}" for n in names if n.startswith("_") and n[1] != "_"]
    assert not wrong


def test_the_server_has_the_settings_of_every_row_of_the_engines_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "engine")
    for row in importlib.import_module("rows").ROWS:
        Settings().changed(row.settings)
