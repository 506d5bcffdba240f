"""Likelihoods in batches against the stock model, one text at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.language_models import (
    CausalLikelihood,
    Seq2SeqLikelihood,
    load_causal,
    load_seq2seq,
    sliding_windows,
)
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from tests.support.tiny_models import TEXTS, save_tiny_causal, save_tiny_nli, save_tiny_seq2seq

Folders = Callable[[str], Path]
LONG = "the hotel was not clean and the staff was rude! " * 15
TEXTS_OF_ALL_LENGTHS = [*TEXTS, LONG, TEXTS[0], "良い 😀", TEXTS[4] * 3]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a tiny model; each is made once."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            save = save_tiny_causal if family == "gpt2" else save_tiny_seq2seq
            made[family] = save(tmp_path_factory.mktemp("lm") / family, family)
        return made[family]

    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def causal(folder: Path, **options: Any) -> CausalLikelihood:
    return load_causal(
        EncoderConfig(causal_lm=str(folder), device="cpu", offline=True, batch_tokens=200)
        if not options
        else EncoderConfig(causal_lm=str(folder), device="cpu", offline=True, **options)
    )


def seq2seq(folder: Path) -> Seq2SeqLikelihood:
    config = EncoderConfig(seq2seq_lm=str(folder), device="cpu", offline=True, batch_tokens=300)
    return load_seq2seq(config)


# Causal


def test_causal_equals_the_stock_loss(tiny: Folders) -> None:
    """transformers' own loss of one text at a time is the mean that we give as sum and count."""
    texts = [text for text in TEXTS_OF_ALL_LENGTHS if text != LONG]
    model = AutoModelForCausalLM.from_pretrained(tiny("gpt2")).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny("gpt2"))
    found = causal(tiny("gpt2")).log_likelihoods(texts)
    for text, (log_likelihood, tokens) in zip(texts, found, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            loss = float(model(ids, labels=ids).loss)
        assert tokens == ids.shape[1] - 1
        assert -log_likelihood / tokens == pytest.approx(loss, abs=2e-5)


def test_long_texts_slide_as_in_the_documentation_of_transformers(tiny: Folders) -> None:
    """Windows of 64 tokens, 32 apart; each token is scored once, in the first window it is in."""
    model = AutoModelForCausalLM.from_pretrained(tiny("gpt2")).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(tiny("gpt2"))(LONG)["input_ids"]])
    size, total, n_scored, before = ids.shape[1], 0.0, 0, 0
    assert size > 64 * 2
    for begin in range(0, size, 32):
        end = min(begin + 64, size)
        window, labels = ids[:, begin:end], ids[:, begin:end].clone()
        labels[:, : before - begin] = -100
        with torch.no_grad():
            loss = float(model(window, labels=labels).loss)
        n = int((labels[:, 1:] != -100).sum())
        total, n_scored, before = total - loss * n, n_scored + n, end
        if end == size:
            break
    ((log_likelihood, tokens),) = causal(tiny("gpt2")).log_likelihoods([LONG])
    assert tokens == n_scored == size - 1
    assert log_likelihood / tokens == pytest.approx(total / n_scored, abs=2e-5)


@given(st.integers(0, 300), st.integers(2, 80))
@settings(deadline=None)
def test_windows_score_every_token_after_the_first_once(n_tokens: int, limit: int) -> None:
    """None is left out or counted twice, and each has its half window of context."""
    found = list(sliding_windows(n_tokens, limit))
    scored = [token for window in found for token in range(window.first, window.stop)]
    assert scored == list(range(1, n_tokens))
    for window in found:
        assert window.stop - window.start <= limit
        assert window.start < window.first
        assert window.start == 0 or window.first - window.start >= limit // 2


def test_a_text_of_one_token_has_nothing_to_score(tiny: Folders) -> None:
    """A sum of nothing over no token, which the metric calls null."""
    assert causal(tiny("gpt2")).log_likelihoods(["a"]).tolist() == [[0.0, 0.0]]


def test_batches_and_duplicates_change_nothing(tiny: Folders) -> None:
    """One at a time, in batches, in another order: the same to rounding; done counts all texts."""
    small, large = (causal(tiny("gpt2"), batch_tokens=n) for n in (1, 5000))
    texts = [*TEXTS_OF_ALL_LENGTHS, *TEXTS]
    heard: list[int] = []
    found = large.log_likelihoods(texts, on_batch=heard.append)
    assert heard[-1] == len(texts)
    assert np.abs(found - small.log_likelihoods(texts)).max() <= 2e-4
    turned = large.log_likelihoods(texts[::-1])[::-1]
    assert np.abs(found - turned).max() <= 2e-4


def test_nothing_asked_nothing_given(tiny: Folders) -> None:
    """An empty chunk."""
    assert causal(tiny("gpt2")).log_likelihoods([]).shape == (0, 2)
    assert seq2seq(tiny("bart")).log_likelihoods([], []).shape == (0, 2)


