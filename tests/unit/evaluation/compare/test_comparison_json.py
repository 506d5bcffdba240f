"""The JSON object is plain; most of its names are recorded in tests/e2e/contract."""

from __future__ import annotations

import json
from pathlib import Path

from claimscore.evaluation.compare.comparison_json import to_json
from tests.support.compared_runs import compared, write_run


def test_the_json_object_is_plain(versions: tuple[Path, Path]):
    """It survives JSON without NaN; labels, which no recorded call has, keep their names."""
    found = to_json(compared(*versions))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["format"] == 1, "a changed meaning is a new format"
    (labels,) = found["runs"][0]["labels"]
    assert list(labels) == ["table", "records", "cells", "flipped", "share_same", "counts"]
    assert set(labels["counts"][0]) == {"baseline", "run", "cells"}


def test_a_group_is_a_difference_with_a_name(tmp_path: Path):
    """The names of a metric's difference, and the group's."""
    columns = {"system": ["x", "y"]}
    runs = [
        write_run(tmp_path / name, ["1", "2"], {"m": [1.0, second]}, columns=columns)
        for name, second in (("a", 2.0), ("b", 3.0))
    ]
    (run,) = to_json(compared(*runs, by="system"))["runs"]
    assert [row["group"] for row in run["groups"]] == ["x", "y"]
    assert run["groups"][0].keys() - {"group"} == run["differences"][0].keys()
