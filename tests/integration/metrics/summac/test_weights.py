"""The weights of SummaC-Conv: read without running anything, kept as safetensors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from claimscore.cli import main
from claimscore.errors import ConfigError
from claimscore.metrics.summac import summac_conv
from claimscore.metrics.summac.weights import MAX_BYTES, as_weights, load_weights
from tests.support.shared_data import shared
from tests.support.summac_goldens import WEIGHTS
from tests.unit.metrics.summac.test_convolution import state

IMAGE = np.random.default_rng(0).random((4, 3, 3))


class _RunsCode:
    """What a hostile checkpoint holds: loading it by pickle would write a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self._path,))


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value).float() for name, value in state(23).items()}


def test_safetensors_keep_numbers_and_settings(tmp_path: Path) -> None:
    """A published checkpoint, kept, gives the same scores; equal input gives equal bytes."""
    weights = load_weights(shared(WEIGHTS))
    settings = {"bins": "percentile", "labels": "e", "nli": "tals/albert-xlarge-vitaminc-mnli"}
    for name in ("a", "b"):
        weights.save(tmp_path / f"{name}.safetensors", settings)
    kept = load_weights(tmp_path / "a.safetensors")
    assert kept.settings == {**settings, "format": "claimscore-summac-conv-1"}
    assert kept.digest == weights.digest
    assert summac_conv(IMAGE, kept) == summac_conv(IMAGE, weights)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_both_kinds_of_torch_checkpoints_are_read(tmp_path: Path, zipped: bool) -> None:
    """Torch's zip and its older plain form, under any name."""
    path = tmp_path / "weights.anything"
    torch.save(tensors(), path, _use_new_zipfile_serialization=zipped)
    assert load_weights(path).digest == as_weights(tensors()).digest


@pytest.mark.filterwarnings("ignore")  # torch's own warning must not be what stops it
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    """One line, and the file that the code would have written is not there."""
    path, trace = tmp_path / "evil.bin", tmp_path / "ran"
    torch.save({**tensors(), "x": _RunsCode(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ConfigError, match=r"evil\.bin: not SummaC-Conv weights.*nothing in it"):
        load_weights(path)
    assert not trace.exists()


def _cut(path: Path) -> None:
    torch.save(tensors(), path)
    path.write_bytes(path.read_bytes()[:-200])


def _other_model(path: Path) -> None:
    save_file({"weight": np.zeros((2, 2), np.float32)}, path)


def _other_shapes(path: Path) -> None:
    save_file({**state(23), "layer_final.weight": np.zeros((3, 2))}, path)


def _infinite(path: Path) -> None:
    save_file({**state(23), "mlp.bias": np.array([np.inf])}, path)


def _cut_safetensors(path: Path) -> None:
    save_file(state(23), path)
    path.write_bytes(path.read_bytes()[:-8])


def _plain_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(_cut, id="cut checkpoint"),
        pytest.param(_cut_safetensors, id="cut safetensors"),
        pytest.param(_other_model, id="another model"),
        pytest.param(_other_shapes, id="other shapes"),
        pytest.param(_infinite, id="not finite"),
        pytest.param(_plain_zip, id="a zip of something"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_text("hello " * 99), id="text"),
        pytest.param(lambda path: torch.save([1, 2], path), id="a list"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: None, id="nothing there"),
    ],
)
def test_damaged_and_foreign_files_are_one_line(tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    """`ConfigError` that names the file, whatever is wrong with it."""
    path = tmp_path / "w.bin"
    write(path)
    with pytest.raises(ConfigError, match=r"w\.bin: ") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """Whatever it is, it is another model."""
    path = tmp_path / "w.safetensors"
    save_file({**state(23), "mlp.weight": np.zeros((1, MAX_BYTES // 8))}, path)
    with pytest.raises(ConfigError, match="bytes are far too many"):
        load_weights(path)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"mlp.weight": [[1.0]]}, id="names missing"),
        pytest.param({**state(23), "more": np.zeros(1)}, id="a name too many"),
        pytest.param({**state(23), "mlp.weight": np.zeros((1, 0))}, id="no bins"),
        pytest.param({**state(23), "mlp.weight": np.zeros(23)}, id="one axis"),
        pytest.param({**state(23), "mlp.bias": "b"}, id="no tensor"),
    ],
)
def test_a_state_that_is_none_is_refused(given: dict[str, object]) -> None:
    """Exactly the four tensors of the published checkpoint."""
    with pytest.raises(ConfigError, match="the given state: not SummaC-Conv weights"):
        as_weights(given)  # type: ignore[arg-type]


def test_a_published_checkpoint_is_converted_by_a_command(tmp_path: Path) -> None:
    """With what the file itself does not say; settings that do not fit write nothing."""
    out = tmp_path / "weights.safetensors"
    command = ["models", "convert-summac", str(shared(WEIGHTS)), "--out", str(out)]
    assert main([*command, "--bins", "even50"]) == 2
    assert main([*command, "--granularity", "page"]) == 2
    assert not out.exists()
    assert main([*command, "--nli", "tals/albert-xlarge-vitaminc-mnli"]) == 0
    assert load_weights(out).settings["bins"] == "percentile"
