"""Texts are tokenised once, and one thread at a time is in a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from claimscore.pipeline.encoders import text_ids as text_ids_module
from claimscore.pipeline.encoders.pairs import distinct_pairs
from claimscore.pipeline.encoders.text_ids import KnownTexts, alone, text_ids
from claimscore.pipeline.encoders.tokenizing import PairTokenizer, TextTokenizer
from tests.tiny_models import save_tiny_encoder

WORDS = ["the", "hotel", "was", "not", "clean", "and", "staff", "rude", "very", "expensive"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = save_tiny_encoder(tmp_path_factory.mktemp("tok") / "bert", "bert")
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really tokenised."""
    texts: list[str] = []

    def counted(tokenizer: Any, given: Sequence[str]) -> Any:
        texts.extend(given)
        return text_ids(tokenizer, given)

    monkeypatch.setattr(text_ids_module, "text_ids", counted)
    return texts


def sentences(n: int, seed: int = 0) -> list[str]:
    """Distinct texts of 1 to 90 words."""
    rng = np.random.default_rng(seed)
    return [f"{' '.join(rng.choice(WORDS, rng.integers(1, 90)))} {i}" for i in range(n)]


def test_known_texts_are_not_tokenised_again(tokenizer: Any, asked: list[str]) -> None:
    """New and known ones come back in the order asked for, as the tokenizer has them."""
    known, texts = KnownTexts(tokenizer), ["", *sentences(9)]
    known.ids(texts[:6])
    found = known.ids(texts[::-1])
    assert asked == [*texts[:6], *texts[:5:-1]]
    expected = text_ids(tokenizer, texts[::-1])
    assert found.flat.tolist() == expected.flat.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert len(known.ids([]).flat) == 0


def test_what_was_not_used_for_longest_is_forgotten(tokenizer: Any, asked: list[str]) -> None:
    """The bound holds, and a call larger than it is answered all the same."""
    texts = [f"clean {i}" for i in range(40)]
    known = KnownTexts(tokenizer, most_bytes=10 * 300)
    known.ids(texts[:9])
    known.ids(texts[:1])
    known.ids(texts[9:13])
    known.ids(texts[:1])
    assert asked == texts[:13], "the first was used again, so it was kept"
    known.ids(texts[1:2])
    assert asked == [*texts[:13], texts[1]]
    assert known.ids(texts).flat.tolist() == text_ids(tokenizer, texts).flat.tolist()
    assert 0 < known._n_bytes <= 10 * 300
    assert known._n_bytes == sum(256 + len(t) + len(row) for t, row in known._known.items())


def test_asking_what_is_cut_tokenises_nothing_again(tokenizer: Any, asked: list[str]) -> None:
    """The store asks it of every pair that it keeps."""
    pairs = distinct_pairs([("clean " * 30, "a"), ("a", "b")])
    tokens = PairTokenizer(tokenizer, 16)
    asked.clear()
    tokens.encode(pairs)
    assert tokens.truncates(pairs).tolist() == [True, False]
    assert asked.count("a") == 1
    single = TextTokenizer(tokenizer, 16)
    single.encode(pairs.texts)
    single._tokenizer = None
    assert single.truncates(pairs.texts).tolist() == [True, False, False]


def test_a_failure_leaves_nothing_half_known(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that raises is asked again."""
    known = KnownTexts(tokenizer)

    def fails(tokenizer: Any, texts: Sequence[str]) -> Any:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(text_ids_module, "text_ids", fails)
        with pytest.raises(ValueError, match="no"):
            known.ids(["a", "b"])
    assert known.ids(["b"]).flat.tolist() == text_ids(tokenizer, ["b"]).flat.tolist()


def test_each_tokenizer_has_one_lock(tokenizer: Any) -> None:
    """Whoever asks; another has another."""
    other = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    assert alone(tokenizer) is alone(tokenizer)
    assert alone(tokenizer) is not alone(other)


def test_threads_share_a_tokenizer(tokenizer: Any) -> None:
    """Pairs, single texts and cuts at once: each gets what it gets alone.

    Without the lock, ids come back cut to another thread's limit or the tokenizer refuses.
    """
    texts = sentences(60)
    pairs = distinct_pairs(list(zip(texts, reversed(texts), strict=True)))
    alone_ids = text_ids(tokenizer, texts)

    def whole() -> Any:
        return text_ids(tokenizer, texts).flat.tobytes()

    def cut() -> Any:
        return TextTokenizer(tokenizer, 24).encode(texts).ids.flat.tobytes()

    def joined() -> Any:
        return PairTokenizer(tokenizer, 48).encode(pairs).rows.batch(np.arange(60)).ids.tobytes()

    jobs = [whole, cut, joined] * 12
    expected = [job() for job in jobs[:3]]
    assert expected[0] == alone_ids.flat.tobytes()
    with ThreadPoolExecutor(6) as pool:
        found = [future.result() for future in [pool.submit(job) for job in jobs]]
    assert found == expected * 12
