"""What the benchmark of the encoder stage computes; nothing here is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[4] / "benchmarks" / "encoders"

if not FOLDER.is_dir():
    pytest.skip("the benchmarks are not shipped", allow_module_level=True)
for _folder in (FOLDER, FOLDER / "clients"):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))
