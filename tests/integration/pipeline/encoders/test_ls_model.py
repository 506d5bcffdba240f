"""LS_Score's model: golden numbers, batching, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.ls_model import HEAD, SETTINGS, LSModel, load
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.pipeline.passes.text_scores import LS_NUMBERS
from tests.support.ls_models import golden_checkpoint, tiny_checkpoint
from tests.support.shared_data import shared

Tensors = dict[str, torch.Tensor]
Damage = Callable[[Path], object]

TOLERANCE = 2e-5
PAIRS = [
    ("The hotel was clean and quiet, near the beach.", "the hotel was clean."),
    ("We had a great stay: the pool was warm and the food was good.", "a great stay"),
    ("The hotel was clean and quiet, near the beach.", "the pool was warm and the food was good!"),
    ("a very expensive city hotel", "the hotel was clean."),
]


def model_at(folder: Path, **options: object) -> LSModel:
    return load(EncoderConfig(ls_model=str(folder), device="cpu", **options))


def numbers_of(model: LSModel, pairs: list[tuple[str, str]]) -> dict[str, NDArray[np.float64]]:
    sources, summaries = zip(*pairs, strict=True)
    return dict(zip(LS_NUMBERS, model.scores(sources, summaries).T, strict=True))


@pytest.fixture(scope="module")
def tiny_ls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("ls"))


@pytest.fixture(scope="module")
def golden_cases() -> list[dict]:
    return json.loads(shared("data/ls_score/golden.json").read_text())["cases"]


@pytest.mark.parametrize("budget", [1, 4096])
def test_golden_in_batches(golden_cases: list[dict], tmp_path: Path, budget: int) -> None:
    model = model_at(golden_checkpoint(tmp_path / "golden"), batch_tokens=budget)
    cases = [case for case in golden_cases if case["summary"]]
    numbers = numbers_of(model, [(case["article"], case["summary"]) for case in cases])
    for name, field in (
        ("linguistic", "L_score_paper_mean_over_cls_tokens_sep"),
        ("linguistic_inner", "L_score_mean_over_tokens_without_cls_sep"),
        ("semantic", "S_score"),
    ):
        expected = [case[field] for case in cases]
        assert numbers[name] == pytest.approx(expected, abs=TOLERANCE)
    long = [len(case["summary_input_ids"]) == 512 for case in cases]
    assert (numbers["summary_cut"] > 0).tolist() == long
    assert numbers["summary_tokens"].tolist() == [len(c["summary_input_ids"]) for c in cases]


def test_long_texts_are_cut_and_counted(tiny_ls: Path) -> None:
    model = model_at(tiny_ls)
    head = "clean " * (model.limit - 2)
    numbers = numbers_of(model, [(head, head), (head + "and " * 9, head + "warm " * 5)])
    assert numbers["summary_cut"].tolist() == [0, 5]
    assert numbers["linguistic"][0] == pytest.approx(numbers["linguistic"][1], abs=1e-6)
    assert model.scores([], []).shape == (0, len(LS_NUMBERS))


def test_pairs_that_cannot_be_scored_are_named(tiny_ls: Path) -> None:
    model = model_at(tiny_ls)
    with pytest.raises(RejectedItemsError) as caught:
        numbers_of(model, [*PAIRS, ("\u200b", "the hotel")])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (4,))


def test_numbers_that_are_not_finite_are_refused(tiny_ls: Path) -> None:
    model = model_at(tiny_ls)
    with torch.no_grad():
        model._head.decoder_l[2].bias[0] = float("nan")
    with pytest.raises(ConfigError, match="not finite"):
        numbers_of(model, PAIRS)


def test_the_revision_names_weights_and_settings(tiny_ls: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(tiny_ls, tmp_path / "again"))
    assert model_at(again).info.revision == model_at(tiny_ls).info.revision
    tensors = load_file(again / HEAD)
    tensors["decoder_l.2.bias"] += 1
    save_file(tensors, again / HEAD)
    assert model_at(again).info.revision != model_at(tiny_ls).info.revision


WEIGHTS = "model.safetensors"


def gone(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def tensors(name: str, change: Callable[[Tensors], Tensors]) -> Damage:
    return lambda folder: save_file(change(load_file(folder / name)), folder / name)


def setting(**changes: object) -> Damage:
    def change(folder: Path) -> None:
        content = json.loads((folder / SETTINGS).read_text())
        (folder / SETTINGS).write_text(json.dumps(content | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(gone(SETTINGS), "holds no LS_Score model", id="no checkpoint"),
        pytest.param(gone(HEAD), "cannot be read as safetensors", id="no head"),
        pytest.param(gone(WEIGHTS), "model.safetensors", id="no backbone"),
        pytest.param(
            tensors(HEAD, lambda old: {k: v[..., :4].clone() for k, v in old.items()}),
            "is no head of the model beside it",
            id="head of another size",
        ),
        pytest.param(
            tensors(HEAD, lambda old: {"weight": torch.zeros(1)}),
            "is no head of the model beside it",
            id="another file",
        ),
        pytest.param(setting(format="x"), "format", id="another format"),
        pytest.param(setting(max_tokens=65), "64 tokens at most", id="too many tokens"),
        pytest.param(setting(color="red"), "cannot be read", id="unknown setting"),
    ],
)
def test_broken_checkpoints_are_refused(
    tiny_ls: Path, tmp_path: Path, damage: Damage, message: str
) -> None:
    folder = Path(shutil.copytree(tiny_ls, tmp_path / "broken"))
    damage(folder)
    with pytest.raises(ConfigError, match=message) as caught:
        model_at(folder)
    assert "\n" not in str(caught.value)
