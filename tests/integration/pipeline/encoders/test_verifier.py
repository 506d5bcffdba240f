"""Verifiers of two labels: their inputs, their labels, and what is refused."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.nli import load_verifier as load
from claimscore.pipeline.encoders.nli import verdict_columns
from tests.support.command_line import Command
from tests.support.tiny_models import LONG, TEXTS, save_tiny_nli, save_tiny_seq2seq

CPU = EncoderConfig(device="cpu", offline=True)
GENERIC = ("LABEL_0", "LABEL_1")


def stock_probabilities(folder: Path, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """The stock model on one pair at a time, as its authors give it: as a pair, for MiniCheck as
    one text; of Flan-T5 the tokens 1 and 0 that its answer begins with."""
    tokenizer, rows = AutoTokenizer.from_pretrained(folder), []
    is_t5, is_joined = folder.name.endswith("T5"), folder.name.startswith("MiniCheck")
    auto = AutoModelForSeq2SeqLM if is_t5 else AutoModelForSequenceClassification
    model = auto.from_pretrained(folder).eval()
    for document, claim in pairs:
        texts = (document, claim)
        if is_joined:
            separator = tokenizer.eos_token or tokenizer.sep_token
            texts = (("predict: " if is_t5 else "") + separator.join(texts),)
        inputs = tokenizer(*texts, return_tensors="pt")
        if is_t5:
            begin = torch.tensor([[model.config.decoder_start_token_id]])
            inputs = {"input_ids": inputs["input_ids"], "decoder_input_ids": begin}
        with torch.no_grad():
            logits = model(**inputs).logits.reshape(1, -1)
        if is_t5:
            logits = logits[:, [tokenizer(answer)["input_ids"][0] for answer in "10"]]
        rows.append(F.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits)
    probabilities: NDArray[np.float32] = torch.cat(rows).softmax(-1).numpy()
    return probabilities


@pytest.mark.parametrize(
    ("name", "family", "labels", "found"),
    [
        pytest.param("factcc", "bert", ("CORRECT", "INCORRECT"), (0, 1), id="FactCC"),
        pytest.param("MiniCheck-RoBERTa", "roberta", GENERIC, (1, 0), id="MiniCheck RoBERTa"),
        pytest.param("MiniCheck-DeBERTa", "deberta-v2", GENERIC, (1, 0), id="MiniCheck DeBERTa"),
        pytest.param("MiniCheck-T5", "t5", (), (0, 1), id="MiniCheck Flan-T5"),
        pytest.param(
            "hallucination_evaluation_model", "deberta", ("LABEL_0",), (1, 0), id="HHEM: one output"
        ),
    ],
)
def test_a_verifier_agrees_with_the_stock_model_on_its_own_input(
    tmp_path: Path, name: str, family: str, labels: tuple[str, ...], found: tuple[int, int]
) -> None:
    """A pair too long for the model loses words of the document, never the claim."""
    folder = tmp_path / name
    if labels:
        save_tiny_nli(folder, family, labels=labels)
    else:
        save_tiny_seq2seq(folder, family)
    verifier = load(dataclasses.replace(CPU, verifier=str(folder)))
    assert verifier.kind == "binary"
    pairs = list(itertools.combinations(TEXTS, 2))
    expected = stock_probabilities(folder, pairs)[:, list(found)]
    assert expected.std(axis=0).min() > 1e-3, "the tiny model must tell pairs apart"
    assert np.abs(verifier.classify(pairs)[:, :2] - expected).max() <= 2e-5
    one, other, short = verifier.classify([(LONG * 3, TEXTS[0]), (LONG * 3, TEXTS[3]), TEXTS[:2]])
    assert abs(one[0] - other[0]) > 1e-6
    assert short[:2].sum() == pytest.approx(1)
    assert np.isnan(short[2])
    assert verifier.truncates([(LONG * 3, TEXTS[0]), TEXTS[:2]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("labels", "given", "columns"),
    [
        (("Supported", "not-supported"), (), (0, 1)),
        (("hallucinated", "consistent"), (), (1, 0)),
        (("not entailment", "entailment"), (), (1, 0)),
        (("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"), (), (0, 2, 1)),
        (GENERIC, ("supported", "unsupported"), (0, 1)),
        ((*GENERIC, "LABEL_2"), ("contradicted", "unmentioned", "supported"), (2, 1, 0)),
        (("LABEL_0",), ("supported",), (1, 0)),
    ],
)
def test_labels_are_the_models_own_or_given(
    labels: tuple[str, ...], given: tuple[str, ...], columns: tuple[int, ...]
) -> None:
    assert verdict_columns("m", dict(enumerate(labels)), given) == columns


@pytest.mark.parametrize(
    ("labels", "given", "said"),
    [
        (GENERIC, (), "its labels LABEL_0, LABEL_1 do not say which"),
        (("LABEL_0",), (), "its labels LABEL_0 do not say"),
        (("entailment", "contradiction"), (), "in --verifier-labels unsupported,supported"),
        (GENERIC, ("supported", "supported"), "--verifier-labels supported, supported do not say"),
        (GENERIC, ("supported",), "which of its 2 outputs"),
    ],
)
def test_open_labels_are_refused_with_the_way_out(
    labels: tuple[str, ...], given: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        verdict_columns("m", dict(enumerate(labels)), given)


def test_the_command_checks_a_verifier_with_given_labels(tmp_path: Path, cli: Command) -> None:
    folder = str(save_tiny_nli(tmp_path / "two", labels=GENERIC))
    refused = cli("models", "check", folder, "--device", "cpu")
    assert refused.status == 2
    assert "--verifier-labels" in refused.err
    labels = ("--set", "verifier-labels=unsupported,supported")
    found = cli("models", "check", folder, *labels, "--device", "cpu", "--json").json()
    assert found["role"] == "verifier"
    assert found["labels"] == ["not supported", "supported"]


def test_a_model_that_answers_otherwise_is_refused(tmp_path: Path) -> None:
    """BART's first token of 1 and 0 differ as well, but T5 without a token of its own is none."""
    folder = save_tiny_seq2seq(tmp_path / "MiniCheck-T5", "t5")
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"▁1"', '"▁one"'))
    with pytest.raises(ConfigError, match="do not begin with tokens of their own"):
        load(dataclasses.replace(CPU, verifier=str(folder)))


@pytest.mark.parametrize(("stored", "found"), [(0.3, 0.3), (2.0, None), ("high", None)])
def test_the_threshold_is_the_one_in_the_models_configuration(
    tmp_path: Path, stored: Any, found: float | None
) -> None:
    folder = save_tiny_nli(tmp_path / "two", labels=("supported", "unsupported"))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "threshold": stored}))
    assert load(dataclasses.replace(CPU, verifier=str(folder))).threshold == found
