"""The simulation beside the formulas, and the page that is made of both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[4] / "benchmarks" / "scaling"

if not FOLDER.is_dir():
    pytest.skip("the benchmarks are not shipped", allow_module_level=True)
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))
