from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from claimscore.errors import ConfigError, UnknownModelError
from claimscore.pipeline.encoders import loading
from claimscore.pipeline.encoders.devices import free_memory, is_out_of_memory, resolve_device
from claimscore.pipeline.encoders.loading import (
    ModelFolder,
    find_model,
    folder_digest,
    load_weights,
    resolve_dtype,
    token_limit,
)
from tests.support.tiny_models import save_tiny_encoder

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_encoder(tmp_path / "model")


def test_a_folder_is_its_own_source_with_a_digest(folder: Path) -> None:
    """A folder has no commit, so its bytes are its revision."""
    source = find_model(str(folder), offline=True)
    assert source == ModelFolder(str(folder), folder, folder_digest(folder))
    assert len(source.revision) == 12


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_the_digest_changes_with_every_file_that_changes_numbers(folder: Path, name: str) -> None:
    """Config, weights and tokenizer all take part."""
    before = folder_digest(folder)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    assert folder_digest(folder) != before


def test_the_digest_ignores_files_that_do_not(folder: Path) -> None:
    """A readme beside the weights changes no score."""
    before = folder_digest(folder)
    (folder / "README.md").write_text("notes")
    assert folder_digest(folder) == before


def test_a_hub_model_is_named_by_its_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_ID@REV is asked for at that revision; the resolved commit is what tables record."""
    commit = tmp_path / "snapshots" / ("c" * 40)
    commit.parent.mkdir()
    folder.rename(commit)
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
    ("offline", "why"),
    [
        pytest.param(True, "--offline is set", id="offline"),
        pytest.param(False, "hub cannot be reached", id="no network"),
    ],
)
def test_a_model_that_is_not_in_the_cache_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, offline: bool, why: str
) -> None:
    """One line: what is missing, why it was not fetched, what to do."""

    def snapshot_download(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("a long story\nof many lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(UnknownModelError, match=why) as caught:
        find_model("org/name", offline=offline)
    assert "\n" not in str(caught.value)
    assert "name a folder" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        pytest.param(RepositoryNotFoundError, UnknownModelError, "no such model", id="model"),
        pytest.param(RevisionNotFoundError, UnknownModelError, "or revision", id="revision"),
        pytest.param(GatedRepoError, ConfigError, "accept its terms", id="gated"),
        pytest.param(OSError, ConfigError, "cannot be fetched", id="disk full"),
    ],
)
def test_what_the_hub_answers_becomes_one_of_our_errors(
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    expected: type[ConfigError],
    message: str,
) -> None:
    """The user learns what to do, whatever the hub's own classes are."""

    def snapshot_download(*_: object, **__: object) -> str:
        raise error.__new__(error)  # their constructors want a whole HTTP response

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(expected, match=message) as caught:
        find_model("org/name@v1", offline=False)
    assert type(caught.value) is expected


@pytest.mark.parametrize("spec", ["/no/such/folder", "./none", "~/none", "two words", "a/b/c"])
def test_a_missing_folder_is_no_hub_model(spec: str) -> None:
    """A path that is not there is not asked of the hub."""
    with pytest.raises(UnknownModelError, match="no such folder"):
        find_model(spec, offline=True)


def test_a_file_is_not_a_model(folder: Path) -> None:
    """The folder is asked for, not one of its files."""
    with pytest.raises(ConfigError, match="name the folder"):
        find_model(str(folder / "model.safetensors"), offline=True)


def test_pickled_weights_are_refused(folder: Path) -> None:
    """A pickle can run code: it is not read, and the message says what to do."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"only pickled weights.*save_pretrained"):
        find_model(str(folder), offline=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("config.json", "no config.json", id="config"),
        pytest.param("model.safetensors", "no weights as safetensors", id="weights"),
    ],
)
def test_an_incomplete_folder_is_refused(folder: Path, name: str, message: str) -> None:
    """What is missing is named before anything is loaded."""
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=message):
        find_model(str(folder), offline=True)


def test_broken_files_become_one_line(folder: Path) -> None:
    """What transformers raises about a model is a matter of the settings, not a traceback."""
    source = find_model(str(folder), offline=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(ConfigError, match="cannot be loaded: ") as caught:
        loading.load_config(source)
    assert "\n" not in str(caught.value)


def test_a_repository_with_its_own_code_is_refused(folder: Path) -> None:
    """trust_remote_code stays off: the folder's module must not run."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        loading.load_config(find_model(str(folder), offline=True))


