"""Closed, full and odd streams: the work is done, and the exit status says what happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_server import FakeServer

FULL = Path("/dev/full")
CLAIMSCORE = (sys.executable, "-m", "claimscore")


def run(command: list[str], redirect: str = "", **options: str) -> tuple[int, str]:
    """Exit status and standard error of a command in a shell."""
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {redirect}', "bash", *command],
        env={**os.environ, **options},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def map_command(folder: Path, server: FakeServer, n_rows: int) -> list[str]:
    """A map over so many rows."""
    (folder / "in.jsonl").write_text("".join(f'{{"text": "{n}"}}\n' for n in range(n_rows)))
    (folder / "p.toml").write_text('name = "p"\nversion = "v1"\nuser = "$text"\n')
    return [
        *(*CLAIMSCORE, "map", str(folder / "in.jsonl")),
        *("--prompt", str(folder / "p.toml"), "--out", str(folder / "out.parquet")),
        *("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "2"),
    ]


@pytest.mark.parametrize("redirect", ["<&- 2>&- >&-", "2>/dev/full"])
def test_closed_and_full_streams(tmp_path: Path, redirect: str) -> None:
    """None of them keeps the work from being done, or makes it a bug of ours."""
    if "full" in redirect and not FULL.exists():
        pytest.skip("no /dev/full here")
    with FakeServer(text="x") as server:
        code, error = run(map_command(tmp_path, server, 3), redirect)
    assert (code, "Traceback" in error) == (0, False), error
    assert (tmp_path / "out.parquet").exists()


def test_who_reads_the_result_may_be_gone(tmp_path: Path) -> None:
    assert run([*CLAIMSCORE, "prompts", "list"], "| head -0") == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_standard_output_that_cannot_be_written(tmp_path: Path) -> None:
    code, error = run([*CLAIMSCORE, "prompts", "list"], ">/dev/full")
    assert code == 75
    assert error.count("\n") == 1
    assert "what was to be printed is lost" in error


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    command = [*CLAIMSCORE, "cache", "stats", "--cache-dir", str(tmp_path / "é")]
    assert run(command, PYTHONIOENCODING="ascii") == (0, "")


def test_an_argument_that_is_no_text(tmp_path: Path) -> None:
    code, error = run([*CLAIMSCORE, "status", "\udcff"])
    assert code == 2
    assert "argument 2 is not UTF-8 text" in error


def test_who_reads_progress_may_go(tmp_path: Path) -> None:
    with FakeServer(text="x", latency_s=0.05) as server:
        command = map_command(tmp_path, server, 40)
        code, _ = run(command, "2>&1 >/dev/null | head -1")
        assert code == 0
        assert server.paid.total() == 40


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_code_made_from_text_is_a_stop_too(tmp_path: Path, number: int) -> None:
    """Imports make dataclasses from text: `python -m` must not end by the signal for it."""
    (tmp_path / "records.jsonl").write_text('{"summary_a": "It is warm.", "summary_b": "Cold."}\n')
    code_from_text = f"import os, time; os.kill(os.getpid(), {number}); time.sleep(9)"
    (tmp_path / "metric.py").write_text(f"exec({code_from_text!r})\n")
    command = [*CLAIMSCORE, "run", str(tmp_path / "records.jsonl"), "--out", str(tmp_path / "run")]
    code, error = run([*command, "--metric-file", str(tmp_path / "metric.py")])
    assert code == 75, error
    assert "interrupted" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_process_ends(tmp_path: Path, number: int) -> None:
    """A second Ctrl-C after the last message changes neither the exit status nor what is said."""
    code = (
        f"import atexit, os; atexit.register(lambda: os.kill(os.getpid(), {number}))\n"
        "import sys; from claimscore.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "cache", "verify"]
    status, error = run(command)
    assert (status, error.count("\n")) == (2, 1)
    assert "no cache here" in error
