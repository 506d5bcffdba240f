"""A killed process loses no reservation of the ledger."""

import signal
import subprocess
import sys
from pathlib import Path

from claimscore.pipeline.llm.budget.ledger import Spent
from tests.unit.pipeline.llm.budget.test_ledger import reopened


def test_a_kill_loses_no_reservation(tmp_path: Path) -> None:
    path = tmp_path / "spending.jsonl"
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from claimscore.pipeline.llm.budget.ledger import Ledger;"
        "ledger = Ledger(Path(sys.argv[1]));"
        "[ledger.reserve(100) for _ in range(50)];"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert reopened(path) == Spent(50, possibly_pico_usd=5000)
