"""Likelihoods in batches against the stock model, one text at a time."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertLMHeadModel,
)

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.language_models import (
    CausalLikelihood,
    Seq2SeqLikelihood,
    load_causal,
    load_seq2seq,
)
from tests.support.tiny_models import LONG, TEXTS, Folders

LONGER = LONG * 2
TEXTS_OF_ALL_LENGTHS = [*TEXTS, LONGER, TEXTS[0], "良い 😀", TEXTS[4] * 3]


def causal(folder: Path, batch_tokens: int = 200) -> CausalLikelihood:
    options: dict[str, Any] = {"device": "cpu", "offline": True, "batch_tokens": batch_tokens}
    return load_causal(EncoderConfig(causal_lm=str(folder), **options))


def seq2seq(folder: Path) -> Seq2SeqLikelihood:
    config = EncoderConfig(seq2seq_lm=str(folder), device="cpu", offline=True, batch_tokens=300)
    return load_seq2seq(config)


@pytest.fixture
def gpt2(tiny: Folders) -> Path:
    return tiny("gpt2", "causal")


def test_causal_equals_the_stock_loss(gpt2: Path) -> None:
    """transformers' own loss of one text at a time is the mean that we give as sum and count; a
    text of one token has nothing to score."""
    texts = [*(text for text in TEXTS_OF_ALL_LENGTHS if text != LONGER), "a"]
    model = AutoModelForCausalLM.from_pretrained(gpt2).eval()
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    found = causal(gpt2).log_likelihoods(texts)
    for text, (log_likelihood, tokens) in zip(texts[:-1], found[:-1], strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            loss = float(model(ids, labels=ids).loss)
        assert tokens == ids.shape[1] - 1
        assert -log_likelihood / tokens == pytest.approx(loss, abs=2e-5)
    assert found[-1].tolist() == [0.0, 0.0]


def test_long_texts_slide_as_in_the_documentation_of_transformers(gpt2: Path) -> None:
    """Windows of 64 tokens, 32 apart; each token is scored once, in the first window it is in."""
    model = AutoModelForCausalLM.from_pretrained(gpt2).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(gpt2)(LONGER)["input_ids"]])
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
    model_of_ours = causal(gpt2)
    ((log_likelihood, tokens),) = model_of_ours.log_likelihoods([LONGER])
    assert tokens == n_scored == size - 1
    assert log_likelihood / tokens == pytest.approx(total / n_scored, abs=2e-5)
    assert model_of_ours.truncates([LONGER]).tolist() == [False]


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_seq2seq_equals_the_published_computation(tiny: Folders, family: str) -> None:
    """BARTScore's `score`, a pair at a time: mean loss of the target's ids, both texts cut."""
    folder = tiny(family, "seq2seq")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sources, targets = TEXTS_OF_ALL_LENGTHS, [*TEXTS_OF_ALL_LENGTHS[1:], TEXTS[0]]
    encoder = seq2seq(folder)
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
    assert encoder.log_likelihoods([], []).shape == (0, 2)
    with pytest.raises(ValueError, match="1 sources, but 2 targets"):
        encoder.log_likelihoods(["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("role", "named", "message"),
    [
        pytest.param("causal_lm", None, "--causal-lm", id="no causal model"),
        pytest.param("seq2seq_lm", None, "--seq2seq-lm", id="no seq2seq model"),
        pytest.param("seq2seq_lm", ("gpt2", "causal"), "gpt2", id="gpt2 as seq2seq"),
        pytest.param("causal_lm", ("bart", "seq2seq"), "bart", id="bart as causal"),
        pytest.param("causal_lm", ("t5", "seq2seq"), "t5", id="t5 as causal"),
    ],
)
def test_no_model_or_one_of_another_kind_is_refused(
    tiny: Folders, role: str, named: tuple[str, str] | None, message: str
) -> None:
    config: dict[str, Any] = {role: str(tiny(*named)) if named else None}
    with pytest.raises(ConfigError, match=message) as caught:
        load_model(role, EncoderConfig(**config, device="cpu", offline=True))
    assert "\n" not in str(caught.value)


def test_a_model_that_sees_what_follows_is_refused(tmp_path: Path, tiny: Folders) -> None:
    """BERT has a language model's head, but no language model's mask."""
    folder = Path(shutil.copytree(tiny(), tmp_path / "bert"))
    BertLMHeadModel(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    with pytest.raises(ConfigError, match="not a causal language model"):
        causal(folder)
