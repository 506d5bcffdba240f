"""An input that was validated is recognised, and only that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.records.dataset import Prepared, Selection, keep, prepare, recall

REQUIRED = {"ds": ("summary_a", "summary_b")}
MORE = {**REQUIRED, "ds3": ("summary_common",)}


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
    dataset = prepare(str(source), spool=state, required=REQUIRED)
    expected = Prepared(1, list(dataset.columns), dataset.digest)
    assert recall(str(source), REQUIRED, state) == expected
    assert recall(f"{source.parent}/*.jsonl", REQUIRED, state) == expected, "the same file"
    assert recall(str(source), MORE, state) is None
    assert recall(str(source), REQUIRED, state, Selection(limit=1)) is None


def same_size_and_time(source: Path) -> None:
    before = source.stat()
    source.write_text(source.read_text().replace("warm", "cold"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_inode(source: Path) -> None:
    other = source.with_name("other.jsonl")
    other.write_bytes(source.read_bytes())
    other.replace(source)


def one_file_more(source: Path) -> None:
    source.with_name("more.jsonl").write_text(source.read_text().replace('"r"', '"q"'))


@pytest.mark.parametrize("change", [same_size_and_time, another_inode, one_file_more])
def test_a_change_is_noticed(source: Path, state: Path, change: Callable[[Path], None]) -> None:
    change(source)
    assert recall(f"{source.parent}/*.jsonl", REQUIRED, state) is None


def test_standard_input_is_always_read(tmp_path: Path, source: Path) -> None:
    with source.open("rb") as stdin:
        dataset = prepare("-", spool=tmp_path / "state", required={}, stdin=stdin)
    keep(dataset, {}, tmp_path / "state")
    assert recall("-", {}, tmp_path / "state") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"claimscore": 1}'])
def test_a_damaged_note_is_no_note(source: Path, state: Path, content: bytes) -> None:
    (state / "input.json").write_bytes(content)
    assert recall(str(source), REQUIRED, state) is None
