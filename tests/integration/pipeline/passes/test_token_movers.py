"""The mover passes over a chunk, with an encoder that is a function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from claimscore.pipeline.encoders.protocols import (
    ModelInfo,
    OnBatch,
    RejectedItemsError,
    TokenLayers,
)
from claimscore.pipeline.passes import PASSES, PassResult
from claimscore.pipeline.passes.token_movers import GROUP_PAIRS, scored_tokens, word_vectors
from claimscore.tables import TEXT_SCORES
from tests.unit.pipeline.passes.test_model_pass import run_pass

pytest.importorskip("ot", reason="the extra movers is not installed")


class FakeEncoder:
    """A token a character, a word a white space; vowels, consonants and the rest are at right
    angles. Texts with `huge` do not fit."""

    info = ModelInfo("fake", "r1", "float32")

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        self.calls.append(list(texts))
        huge = tuple(i for i, text in enumerate(texts) if "huge" in text)
        if huge:
            raise RejectedItemsError("a text does not fit", "out_of_memory", huge)
        if on_batch is not None:
            on_batch(len(texts))
        return [self._layers(text, n_layers) for text in texts]

    def _layers(self, text: str, n_layers: int) -> TokenLayers:
        pieces = [(word, letter) for word, part in enumerate(text.split()) for letter in part]
        kinds = [0 if letter in "aeiou" else 1 if letter.isalpha() else 2 for _, letter in pieces]
        layers = np.stack([np.eye(3, dtype=np.float32)[kinds]] * n_layers)
        return TokenLayers(layers, [p for _, p in pieces], np.array([w for w, _ in pieces]))


def run(kind: str, **columns: list[object]) -> tuple[PassResult, FakeEncoder]:
    encoder = FakeEncoder()
    frame = pl.DataFrame({"id": [f"r{i}" for i in range(len(columns["summary"]))], **columns})
    return run_pass(kind, encoder, frame, over=("summary", "references")), encoder


def numbers(result: PassResult) -> dict[tuple[str, int, str], float | None]:
    frame = result.rows["text_scores"]
    assert frame.schema == pl.Schema(TEXT_SCORES.schema)
    rows = frame.select("id", "given_index", "name", "value").rows()
    return {row[:3]: row[3] for row in rows}


def test_words_are_means_of_their_tokens() -> None:
    """A word without a letter is no word."""
    text = FakeEncoder()._layers("ab 12 a", 1)
    assert word_vectors(text).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert word_vectors(FakeEncoder()._layers("12 !", 1)).shape == (0, 3)


def test_mover_score_reads_the_first_token_of_a_word() -> None:
    """No continuations, no punctuation; least, mean and largest over the layers."""
    found = scored_tokens(FakeEncoder()._layers("ab ! ba", 3))
    assert found.tolist() == [[1.0, 0.0, 0.0] * 3, [0.0, 1.0, 0.0] * 3]


def test_sentence_movers_by_hand() -> None:
    """Sentences are embedded one by one; of two words, half the weight moves √2."""
    result, encoder = run("sentence_movers", summary=["Rooms are big. It is."], references=[["a"]])
    assert encoder.calls == [["Rooms are big.", "It is.", "a"]]
    assert result.failures.is_empty()
    assert {name for _, _, name in numbers(result)} == {"wms", "sms", "s+wms"}
    result, _ = run("sentence_movers", summary=["a b"], references=[["a"]])
    assert numbers(result)["r0", 0, "wms"] == pytest.approx(math.exp(-math.sqrt(2) / 2))


def test_mover_score_by_hand() -> None:
    """Equal texts 1; a vowel against a consonant √2 apart, 2 when squared."""
    result, _ = run("mover_score", summary=["a", "a"], references=[["a", "b"], []])
    assert numbers(result) == {
        ("r0", 0, name): pytest.approx(1) for name in ("paper-1", "paper-2", "code-1", "code-2")
    } | {
        ("r0", 1, name): pytest.approx(value)
        for name, value in (
            ("paper-1", 1 - math.sqrt(2)),
            ("paper-2", 1 - math.sqrt(2)),
            ("code-1", -1),
            ("code-2", -1),
        )
    }


@pytest.mark.parametrize("kind", ["sentence_movers", "mover_score"])
def test_a_text_without_a_word_has_null(kind: str) -> None:
    """Not a number; blank texts have no row at all, and the next keeps its place."""
    result, _ = run(kind, summary=["a"], references=[["!", " ", "a"]])
    found = numbers(result)
    assert {index for _, index, _ in found} == {0, 2}
    assert all((value is None) == (index == 0) for (_, index, _), value in found.items())


@pytest.mark.parametrize("kind", ["sentence_movers", "mover_score"])
def test_a_text_that_does_not_fit_costs_its_record_alone(kind: str) -> None:
    """Also where the record's pairs are in two groups."""
    n = GROUP_PAIRS + 2
    references = [["a"], ["b"] * (n - 3) + ["huge"], ["a"]]
    result, _ = run(kind, summary=["a", "a", "a"], references=references)
    assert {record for record, _, _ in numbers(result)} == {"r0", "r2"}
    assert result.failures.select("id", "stage", "side", "kind").rows() == [
        ("r1", kind, "references", "out_of_memory")
    ]


def test_groups_change_no_number_and_texts_are_read_once() -> None:
    """In each group a text that many pairs share is embedded once."""
    n = 2 * GROUP_PAIRS + 1
    result, encoder = run("mover_score", summary=["a"] * n, references=[["ab b"]] * n)
    assert encoder.calls == [["a", "ab b"]] * 3
    values = {(name, value) for (_, _, name), value in numbers(result).items()}
    assert len(values) == 4


def test_no_pairs() -> None:
    """An empty table of the right schema, and nothing asked."""
    result, encoder = run("mover_score", summary=["a"], references=[[" "]])
    assert numbers(result) == {}
    assert encoder.calls == []


def test_what_is_missing_is_said_beforehand() -> None:
    """Both passes check for the library before a model is loaded."""
    assert {PASSES[kind].check.__name__ for kind in ("sentence_movers", "mover_score")} == {
        "check_transport"
    }
