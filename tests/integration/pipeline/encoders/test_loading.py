import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoConfig, AutoModel, AutoTokenizer

from claimscore.errors import ConfigError, UnknownModelError
from claimscore.pipeline.encoders import loading
from claimscore.pipeline.encoders.loading import (
    ModelFolder,
    find_model,
    folder_digest,
    resolve_dtype,
    token_limit,
)
from tests.support.tiny_models import Folders

CPU = torch.device("cpu")


@pytest.fixture
def folder(tiny: Folders, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny(), tmp_path / "model"))


def found(folder: Path) -> ModelFolder:
    return find_model(str(folder), offline=True)


def test_a_folder_is_its_own_source_with_a_digest(folder: Path) -> None:
    """A folder has no commit, so its bytes are its revision: of all that changes numbers."""
    before = found(folder)
    assert before == ModelFolder(str(folder), folder, folder_digest(folder))
    assert len(before.revision) == 12
    (folder / "README.md").write_text("notes")
    assert found(folder) == before
    revisions = {before.revision}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        revisions.add(folder_digest(folder))
    assert len(revisions) == 4


def test_a_hub_model_is_named_by_its_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_ID@REV is asked for at that revision; the resolved commit is what tables record."""
    commit = folder.rename(folder.with_name("c" * 40))
    asked: list[tuple[str, str | None, bool]] = []

    def snapshot_download(
        name: str, *, revision: str | None, local_files_only: bool, **_: object
    ) -> str:
        asked.append((name, revision, local_files_only))
        return str(commit)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert find_model("org/name@v1", offline=False) == ModelFolder("org/name@v1", commit, "c" * 40)
    assert find_model("name", offline=True).name == "name"
    assert asked == [("org/name", "v1", False), ("name", None, True)]


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        pytest.param(RepositoryNotFoundError, UnknownModelError, "no such model", id="model"),
        pytest.param(RevisionNotFoundError, UnknownModelError, "or revision", id="revision"),
        pytest.param(GatedRepoError, ConfigError, "accept its terms", id="gated"),
        pytest.param(OSError, ConfigError, "cannot be fetched", id="disk full"),
        pytest.param(LocalEntryNotFoundError, UnknownModelError, "cannot be reached", id="network"),
        pytest.param(None, UnknownModelError, "--offline is set.*name a folder", id="offline"),
    ],
)
def test_what_the_hub_answers_becomes_one_of_our_errors(
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception] | None,
    expected: type[ConfigError],
    message: str,
) -> None:

    def snapshot_download(*_: object, **__: object) -> str:
        kind = error or LocalEntryNotFoundError
        raise kind.__new__(kind)  # their constructors want a whole HTTP response

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(expected, match=message) as caught:
        find_model("org/name@v1", offline=error is None)
    assert type(caught.value) is expected
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["/no/such/folder", "./none", "~/none", "two words", "a/b/c"])
def test_a_missing_folder_is_no_hub_model(spec: str) -> None:
    with pytest.raises(UnknownModelError, match="no such folder"):
        find_model(spec, offline=True)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"only pickled weights.*save_pretrained"):
        found(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights as safetensors")],
)
def test_an_incomplete_folder_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match="name the folder"):
        found(folder / name)
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=message):
        found(folder)


def test_a_repository_with_its_own_code_is_refused(folder: Path) -> None:
    """trust_remote_code stays off: the folder's module must not run."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ConfigError, match="cannot be loaded: ") as caught:
        loading.load_config(found(folder))
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_padding_is_refused(folder: Path) -> None:
    """Rows of different lengths could not share a batch."""
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["pad_token"] = None
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="no padding token"):
        loading.load_tokenizer(found(folder))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_the_limit_is_what_the_positions_allow(tiny: Folders, family: str) -> None:
    """From 0, from the padding index, under other names; a tokenizer without a limit does not
    lift it."""
    folder = tiny(family)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 10**30
    config = AutoConfig.from_pretrained(folder)
    model = AutoModel.from_config(config)
    assert token_limit(tokenizer, config, model) == 64
    tokenizer.model_max_length = 20
    assert token_limit(tokenizer, config, model) == 20


def test_dtypes_by_name(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    names: Any = ("float32", "bfloat16", "float16")
    for name in names:
        assert resolve_dtype(name, torch.device("cuda")) is getattr(torch, name)
    for supported in (True, False):
        monkeypatch.setattr(loading, "packing_pays", lambda dtype, known=supported: known)
        assert resolve_dtype("bfloat16", CPU) is torch.bfloat16
        assert len(caplog.records) == (not supported)
    with pytest.raises(ConfigError, match="not for the CPU"):
        resolve_dtype("float16", CPU)
    with pytest.raises(ConfigError, match="known: float32"):
        resolve_dtype("int8", CPU)  # type: ignore[arg-type] # what a settings file may say