def test_parameters_that_would_be_random_are_refused(folder: Path) -> None:
    """An encoder without a trained head must not classify."""
    source = find_model(str(folder), offline=True)
    config = loading.load_config(source)
    with pytest.raises(ConfigError, match=r"no weights for classifier\.bias"):
        load_weights(
            source,
            AutoModelForSequenceClassification,
            config,
            device=CPU,
            dtype=torch.float32,
        )


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Reports and bars of transformers do not reach the terminal."""
    source = find_model(str(folder), offline=True)
    config = loading.load_config(source)
    config.num_hidden_layers = 1
    load_weights(source, AutoModel, config, device=CPU, dtype=torch.float32)
    assert "".join(capfd.readouterr()) == ""


def test_a_tokenizer_without_padding_is_refused(folder: Path) -> None:
    """Rows of different lengths could not share a batch."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["pad_token"] = None
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="no padding token"):
        loading.load_tokenizer(find_model(str(folder), offline=True))


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        pytest.param("bert", 48, id="positions from 0"),
        pytest.param("roberta", 48, id="positions from the padding index"),
        pytest.param("distilbert", 48, id="other attribute names"),
    ],
)
def test_the_limit_is_what_the_positions_allow(tmp_path: Path, family: str, expected: int) -> None:
    """A tokenizer without a limit does not lift the model's own."""
    folder = save_tiny_encoder(tmp_path / family, family, max_tokens=48)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 10**30
    config = AutoConfig.from_pretrained(folder)
    model = AutoModel.from_config(config)
    assert token_limit(tokenizer, config, model) == expected
    tokenizer.model_max_length = 20
    assert token_limit(tokenizer, config, model) == 20


def test_a_model_without_positions_has_the_tokenizers_limit() -> None:
    """Relative positions set no limit of their own."""

    class Bare:
        model_max_length = 10**30
        max_position_embeddings = -1

    assert token_limit(Bare(), Bare(), Bare()) == 10**6


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        pytest.param(MemoryError(), True, id="python"),
        pytest.param(torch.cuda.OutOfMemoryError("CUDA out of memory"), True, id="cuda"),
        pytest.param(
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True, id="cpu"
        ),
        pytest.param(RuntimeError("[enforce fail] not enough memory: you tried"), True, id="win"),
        pytest.param(RuntimeError("shapes cannot be multiplied"), False, id="other"),
        pytest.param(ValueError("out of memory"), False, id="not the allocator's class"),
    ],
)
def test_lack_of_memory_is_told_from_other_errors(exc: Exception, expected: bool) -> None:
    """Only a lack of memory is answered with smaller batches."""
    assert is_out_of_memory(exc) is expected


def test_auto_is_the_cpu_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """auto never fails: there is always a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU


@pytest.mark.parametrize("name", ["gpu", "mps", "", "cpu:x"])
def test_an_unknown_device_names_the_known(name: str) -> None:
    """A typing error is said before any model is loaded."""
    with pytest.raises(ConfigError, match="known: auto, cpu, cuda"):
        resolve_device(name)


def test_a_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how many there are."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="sees 1 CUDA"):
        resolve_device("cuda:1")


def test_cuda_keeps_float32_exact_and_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 is off on a GPU; a CPU has no cached blocks to free."""
    precisions: list[str] = []
    freed: list[bool] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precisions.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))
    free_memory(resolve_device("cuda"))
    free_memory(CPU)
    assert (precisions, freed) == (["highest"], [True])


def test_dtypes_by_name() -> None:
    """Settings name the arithmetic; float16 is not for the CPU."""
    assert resolve_dtype("float32", CPU) is torch.float32
    assert resolve_dtype("bfloat16", CPU) is torch.bfloat16
    assert resolve_dtype("float16", torch.device("cuda")) is torch.float16
    with pytest.raises(ConfigError, match="not for the CPU"):
        resolve_dtype("float16", CPU)
    with pytest.raises(ConfigError, match="known: float32"):
        resolve_dtype("int8", CPU)  # type: ignore[arg-type] # what a settings file may say


def test_a_cpu_without_bfloat16_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked for to save time, it would cost time there."""
    from claimscore.pipeline.encoders import loading

    for supported, messages in ((True, 0), (False, 1)):
        monkeypatch.setattr(loading, "packing_pays", lambda dtype, found=supported: found)
        caplog.clear()
        with caplog.at_level("WARNING", "claimscore"):
            resolve_dtype("bfloat16", torch.device("cpu"))
        assert len(caplog.records) == messages
