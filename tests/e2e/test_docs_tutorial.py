"""The tutorial works as it is written: its blocks are run in order, in an empty folder."""

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from claimscore.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)```\n", re.DOTALL)


class Block(NamedTuple):
    """A block of the page; `note` is what the comment right before it says."""

    note: str
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page)]


def agrees(printed: str, shown: str) -> bool:
    """Whether the page shows what was printed: `...` is anything, spaces and rules are as one."""
    pattern = r"(?:.*)".join(re.escape(part) for part in _plain(shown).split("..."))
    return re.fullmatch(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    return " ".join(re.sub("─+", "─", text).split())


def shell(block: Block) -> str:
    """What the commands print. Ours are called here, which saves loading torch for each."""
    *before, last = (line for line in block.text.splitlines() if line.strip())
    if not last.startswith("claimscore "):
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        return result.stdout
    assert not before, "a block of claimscore's has one command"
    wanted = int(block.note.removeprefix("exit status ")) if block.note else 0
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        status = main(shlex.split(last)[1:])
    assert status == wanted, printed.getvalue()
    return printed.getvalue()


@pytest.mark.timeout(300)  # seconds of work, but runs and models on a machine that may be busy
def test_the_tutorial_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed, names, checked = "", dict[str, Any](), 0
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.note.startswith("not run"):
            continue
        if block.kind == "text":
            assert agrees(printed, block.text), f"shown:\n{block.text}\nprinted:\n{printed}"
            checked += 1
        elif block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block.text, "tutorial", "exec"), names)
            printed = out.getvalue()
        else:
            assert block.kind == "sh"
            printed = shell(block)
    assert checked >= 9
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 0
