"""SummaC with the published weights: the reference code's goldens, and files of weights."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric, summac_conv
from claimscore.metrics.summac_convolution import (
    MAX_BYTES,
    as_weights,
    bin_edges,
    histograms,
    load_weights,
    sentence_values,
)
from tests.support.shared_data import shared
from tests.support.summac_goldens import WEIGHTS, chunk, golden, probabilities, state

IMAGE = np.random.default_rng(0).random((4, 3, 3))


def test_goldens_with_every_aggregate() -> None:
    data, weights = golden(), load_weights(shared(WEIGHTS))
    assert list(bin_edges("percentile")) == data["percentile_bin_edges"]
    for case in data["cases"]:
        image, n = probabilities(case), case["conv_rows_used"]
        for aggregate, expected in case["conv"].items():
            found = summac_conv(image, weights, aggregate=aggregate, variant="code")
            assert found == pytest.approx(expected, abs=data["tolerance"]), case["name"]
        percentile = histograms(image, bin_edges("percentile"), "e")
        assert percentile[:n].tolist() == case["hist_percentile_23"]
        assert histograms(image, bin_edges("even50"), "e")[:n].tolist() == case["hist_even50"]
        values = sentence_values(percentile, weights)[:n]
        assert values == pytest.approx(case["conv_sentence_values"], abs=data["tolerance"])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("summac-zs", "zs_paper"),
        ("summac-zs:variant=code", "zs_default"),
        (f"summac-conv:variant=code:weights={shared(WEIGHTS)}", "conv_default"),
    ],
)
def test_goldens_come_out_of_the_metrics(name: str, key: str) -> None:
    cases, metric = golden()["cases"], load_metric(name)
    read = "sentence_code" if "variant=code" in name else "sentence"
    given = chunk({case["name"]: probabilities(case) for case in cases}, cuts=(read, read))
    for case, score in zip(cases, metric.score(given), strict=True):
        assert score.id == case["name"]
        assert score.value == pytest.approx(case[key], abs=1e-5), case["name"]


class _RunsCode:
    """What a hostile checkpoint holds: loading it by pickle would write a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self._path,))


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value).float() for name, value in state(23).items()}


def test_a_state_of_tensors_or_of_arrays_is_what_the_file_holds() -> None:
    loaded = torch.load(shared(WEIGHTS), weights_only=True)
    text = shared("data/summac/summac_conv_vitc_sent_perc_e.json").read_text()
    expected = summac_conv(IMAGE, str(shared(WEIGHTS)))
    assert summac_conv(IMAGE, loaded) == expected
    assert summac_conv(IMAGE, json.loads(text)["state_dict"]) == expected


def test_safetensors_keep_numbers_and_settings(tmp_path: Path) -> None:
    weights = load_weights(shared(WEIGHTS))
    settings = {"bins": "percentile", "labels": "e", "nli": "tals/albert-xlarge-vitaminc-mnli"}
    for name in ("a", "b"):
        weights.save(tmp_path / f"{name}.safetensors", settings)
    kept = load_weights(tmp_path / "a.safetensors")
    assert kept.settings == {**settings, "format": "claimscore-summac-conv-1"}
    assert kept.digest == weights.digest
    assert summac_conv(IMAGE, kept) == summac_conv(IMAGE, weights)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.filterwarnings("ignore")  # torch's own warning must not be what stops it
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_both_kinds_of_torch_checkpoints_are_read_and_run_no_code(
    tmp_path: Path, zipped: bool
) -> None:
    path, evil, trace = tmp_path / "any.name", tmp_path / "evil.bin", tmp_path / "ran"
    torch.save(tensors(), path, _use_new_zipfile_serialization=zipped)
    assert load_weights(path).digest == as_weights(tensors()).digest
    torch.save({**tensors(), "x": _RunsCode(trace)}, evil, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ConfigError, match=r"evil\.bin: not SummaC-Conv weights.*nothing in it"):
        load_weights(evil)
    assert not trace.exists()


def _cut(path: Path, save: Callable[[], None]) -> None:
    save()
    path.write_bytes(path.read_bytes()[:-8])


def _saved(**changes: Any) -> Callable[[Path], None]:
    return lambda path: save_file({**state(23), **changes}, path)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda path: _cut(path, lambda: torch.save(tensors(), path)), id="cut torch"),
        pytest.param(lambda path: _cut(path, lambda: save_file(state(23), path)), id="cut"),
        pytest.param(_saved(more=np.zeros(1)), id="a name too many"),
        pytest.param(_saved(**{"layer_final.weight": np.zeros((3, 2))}), id="other shapes"),
        pytest.param(_saved(**{"mlp.bias": np.array([np.inf])}), id="not finite"),
        pytest.param(lambda path: zipfile.ZipFile(path, "w").close(), id="a zip of something"),
        pytest.param(lambda path: path.write_text("hello " * 99), id="text"),
        pytest.param(lambda path: torch.save([1, 2], path), id="a list"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: None, id="nothing there"),
        pytest.param(_saved(**{"mlp.weight": np.zeros((1, MAX_BYTES // 8))}), id="too large"),
    ],
)
def test_damaged_and_foreign_files_are_one_line(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "w.bin"
    write(path)
    with pytest.raises(ConfigError, match=r"w\.bin: ") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"mlp.weight": [[1.0]]}, id="names missing"),
        pytest.param({**state(23), "mlp.weight": np.zeros((1, 0))}, id="no bins"),
        pytest.param({**state(23), "mlp.weight": np.zeros(23)}, id="one axis"),
        pytest.param({**state(23), "mlp.bias": "b"}, id="no tensor"),
    ],
)
def test_a_state_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the given state: not SummaC-Conv weights"):
        as_weights(given)
