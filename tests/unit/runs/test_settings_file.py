"""run.toml holds what determines the results; other settings for the same folder are refused."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.runs import RunDirectory, models_asked
from claimscore.runs.settings_file import agreed, as_stored


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        yield opened


SETTINGS = {
    "version": "0.1",
    "seed": 0,
    "llm": {"model": "builtin", "rpm": None, "temperature": 0.5},
    "input": {"files": ("a.jsonl", "b.jsonl")},
    "additive": {"metrics": ("caspr",), "tasks": (), "prompts": {"decompose": "v1"}},
}


def test_settings_are_kept_as_toml(run: RunDirectory) -> None:
    run.check_settings(SETTINGS)
    before = (run.path / "run.toml").stat().st_mtime_ns
    run.check_settings(SETTINGS)
    assert (run.path / "run.toml").stat().st_mtime_ns == before
    assert run.settings["llm"] == {"model": "builtin", "temperature": 0.5}
    assert run.settings["input"] == {"files": ["a.jsonl", "b.jsonl"]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seed": 1}, "seed: was 0, now 1;"),
        ({"seed": False}, "seed: was 0, now false;"),
        ({"seed": None}, "seed: was 0, now not set;"),
        ({"new": "x"}, 'new: was not set, now "x";'),
        ({"llm": {"temperature": 0.5}}, 'llm.model: was "builtin", now not set;'),
        ({"input": {"files": ["b.jsonl"]}}, 'files: was [ "a.jsonl", "b.jsonl", ], now [ "b.j'),
        ({"additive": {"prompts": {"decompose": "v2"}}}, 'decompose: was "v1", now "v2";'),
    ],
)
def test_other_settings_are_refused(
    run: RunDirectory, change: dict[str, object], expected: str
) -> None:
    run.check_settings(SETTINGS)
    before = (run.path / "run.toml").read_bytes()
    with pytest.raises(ConfigError, match=re.escape(expected) + ".*give the old ones again"):
        run.check_settings({**SETTINGS, **change})
    assert (run.path / "run.toml").read_bytes() == before


def test_metrics_may_grow(run: RunDirectory) -> None:
    run.check_settings(SETTINGS)
    run.check_settings({**SETTINGS, "additive": {"metrics": ["ds"], "prompts": {"facts": "v1"}}})
    run.check_settings(SETTINGS)
    assert run.settings["additive"] == {
        "metrics": ["caspr", "ds"],
        "tasks": [],
        "prompts": {"decompose": "v1", "facts": "v1"},
    }


HUGE = b"#" * (1 << 22) + b"\n"
HUGE += b"# CRC-32 of the lines above: %08x\n" % zlib.crc32(HUGE)


@pytest.mark.parametrize(
    "damage", [b"seed = \n", b"", b"seed = 1\n", pytest.param(HUGE, id="huge"), None]
)
def test_a_changed_run_toml_is_refused(run: RunDirectory, damage: bytes | None) -> None:
    run.check_settings({"seed": 0})
    run.write_parts(0, "decompose", {})
    if damage is None:
        (run.path / "run.toml").unlink()
    else:
        (run.path / "run.toml").write_bytes(damage)
    why = "missing" if damage is None else "not what was written"
    with pytest.raises(ConfigError, match=rf"run\.toml: {why}; undo the change, or name another"):
        run.check_settings({"seed": 0})


def test_a_run_of_another_version_is_refused(run: RunDirectory) -> None:
    text = b"# Written by claimscore: everything that determines the results.\nseed = 0\n"
    check = b"# CRC-32 of the lines above: %08x\n" % zlib.crc32(text)
    (run.path / "run.toml").write_bytes(text + check)
    run.__exit__(None, None, None)
    (run.path / "claims").mkdir()
    part = run.path / "claims/part-000000-decompose.parquet"
    part.write_bytes(b"theirs")
    with pytest.raises(ConfigError, match=f"{run.path}: made by another version of claimscore"):
        RunDirectory(run.path).__enter__()
    assert part.exists()


values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda k: k != "additive"), values, max_size=4))
def test_settings_survive_toml(given_settings: dict[str, object]) -> None:
    stored = as_stored(given_settings)
    assert stored == given_settings
    assert agreed(stored, as_stored(stored), "run", {}) == stored


def test_a_language_model_is_named_with_its_server() -> None:
    llm = {"provider": "openai", "namespace": "http://gpu:8000/v1", "model": "m", "params": "{}"}
    parser = {"provider": "builtin", "namespace": "builtin", "model": "parser"}
    both = {"additive": {"llm": {"decompose": llm, "facts": parser}}}
    assert models_asked(both) == "openai:m at http://gpu:8000/v1 (decompose); parser (facts)"
