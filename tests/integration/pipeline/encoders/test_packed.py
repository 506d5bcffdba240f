"""The packed forward pass: the stock model's numbers, one row at a time, in every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, T5Config, T5ForConditionalGeneration

from claimscore.pipeline.encoders import packed as products
from claimscore.pipeline.encoders.packed_families import family_of, packed_backbone, packed_t5
from claimscore.pipeline.encoders.tokenizing import TokenBatch, WholeRows, ragged
from tests.support.tiny_models import Folders

#: Tests of each role compare their numbers with the stock model's.
PACKED = (
    *("bert", "electra", "roberta", "xlm-roberta", "albert"),
    *("distilbert", "mpnet", "deberta-v2", "modernbert"),
)


def model_at(folder: Path) -> Any:
    return AutoModel.from_pretrained(folder).eval()


def rows(seed: int = 0, n: int = 9, longest: int = 30) -> list[list[int]]:
    """Random ids, none of a special token; neighbours of the same length, and others."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest, n).tolist()
    lengths = [*sorted([*lengths, *lengths[:3]], reverse=True), *lengths[:2]]
    return [generator.integers(5, 60, length).tolist() for length in lengths]


def batch_of(ids: list[list[int]]) -> TokenBatch:
    return WholeRows(ragged(ids)).batch(np.arange(len(ids)))


@torch.inference_mode()
def one_by_one(model: Any, batch: TokenBatch) -> Tensor:
    """The stock model's states of each row alone, ``[all tokens, hidden]``."""
    rows = [model(torch.from_numpy(ids)[None]) for ids in batch.split()]
    return torch.cat([row.last_hidden_state[0] for row in rows])


@pytest.mark.parametrize("block", ["relu", "gated-gelu"])
@pytest.mark.parametrize("is_tied", [True, False])
@torch.inference_mode()
def test_a_t5_gives_the_stock_models_first_answer(block: str, is_tied: bool) -> None:
    """Rows longer than the exact distances, and of one token; T5 itself and Flan-T5."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 3}
    config = T5Config(
        **sizes,
        **{"vocab_size": 70, "feed_forward_proj": block, "tie_word_embeddings": is_tied},
        **{"decoder_start_token_id": 0, "relative_attention_num_buckets": 8},
    )
    torch.manual_seed(0)
    stock = T5ForConditionalGeneration(config).eval()
    batch, start = batch_of([*rows(), [7]]), torch.zeros(1, 1, dtype=torch.long)
    expected = torch.stack(
        [
            stock(torch.from_numpy(ids)[None], decoder_input_ids=start).logits[0, 0]
            for ids in batch.split()
        ]
    )
    _, answers = packed_t5(stock, dtype=torch.float32)
    assert expected.std() > 0.05
    torch.testing.assert_close(answers(batch), expected, atol=2e-5, rtol=0)


def test_a_padding_token_within_a_text_is_not_counted(tiny: Folders) -> None:
    """RoBERTa gives it no position of its own, wherever it stands."""
    batch = batch_of([[5, 1, 7, 8], [9, 1, 1], [6, 7]])
    stock, backbone = model_at(tiny("roberta")), packed_backbone(model_at(tiny("roberta")))
    with torch.inference_mode():
        found = backbone.states(batch)
    torch.testing.assert_close(found, one_by_one(stock, batch), atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_reduced_precision_keeps_the_residual_stream(tiny: Folders, family: str) -> None:
    """Products alone are rounded: nearer to float32 than a model that is rounded throughout."""
    batch = batch_of(rows())
    exact = one_by_one(model_at(tiny(family)), batch)
    whole = one_by_one(model_at(tiny(family)).bfloat16(), batch).float()
    backbone = packed_backbone(model_at(tiny(family)), dtype=torch.bfloat16)
    with torch.inference_mode():
        found = backbone.states(batch)
    assert found.dtype == torch.float32
    error, worst = (found - exact).square().mean(), (whole - exact).square().mean()
    assert 0 < error < worst


def test_a_decoder_or_unknown_positions_run_padded(tiny: Folders) -> None:
    for family in PACKED:
        assert family_of(AutoConfig.from_pretrained(tiny(family))) is not None
    assert family_of(AutoConfig.for_model("bert", is_decoder=True)) is None
    for unlike in (
        AutoConfig.for_model("bert", position_embedding_type="relative_key"),
        AutoConfig.for_model("deberta-v2", relative_attention=True, conv_kernel_size=3),
        AutoConfig.for_model("deberta-v2"),
        AutoConfig.for_model("modernbert", rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ):
        assert family_of(unlike) is None


@torch.inference_mode()
def test_without_the_private_operators_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may change or go with any release."""

    def gone(*_: Any) -> Tensor:
        raise AttributeError("no such operator")

    linear = nn.Linear(8, 8)
    monkeypatch.setattr(products, "packing_pays", lambda dtype: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", gone, raising=False)
    given = torch.randn(3, 8)
    found = products.Product(linear, torch.float32, torch.float32)(given)
    assert torch.equal(found, linear(given))


@pytest.mark.gpu
@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)]
)
@torch.inference_mode()
def test_a_gpu_gives_the_same_states(
    tiny: Folders, family: str, dtype: torch.dtype, tolerance: float
) -> None:
    """By groups of equal length in float32, by varlen attention in less."""
    batch = batch_of(rows(n=60))
    expected = packed_backbone(model_at(tiny(family)), with_types=False)
    found = packed_backbone(model_at(tiny(family)).cuda(), dtype=dtype, with_types=False)
    for read in ("states", "first"):
        ours: NDArray[np.float32] = getattr(found, read)(batch).cpu().numpy()
        theirs = getattr(expected, read)(batch).numpy()
        assert np.abs(ours - theirs).max() <= tolerance
        assert np.array_equal(ours, getattr(found, read)(batch).cpu().numpy())
