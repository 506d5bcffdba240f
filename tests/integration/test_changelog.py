"""The changelog of the next release is assembled from the fragments in changelog.d."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAGMENTS = [file for file in (ROOT / "changelog.d").iterdir() if file.suffix == ".md"]


def test_every_fragment_is_in_the_next_changelog() -> None:
    """A fragment is named topic.type.md; towncrier would leave another name out in silence."""
    for file in FRAGMENTS:
        assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", file.name), file.name
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "## 9.9 (" in done.stdout
    for file in FRAGMENTS:
        assert file.read_text(encoding="utf-8").strip() in done.stdout, file.name
