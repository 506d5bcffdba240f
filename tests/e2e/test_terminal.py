"""claimscore in a real terminal: colours, narrow windows, the first screen, completion."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from tests.e2e.test_streams import map_command
from tests.fake_server import FakeServer

COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|9[0-7]|38;[\d;]+)[\d;]*m")
CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


def in_terminal(command: list[str], *, columns: int, **variables: str) -> str:
    """What a command writes to a terminal of that width, control sequences included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {
        **{
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
        },
        "TERM": "xterm-256color",
        **variables,
    }
    process = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while read := os.read(ours, 65536):
            seen += read
    except OSError:  # the other end is closed: how Linux says that a terminal is at its end
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return seen.decode()


@pytest.mark.parametrize("columns", [38, 120])
def test_lines_fit_and_no_color_is_heard(tmp_path: Path, columns: int) -> None:
    with FakeServer(text="x") as server:
        command = map_command(tmp_path, server, 3)
        plain = in_terminal(command, columns=columns, NO_COLOR="1")
    assert not COLOUR.search(plain)
    shown = CONTROL.sub("", plain).replace("\r\n", "\n")
    assert "3: 3 answered, 0 failed" in shown
    lines = [part for line in shown.split("\n") for part in line.split("\r")]
    too_long = [line for line in lines if len(line.rstrip()) > columns]
    assert all(" " not in line.strip().split("  ")[-1] for line in too_long), too_long


def test_a_file_gets_plain_lines(tmp_path: Path) -> None:
    with FakeServer(text="x") as server:
        done = subprocess.run(map_command(tmp_path, server, 3), capture_output=True, text=True)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert all(line.startswith("claimscore: ") for line in done.stderr.splitlines())


def test_without_arguments(capsys: Any) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines()[:3]] == ["run", "status", "report"]
    assert "claimscore --help" in shown


def test_words_are_completed(tmp_path: Path) -> None:
    def completed(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_CLAIMSCORE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("claimscore", *words)),
            "COMP_CWORD": str(len(words)),
        }
        code = "import sys; sys.argv[0] = 'claimscore'; from claimscore.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("est") == ["estimate"]
    assert "--retry-failed" in completed("run", "--re")
    assert completed("run", "--metrics", "cas") == ["caspr"]
    assert completed("run", "--metrics", "ds,cas") == ["ds,caspr"]
    for command in ("run", "map", "estimate", "compare"):
        assert completed(command, "pairs") == ["pairs"], "a file, which the shell completes"
