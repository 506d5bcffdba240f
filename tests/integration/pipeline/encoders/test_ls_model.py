"""LS_Score's model: golden numbers, batching, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.metrics import ls_score
from claimscore.pipeline.encoders import load_model, ls_checkpoint
from claimscore.pipeline.encoders.ls_checkpoint import HEAD, SETTINGS, LinguisticHead
from claimscore.pipeline.encoders.ls_model import LSModel, load
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.pipeline.encoders.token_rows import TokenBatch
from tests.support.ls_models import golden_checkpoint, tiny_checkpoint
from tests.support.shared_data import shared

TOLERANCE = 2e-5
PAIRS = [
    ("The hotel was clean and quiet, near the beach.", "the hotel was clean."),
    ("We had a great stay: the pool was warm and the food was good.", "a great stay"),
    ("The hotel was clean and quiet, near the beach.", "the pool was warm and the food was good!"),
    ("a very expensive city hotel", "the hotel was clean."),
]


def model_at(folder: Path, **options: object) -> LSModel:
    return load(EncoderConfig(ls_model=str(folder), device="cpu", **options))


@pytest.fixture(scope="module")
def golden_model(tmp_path_factory: pytest.TempPathFactory) -> LSModel:
    return model_at(golden_checkpoint(tmp_path_factory.mktemp("ls") / "golden"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("ls"))


@pytest.fixture(scope="module")
def golden_cases() -> list[dict]:
    return json.loads(shared("data/ls_score/golden.json").read_text())["cases"]


def test_golden_of_single_texts(golden_model: LSModel, golden_cases: list[dict]) -> None:
    """Ids, token log-probabilities, L and S of both variants, the empty summary included."""
    for case in golden_cases:
        document = golden_model.log_probs(case["article"])
        summary = golden_model.log_probs(case["summary"])
        padded = golden_model.log_probs(case["summary"], padded=True)
        assert document.ids == case["article_input_ids"]
        assert summary.ids == padded.ids == case["summary_input_ids"]
        assert summary.log_probs == pytest.approx(case["token_log_probs"], abs=TOLERANCE)
        assert len(padded.log_probs) == 512
        paper = ls_score(summary.ids, summary.log_probs, document.cls, summary.cls, variant="paper")
        assert paper == pytest.approx(
            (
                case["L_score_paper_mean_over_cls_tokens_sep"],
                case["S_score"],
                case["LS_score_paper_alpha0.01_beta1_cls_sep_included"],
            ),
            abs=TOLERANCE,
        )
        code = ls_score(padded.ids, padded.log_probs, document.cls, padded.cls, variant="code")
        expected = (case["code_L_score"], case["S_score"], case["code_LS_score"])
        assert code == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("budget", [1, 4096])
def test_golden_in_batches(golden_cases: list[dict], tmp_path: Path, budget: int) -> None:
    """Batches and padding to the longest change nothing; what was cut is told."""
    model = model_at(golden_checkpoint(tmp_path / "golden"), batch_tokens=budget)
    cases = [case for case in golden_cases if case["summary"]]
    numbers = model.score([(case["article"], case["summary"]) for case in cases])
    padded = model.padded_log_probs([case["summary"] for case in cases])
    for name, field in (
        ("linguistic", "L_score_paper_mean_over_cls_tokens_sep"),
        ("linguistic_inner", "L_score_mean_over_tokens_without_cls_sep"),
        ("semantic", "S_score"),
    ):
        expected = [case[field] for case in cases]
        assert getattr(numbers, name) == pytest.approx(expected, abs=TOLERANCE)
    raw = [case["code_L_raw_sum_over_512_positions_div_n"] for case in cases]
    assert padded[:, 0] / padded[:, 1] == pytest.approx(raw, abs=100 * TOLERANCE)
    long = [len(case["summary_input_ids"]) == 512 for case in cases]
    assert (numbers.summary_cut > 0).tolist() == long
    assert (numbers.document_cut > 0).tolist() == long
    assert numbers.summary_tokens.tolist() == [len(c["summary_input_ids"]) for c in cases]


def test_order_and_duplicates_change_nothing(tiny: Path) -> None:
    """Each pair has its own numbers, wherever it stands and however often."""
    model = model_at(tiny)
    first = model.score(PAIRS)
    order = [3, 0, 0, 2, 1, 3]
    again = model.score([PAIRS[i] for i in order])
    for values, repeated in zip(first, again, strict=True):
        np.testing.assert_allclose(repeated, values[order], atol=1e-6)


def test_each_distinct_text_is_encoded_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three documents and three summaries make six rows; progress counts the pairs."""
    model = model_at(tiny)
    rows: list[int] = []
    for name in ("states", "first"):
        encode = getattr(model._backbone, name)

        def counted(batch: TokenBatch, encode: Any = encode) -> object:
            rows.append(len(batch.lengths))
            return encode(batch)

        monkeypatch.setattr(model._backbone, name, counted)
    heard: list[int] = []
    model.score(PAIRS, on_batch=heard.append)
    assert sum(rows) == 6
    assert heard[-1] == len(PAIRS)
    assert heard == sorted(heard)


