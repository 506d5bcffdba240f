"""`claimscore models check`: what it says of a model, and when it refuses one."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import nli
from claimscore.pipeline.encoders.model_check import check_model
from tests.support.command_line import Command
from tests.support.tiny_models import LABELS, Folders

CPU = EncoderConfig(device="cpu", offline=True)


@pytest.mark.parametrize(
    ("family", "runs"), [("bert", "packed"), ("modernbert", "packed"), ("deberta", "padded")]
)
def test_a_classifier_agrees_with_the_stock_model(tiny: Folders, family: str, runs: str) -> None:
    found = check_model(str(tiny(family, "nli")), CPU)
    assert (found.role, found.family, found.runs, found.labels) == ("nli", family, runs, LABELS)
    assert family in found.why
    assert found.agrees
    assert 0 <= found.difference <= 2e-5


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_encoders_agree_with_the_stock_model(tiny: Folders, family: str) -> None:
    path = str(tiny(family))
    found = check_model(path, CPU)
    assert (found.role, found.agrees) == ("embedder", True)
    config = dataclasses.replace(CPU, token_layer=1)
    found = check_model(path, config, "token-encoder")
    assert found.agrees
    assert found.labels is None
    assert found.token_limit == 64


def test_bfloat16_has_a_bound_of_its_own(tiny: Folders) -> None:
    found = check_model(str(tiny("bert", "nli")), dataclasses.replace(CPU, dtype="bfloat16"))
    assert found.bound > 2e-5
    assert 2e-5 < found.difference <= found.bound


def test_the_command_says_what_a_run_would_do(tiny: Folders, cli: Command) -> None:
    path = str(tiny("bert", "nli"))
    said = cli("models", "check", path, "--device", "cpu", "--offline")
    assert "packed" in said.out
    assert "contradiction, neutral, entailment" in said.out
    assert "1,024 tokens" in said.out
    found = cli("models", "check", path, "--device", "cpu", "--json").json()
    assert found["agrees"] is True


def test_a_model_that_disagrees_is_an_exit_of_1(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    path = str(tiny("bert", "nli"))
    right = nli.BatchedPairClassifier.classify

    def turned(self: Any, pairs: Any, **options: Any) -> Any:
        return np.roll(right(self, pairs, **options), 1, axis=1)

    monkeypatch.setattr(nli.BatchedPairClassifier, "classify", turned)
    result = cli("models", "check", path, "--device", "cpu")
    assert result.status == 1
    (line,) = result.err.splitlines()
    assert "differs from the stock model" in line
    found = check_model(path, CPU)
    assert found.labels_differ
    assert not found.agrees


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("config.json", None, id="no-config"),
        pytest.param("config.json", "", id="empty-config"),
        pytest.param("config.json", "[]", id="config-is-a-list"),
        pytest.param("config.json", "{}", id="config-of-nothing"),
        pytest.param("model.safetensors", None, id="no-weights"),
        pytest.param("model.safetensors", "no tensors", id="broken-weights"),
        pytest.param("tokenizer.json", "{", id="broken-tokenizer"),
    ],
)
@pytest.mark.parametrize("role", ["nli", "embedder"])
def test_a_folder_that_is_no_model_is_one_line(
    tiny: Folders, tmp_path: Path, name: str, content: str | None, role: Any
) -> None:
    broken = Path(shutil.copytree(tiny("bert", "nli"), tmp_path / "broken"))
    (broken / name).unlink()
    if content is not None:
        (broken / name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        check_model(str(broken), CPU, role)
    assert "\n" not in str(caught.value)
