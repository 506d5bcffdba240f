"""BLANC's counts beside those of the authors' program."""

from pathlib import Path

import pytest

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model, masked_lm
from tests.support.tiny_models import Folders

SOURCE = (
    "The hotel was clean and quiet, near the beach. The staff was great and the pool was good! We "
    "had a great stay: the pool was warm and the food was good. Breakfast wasn't included, was it? "
    "A very expensive city hotel. Nothing was as promised; never again. The rooms were not clean "
    "and the staff was rude!"
)
LONG = (
    "The pool was warm and the staff great. The hotel is quiet. Breakfast was included. The rooms "
    "were not clean, the food was good, and nothing was as promised in the city hotel near the "
    "beach. Never again, it was very expensive and rude."
)
SUMMARIES = ["The hotel was clean.", LONG, "Nothing."]


def load(folder: Path) -> masked_lm.MaskedLanguageModel:
    model = load_model("masked_lm", EncoderConfig(masked_lm=str(folder), device="cpu"))
    assert isinstance(model, masked_lm.MaskedLanguageModel)
    return model


def test_counts_are_those_of_the_authors_program(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """blanc.py at commit 0e9baae, on this model, with the same sentences and learning rate.

    The second summary is longer than model and chunk.
    """
    monkeypatch.setattr(masked_lm, "LEARNING_RATE", 5e-3)
    model = load(tiny("bert", "masked", max_tokens=80))
    given = [SOURCE] * 3, SUMMARIES
    assert model.help_counts(*given).tolist() == [[20, 0, 0, 2], [20, 0, 1, 1], [19, 0, 1, 2]]
    assert model.tune_counts(*given).tolist() == [[17, 3, 2, 0], [20, 0, 2, 0], [19, 1, 2, 0]]
    assert model.truncates([(SOURCE, text) for text in SUMMARIES]).tolist() == [False, True, False]


@pytest.mark.parametrize("family", ["roberta", "deberta-v2"])
def test_other_tokenizers_mask_whole_words(tiny: Folders, family: str) -> None:
    model = load(tiny(family, "masked"))
    together = model.help_counts([SOURCE] * 3, SUMMARIES)
    alone = [model.help_counts([SOURCE], [text])[0].tolist() for text in SUMMARIES]
    assert together.tolist() == alone
    assert (together.sum(axis=1) > 10).all()


def test_a_source_without_words_counts_nothing(tiny: Folders) -> None:
    model = load(tiny("bert", "masked", max_tokens=80))
    assert model.help_counts(["It is."], ["A."]).tolist() == [[0, 0, 0, 0]]
    assert model.tune_counts(["It is."], ["A."]).tolist() == [[0, 0, 0, 0]]


def test_a_model_that_masks_nothing_is_refused(tiny: Folders) -> None:
    with pytest.raises(ConfigError, match="MaskedLM"):
        load(tiny("gpt2", "causal"))