# Sequence to sequence


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_seq2seq_equals_the_published_computation(tiny: Folders, family: str) -> None:
    """BARTScore's `score`, a pair at a time: mean loss of the target's ids, both texts cut."""
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny(family)).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny(family))
    sources, targets = TEXTS_OF_ALL_LENGTHS, [*TEXTS_OF_ALL_LENGTHS[1:], TEXTS[0]]
    encoder = seq2seq(tiny(family))
    found = encoder.log_likelihoods(sources, targets)
    for source, target, (total, tokens) in zip(sources, targets, found, strict=True):
        given_ids, wanted_ids = (
            torch.tensor([tokenizer(text, truncation=True, max_length=64)["input_ids"]])
            for text in (source, target)
        )
        with torch.no_grad():
            loss = float(model(input_ids=given_ids, labels=wanted_ids).loss)
        assert tokens == wanted_ids.shape[1]
        assert total / tokens == pytest.approx(-loss, abs=2e-5)
    assert encoder.truncates(list(zip(sources, targets, strict=True))).sum() == 2


def test_direction_matters(tiny: Folders) -> None:
    """Likelihood of y given x is not that of x given y."""
    model = seq2seq(tiny("bart"))
    there, back = model.log_likelihoods([TEXTS[0], TEXTS[1]], [TEXTS[1], TEXTS[0]])
    assert abs(there[0] / there[1] - back[0] / back[1]) > 1e-3


def test_lists_of_unlike_length_are_refused(tiny: Folders) -> None:
    """A mistake of the caller."""
    with pytest.raises(ValueError, match="1 sources, but 2 targets"):
        seq2seq(tiny("bart")).log_likelihoods(["a"], ["a", "b"])


# What does not work


class FakeCausal:
    """Uniform over 1,000 ids; memory for so many tokens; NaN where it is told."""

    def __init__(self, most_tokens: int = 10**9, fill: float = 0.0) -> None:
        self.most_tokens, self.fill = most_tokens, fill
        self.widths: list[int] = []

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.numel() > self.most_tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        self.widths.append(input_ids.shape[1])
        return torch.full((*input_ids.shape, 1000), self.fill)


def fake(tiny: Folders, model: FakeCausal, limit: int = 64) -> CausalLikelihood:
    return CausalLikelihood(
        ModelInfo("fake", "1", "float32"),
        model,
        AutoTokenizer.from_pretrained(tiny("gpt2")),
        limit=limit,
        batch_tokens=256,
        device=torch.device("cpu"),
    )


def test_a_uniform_model_has_the_vocabulary_as_perplexity(tiny: Folders) -> None:
    """Every token has probability 1/1000, in short and long texts."""
    found = fake(tiny, FakeCausal()).log_likelihoods([TEXTS[0], LONG])
    assert np.exp(-found[:, 0] / found[:, 1]) == pytest.approx([1000, 1000], rel=1e-5)


def test_a_batch_that_does_not_fit_is_split(tiny: Folders) -> None:
    """The numbers stay; a single text that does not fit is rejected by its places."""
    whole = fake(tiny, FakeCausal()).log_likelihoods(TEXTS_OF_ALL_LENGTHS)
    split = fake(tiny, FakeCausal(70)).log_likelihoods(TEXTS_OF_ALL_LENGTHS)
    assert np.array_equal(whole, split)
    with pytest.raises(RejectedItemsError, match="does not fit") as caught:
        fake(tiny, FakeCausal(40)).log_likelihoods([TEXTS[4], LONG, TEXTS[4], LONG])
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (1, 3))


def test_numbers_that_are_not_finite_stop_the_run(tiny: Folders) -> None:
    """Never a score from a NaN."""
    with pytest.raises(ConfigError, match="not finite"):
        fake(tiny, FakeCausal(fill=float("nan"))).log_likelihoods([TEXTS[0]])


def test_texts_of_which_nothing_is_left_are_rejected(tiny: Folders) -> None:
    """The empty text, at all its places."""
    with pytest.raises(RejectedItemsError) as caught:
        causal(tiny("gpt2")).log_likelihoods(["", "the hotel", ""])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (0, 2))


@pytest.mark.parametrize(
    ("role", "option"), [("causal_lm", "--causal-lm"), ("seq2seq_lm", "--seq2seq-lm")]
)
def test_without_a_model_the_option_is_named(role: str, option: str) -> None:
    """Nothing is loaded by default."""
    with pytest.raises(ConfigError, match=option):
        load_model(role, EncoderConfig())


@pytest.mark.parametrize(
    ("role", "family"), [("seq2seq_lm", "gpt2"), ("causal_lm", "bart"), ("causal_lm", "t5")]
)
def test_models_of_another_kind_are_refused(tiny: Folders, role: str, family: str) -> None:
    """One line, with the model's name."""
    with pytest.raises(ConfigError, match=family) as caught:
        load_model(role, EncoderConfig(**{role: str(tiny(family))}, device="cpu", offline=True))
    assert "\n" not in str(caught.value)


def test_a_model_that_sees_what_follows_is_refused(tmp_path: Path) -> None:
    """BERT has a language model's head, but no language model's mask."""
    from transformers import AutoConfig, BertLMHeadModel

    folder = save_tiny_nli(tmp_path / "bert")
    config = AutoConfig.from_pretrained(folder)
    BertLMHeadModel(config).save_pretrained(folder)
    with pytest.raises(ConfigError, match="not a causal language model"):
        causal(folder)
