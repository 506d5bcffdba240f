"""What the benchmarks compute; nothing here is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

if not _BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not shipped", allow_module_level=True)
sys.path += [str(_BENCHMARKS / name) for name in ("encoders", "encoders/clients", "scaling")]
