"""`claimscore models`: what it says of a model, and how it refuses one."""

from pathlib import Path

import pytest

from tests.support import tiny_models
from tests.support.command_line import Command
from tests.support.tiny_models import LABELS


@pytest.mark.parametrize(
    ("family", "kind", "role", "runs"),
    [
        ("bert", "nli", "nli", "packed"),
        ("deberta", "nli", "nli", "padded"),
        ("roberta", "encoder", "embedder", "packed"),
        ("mpnet", "encoder", "token-encoder", "packed"),
    ],
)
def test_it_says_what_a_model_is_and_how_it_runs(
    tmp_path: Path, cli: Command, family: str, kind: str, role: str, runs: str
) -> None:
    folder = getattr(tiny_models, f"save_tiny_{kind}")(tmp_path / family, family)
    asked = ("--role", role, "--token-layer", "1") if role == "token-encoder" else ()
    call = ("models", "check", folder, "--device", "cpu", "--offline", *asked)
    facts = cli(*call, "--json").json()
    assert facts["model"] == str(folder)
    assert (facts["role"], facts["family"], facts["runs"]) == (role, family, runs)
    assert facts["labels"] == (list(LABELS) if role == "nli" else None)
    assert (facts["token_limit"], facts["batch_tokens"]) == (64, 1024)
    assert (facts["device"], facts["dtype"]) == ("cpu", "float32")
    said = cli(*call).out
    assert f"runs          {runs}\n" in said
    assert ("contradiction, neutral, entailment" in said) == (role == "nli")


def test_the_embedded_model_is_an_nli_model(cli: Command) -> None:
    facts = cli("models", "check", "embedded", "--json").json()
    assert (facts["model"], facts["role"], facts["runs"]) == ("embedded", "nli", "packed")


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
    tmp_path: Path, cli: Command, name: str, content: str | None, role: str
) -> None:
    folder = tiny_models.save_tiny_nli(tmp_path / "model", "bert")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    result = cli("models", "check", folder, "--role", role, "--device", "cpu")
    assert result.status == 2
    (line,) = result.err.splitlines()
    assert str(folder) in line
