"""The page on scaling is made of the formulas."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import setups

ROOT = Path(__file__).resolve().parents[3]


def test_one_gpu_is_shared_so_that_both_end_together() -> None:
    split = setups.with_servers(setups.CLUSTERS[1], setups.hotel_pairs(1e6), setups.ASSUMED)
    assert 0.5 < split.serving < 1
    seconds = split.prediction.seconds
    assert seconds("servers") == pytest.approx(seconds("models"))


def test_the_page_is_up_to_date() -> None:
    path = ROOT / "scripts" / "make_scaling_doc.py"
    spec = importlib.util.spec_from_file_location("make_scaling_doc", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "explanation/scaling.md").read_text(encoding="utf-8")
    assert script.scaling_doc(page) == page, "run python scripts/make_scaling_doc.py"
