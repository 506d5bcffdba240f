"""`claimscore evaluate ...`: what is printed and written, and the exit codes."""

import re
import shlex
from pathlib import Path

from tests.support.command_line import Command

ROOT = Path(__file__).parents[3]


def test_the_page_of_the_docs_runs(cli: Command, monkeypatch, tmp_path: Path):
    """Every command on the examples, as it stands in docs/reference/evaluation.md."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference/evaluation.md").read_text(encoding="utf-8")
    commands = re.findall(r"^claimscore evaluate (.* examples/.*)$", page, re.MULTILINE)
    assert commands
    for command in commands:
        code, text, error = cli("evaluate", *shlex.split(command, comments=True))
        assert (code, error) == (0, ""), command
        assert text
