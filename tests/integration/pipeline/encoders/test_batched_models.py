"""What all models that run in batches have in common, whatever they compute: a fake forward pass
behind the real batches."""

import logging
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import LoadedEncoder, PaddedBackbone, PaddedModel
from claimscore.pipeline.encoders.embedder import PLAIN, BatchedEmbedder
from claimscore.pipeline.encoders.language_models import CausalLikelihood
from claimscore.pipeline.encoders.nli import BatchedPairClassifier, PairLogits
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.encoders.token_encoder import BatchedTokenEncoder
from claimscore.pipeline.encoders.tokenizing import PairTokenizer, find_template
from tests.support.tiny_models import LONG, TEXTS, Folders

CPU = torch.device("cpu")
INFO = ModelInfo("fake", "1", "float32")
ALL = [*TEXTS, TEXTS[0], "the hotel", LONG, TEXTS[3]]
LIMIT = 64

#: Asks a model of a role about texts, where need be beside a text that is always the same.
ASK: dict[str, Callable[..., Any]] = {
    "nli": lambda model, texts, **more: model.classify([(t, "b") for t in texts], **more),
    "embedder": lambda model, texts, **more: model.embed(texts, **more),
    "token_encoder": lambda model, texts, **more: model.bertscore(
        texts, ["b"] * len(texts), **more
    ),
    "causal_lm": lambda model, texts, **more: model.log_likelihoods(texts, **more),
}
every_role = pytest.mark.parametrize("role", ASK)


class FakeModel:
    """Numbers that depend on a row's own tokens alone, and a memory of `most_tokens`."""

    def __init__(self, most_tokens: int = 10**9, *, nan: bool = False) -> None:
        self.most_tokens = most_tokens
        self.rows: Counter[tuple[int, ...]] = Counter()
        self.table = torch.randn(500, 500, generator=torch.Generator().manual_seed(0))
        if nan:
            self.table[:] = torch.nan

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.numel() > self.most_tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        for row, mask in zip(input_ids, attention_mask, strict=True):
            self.rows[tuple(row[mask.bool()].tolist())] += 1
        return self.table[input_ids]

    def logits(self, **given: Tensor) -> Tensor:
        """Of each row, whatever its padding is."""
        return (self.states(**given) * given["attention_mask"][..., None]).sum(dim=1)[:, :3]


def made(
    tiny: Folders, role: str, fake: FakeModel, *, left: bool = False, budget: int = 256
) -> Any:
    causal = role == "causal_lm"
    tokenizer = AutoTokenizer.from_pretrained(tiny("gpt2", "causal") if causal else tiny())
    if causal:
        options: dict[str, Any] = {"device": CPU, "limit": LIMIT, "batch_tokens": budget}
        return CausalLikelihood(INFO, fake.states, tokenizer, **options)

    def padded(call: Callable[..., Any]) -> PaddedModel:
        return PaddedModel(call, device=CPU, pad_id=int(tokenizer.pad_token_id), pad_left=left)

    if role == "nli":
        model = PairLogits(CPU, True, padded(fake.logits))
        pairs = PairTokenizer(tokenizer, LIMIT, find_template(tokenizer, "tiny"))
        return BatchedPairClassifier(INFO, model, pairs, columns=(2, 1, 0), batch_tokens=budget)
    backbone = PaddedBackbone(
        padded(lambda **given: SimpleNamespace(last_hidden_state=fake.states(**given)))
    )
    loaded = LoadedEncoder(INFO, backbone, tokenizer, LIMIT)
    if role == "embedder":
        return BatchedEmbedder(loaded, PLAIN, budget)
    return BatchedTokenEncoder(loaded, layer=1, baseline=None, batch_tokens=budget)


@every_role
def test_a_smaller_memory_gives_the_same_numbers(
    tiny: Folders, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = ASK[role](made(tiny, role, FakeModel()), ALL)
    small = FakeModel(most_tokens=70)
    with caplog.at_level(logging.WARNING, logger="claimscore"):
        assert np.allclose(ASK[role](made(tiny, role, small), ALL), whole, atol=1e-5)
    assert set(small.rows.values()) == {1}
    assert "out of memory" in caplog.text


@every_role
def test_an_item_that_fits_nowhere_is_named(tiny: Folders, role: str) -> None:
    model = made(tiny, role, FakeModel(most_tokens=40))
    with pytest.raises(RejectedItemsError, match="of 64 tokens does not fit") as caught:
        ASK[role](model, ["the hotel", LONG, "staff", LONG])
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (1, 3))
    assert len(ASK[role](model, ["the hotel", "staff"])) == 2


@every_role
def test_nan_is_an_error_and_never_a_score(tiny: Folders, role: str) -> None:
    with pytest.raises(ConfigError, match="not finite in float32"):
        ASK[role](made(tiny, role, FakeModel(nan=True)), ALL)


@every_role
def test_progress_counts_inputs_and_may_stop(tiny: Folders, role: str) -> None:
    heard: list[int] = []
    ASK[role](made(tiny, role, FakeModel(), budget=60), [*ALL, *ALL], on_batch=heard.append)
    assert heard == sorted(heard)
    assert (heard[-1], len(heard) > 2) == (2 * len(ALL), True)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    fake = FakeModel()
    with pytest.raises(KeyboardInterrupt):
        ASK[role](made(tiny, role, fake, budget=60), ALL, on_batch=stop)
    assert len(fake.rows) < len(set(ALL))


@every_role
def test_each_distinct_item_is_computed_once(tiny: Folders, role: str) -> None:
    """Sentence and token encoders strip their texts."""
    fake, texts = FakeModel(), ["the hotel", "the staff", "the hotel"]
    if role in ("embedder", "token_encoder"):
        texts.append("\nthe hotel ")
    found = ASK[role](made(tiny, role, fake), texts)
    assert set(fake.rows.values()) == {1}
    assert len(fake.rows) == (3 if role == "token_encoder" else 2)
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(found[0], found[-1])
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("role", ["nli", "embedder", "token_encoder"])
def test_padding_on_the_left_takes_no_part(tiny: Folders, role: str) -> None:
    left = ASK[role](made(tiny, role, FakeModel(), left=True), ALL)
    assert np.allclose(left, ASK[role](made(tiny, role, FakeModel()), ALL), atol=1e-5)


@pytest.mark.parametrize(
    ("role", "bare"), [("embedder", "\u200b"), ("token_encoder", "\u200b"), ("causal_lm", "")]
)
def test_texts_of_which_the_tokenizer_leaves_nothing_are_named(
    tiny: Folders, role: str, bare: str
) -> None:
    with pytest.raises(RejectedItemsError, match="leaves nothing") as caught:
        ASK[role](made(tiny, role, FakeModel()), [bare, "the hotel", bare])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (0, 2))


@pytest.mark.parametrize(
    ("role", "width"), [("nli", 3), ("embedder", 0), ("token_encoder", 3), ("causal_lm", 2)]
)
def test_no_items_give_no_rows(tiny: Folders, role: str, width: int) -> None:
    assert ASK[role](made(tiny, role, FakeModel()), []).shape == (0, width)