def test_logits_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little room there is for logits."""
    torch.manual_seed(0)
    head, states, tokens = LinguisticHead(8, 20), torch.randn(7, 8), torch.arange(7)
    whole = head(states, tokens)
    monkeypatch.setattr(ls_checkpoint, "LOGIT_BYTES", 160)
    torch.testing.assert_close(head.in_pieces(states, tokens), whole)
    assert head.in_pieces(states[:0], tokens[:0]).shape == (0,)


def test_no_pairs(tiny: Path) -> None:
    """Nothing in, nothing out."""
    model = model_at(tiny)
    assert all(len(values) == 0 for values in model.score([]))
    assert model.padded_log_probs([]).shape == (0, 2)


def test_long_texts_are_cut_and_counted(tiny: Path) -> None:
    """The first word pieces count; the next ones change nothing."""
    model = model_at(tiny)
    head = "clean " * (model.max_tokens - 2)
    numbers = model.score([(head, head), (head + "and " * 9, head + "warm " * 5)])
    assert numbers.summary_cut.tolist() == [0, 5]
    assert numbers.document_cut.tolist() == [0, 9]
    assert numbers.linguistic[0] == pytest.approx(numbers.linguistic[1], abs=1e-6)


def test_a_text_without_tokens_is_rejected_with_its_pairs(tiny: Path) -> None:
    """A zero-width space leaves no word piece: those pairs cannot be scored."""
    model = model_at(tiny)
    with pytest.raises(RejectedItemsError) as caught:
        model.score([*PAIRS, ("\u200b", "the hotel")])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (4,))
    with pytest.raises(RejectedItemsError) as caught:
        model.padded_log_probs(["clean", "\u200b", "\u200b"])
    assert caught.value.indices == (1, 2)


def test_a_text_that_does_not_fit_into_memory_is_rejected(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pairs are named; the caller scores the others."""
    model = model_at(tiny)
    encode = model._backbone.first

    def small(batch: TokenBatch) -> object:
        if batch.lengths.max() > 12:
            raise RuntimeError("out of memory")
        return encode(batch)

    monkeypatch.setattr(model._backbone, "first", small)
    with pytest.raises(RejectedItemsError) as caught:
        model.score([("the hotel", "clean"), ("the hotel " * 8, "clean")])
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (1,))


def test_numbers_that_are_not_finite_are_refused(tiny: Path) -> None:
    """A broken head ends the run with what to do."""
    model = model_at(tiny)
    with torch.no_grad():
        model._head.decoder_l[2].bias[0] = float("nan")
    with pytest.raises(ConfigError, match="not finite"):
        model.score(PAIRS)


def test_a_linear_head_scores_pairs_and_has_no_likelihood(tmp_path: Path) -> None:
    """score = w·[document; summary] + b of the two [CLS] vectors."""
    folder = tiny_checkpoint(tmp_path, "bert-linear")
    model = model_at(folder)
    numbers = model.score(PAIRS)
    assert np.isfinite(numbers.linear).all()
    assert np.isnan(numbers.linguistic).all()
    with pytest.raises(ConfigError, match="linear head"):
        model.padded_log_probs(["clean"])
    with pytest.raises(ConfigError, match="linear head"):
        model.log_probs("clean")


def test_the_revision_names_weights_and_settings(tiny: Path, tmp_path: Path) -> None:
    """Another head is another revision."""
    again = tiny_checkpoint(tmp_path)
    assert model_at(again).info.revision == model_at(tiny).info.revision
    tensors = load_file(again / HEAD)
    tensors["decoder_l.2.bias"] += 1
    save_file(tensors, again / HEAD)
    assert model_at(again).info.revision != model_at(tiny).info.revision


def test_without_a_name_there_is_no_model() -> None:
    """The message names the option and how to make one."""
    with pytest.raises(ConfigError, match=r"--ls-model.*claimscore train ls-score"):
        load_model("ls_model", EncoderConfig())


def drop_head(folder: Path) -> None:
    (folder / HEAD).unlink()


def break_head(folder: Path) -> None:
    (folder / HEAD).write_bytes(b"nothing")


def narrow_head(folder: Path) -> None:
    save_file({k: v[..., :4].clone() for k, v in load_file(folder / HEAD).items()}, folder / HEAD)


def other_names(folder: Path) -> None:
    save_file({"weight": torch.zeros(1)}, folder / HEAD)


def other_backbone(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v + 1 for k, v in tensors.items()}, folder / "model.safetensors")


def no_backbone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def no_settings(folder: Path) -> None:
    (folder / SETTINGS).unlink()


def setting(**changes: object):
    def change(folder: Path) -> None:
        content = json.loads((folder / SETTINGS).read_text())
        (folder / SETTINGS).write_text(json.dumps(content | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(no_settings, "holds no LS_Score model", id="no checkpoint"),
        pytest.param(drop_head, "cannot be read as safetensors", id="no head"),
        pytest.param(break_head, "cannot be read as safetensors", id="broken head"),
        pytest.param(narrow_head, "trained on another backbone", id="head of another size"),
        pytest.param(other_names, "is not this model's", id="another file"),
        pytest.param(other_backbone, "was trained on", id="another backbone"),
        pytest.param(no_backbone, "model.safetensors", id="no backbone"),
        pytest.param(setting(format="x"), "format", id="another format"),
        pytest.param(setting(head="x"), "ls or bert-linear", id="unknown head"),
        pytest.param(setting(max_tokens=65), "64 tokens at most", id="too many tokens"),
        pytest.param(setting(color="red"), "cannot be read", id="unknown setting"),
    ],
)
def test_broken_checkpoints_are_refused(tmp_path: Path, damage, message: str) -> None:
    """In one line that says what is wrong."""
    folder = tiny_checkpoint(tmp_path)
    damage(folder)
    with pytest.raises(ConfigError, match=message) as caught:
        model_at(folder)
    assert "\n" not in str(caught.value)
