"""An input that was validated is recognised, and only that."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from claimscore.records import Prepared, keep, prepare, recall
from claimscore.records import dataset as dataset_module

REQUIRED = {"ds": ("summary_a", "summary_b")}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "pairs.jsonl"
    path.parent.mkdir()
    record = {"id": "r", "summary_a": "It is warm.", "summary_b": "It is old.", "system": "s"}
    path.write_text(json.dumps(record) + "\n")
    return path


@pytest.fixture
def state(tmp_path: Path, source: Path) -> Path:
    """A state folder whose run validated the source."""
    folder = tmp_path / "state"
    keep(prepare(str(source), spool=folder, required=REQUIRED), REQUIRED, folder)
    return folder


def test_what_was_found_is_found_again(source: Path, state: Path) -> None:
    """Number, columns and digest, without a look into the file."""
    dataset = prepare(str(source), spool=state, required=REQUIRED)
    expected = Prepared(1, tuple(dataset.columns), dataset.digest)
    assert recall(str(source), REQUIRED, state) == expected
    assert recall(str(source), {}, state) == expected, "less is needed than was checked"
    assert recall(f"{source.parent}/*.jsonl", REQUIRED, state) == expected, "the same file"


def test_more_columns_than_were_checked(source: Path, state: Path) -> None:
    """A metric more may need what no record was asked for."""
    assert recall(str(source), {**REQUIRED, "ds3": ("summary_common",)}, state) is None


def test_another_content_of_the_same_size_and_time(source: Path, state: Path) -> None:
    """Who sets the time back cannot hide a change."""
    before = source.stat()
    source.write_text(source.read_text().replace("warm", "cold"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert recall(str(source), REQUIRED, state) is None


def test_a_file_in_the_place_of_another(source: Path, state: Path) -> None:
    """A rename brings another inode."""
    other = source.with_name("other.jsonl")
    other.write_bytes(source.read_bytes())
    other.replace(source)
    assert recall(str(source), REQUIRED, state) is None


def test_one_file_more(source: Path, state: Path) -> None:
    """A pattern may match more than it did."""
    source.with_name("more.jsonl").write_text(source.read_text().replace('"r"', '"q"'))
    assert recall(f"{source.parent}/*.jsonl", REQUIRED, state) is None


def test_standard_input_is_always_read(tmp_path: Path, source: Path) -> None:
    """Nobody knows what will come."""
    with source.open("rb") as stdin:
        dataset = prepare("-", spool=tmp_path / "state", required={}, stdin=stdin)
    keep(dataset, {}, tmp_path / "state")
    assert recall("-", {}, tmp_path / "state") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"claimscore": 1}'])
def test_a_damaged_note_is_no_note(source: Path, state: Path, content: bytes) -> None:
    """The input says it again."""
    (state / "input.json").write_bytes(content)
    assert recall(str(source), REQUIRED, state) is None


def test_another_version_looks_itself(
    source: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may refuse more, or count otherwise."""
    monkeypatch.setattr(dataset_module, "__version__", "0.0.0")
    assert recall(str(source), REQUIRED, state) is None
