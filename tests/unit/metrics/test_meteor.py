"""METEOR by hand, against nltk, and without WordNet."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import meteor as module
from claimscore.metrics.meteor import check_wordnet, meteor
from claimscore.pipeline.run import run

steady = settings(deadline=None, max_examples=60)
WORDS = ("the", "hotel", "was", "clean", "cleaned", "not", "rooms", "room", ".")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        # m = 3, P = 1, R = 3/4; F = PR/(.9P + .1R); one chunk
        ("the clean room", "the clean room here", 0.75 / (0.9 + 0.075) * (1 - 0.5 / 27)),
        ("clean room", "room clean", 1 - 0.5),  # two chunks
        ("Clean rooms", "clean ROOM", 1 - 0.5 / 8),  # by the stem, in any case
        ("a b", "c d", 0.0),
    ],
)
def test_formula(candidate, reference, expected):
    """(1 − γ·(chunks/m)^β)·PR/(αP + (1 − α)R) with 0.9, 3, 0.5."""
    assert meteor(candidate, reference, synonyms=False) == pytest.approx(expected)


@steady
@given(texts, texts)
def test_range_and_equal_texts(candidate, reference):
    """In [0, 1]; n equal words in one chunk are 1 − 0.5/n³."""
    assert 0 <= meteor(candidate, reference, synonyms=False) <= 1
    n = len(module._words(candidate))
    assert meteor(candidate, candidate, synonyms=False) == pytest.approx(1 - 0.5 / n**3)


def test_without_wordnet_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("nltk.data.path", [])
    with pytest.raises(ConfigError, match=r"nltk\.downloader wordnet.*synonyms=none"):
        check_wordnet()
    source = tmp_path / "records.jsonl"
    source.write_text('{"summary": "clean rooms", "references": ["clean room"]}\n')
    config = RunConfig(input=str(source), out=tmp_path / "run", metrics=("meteor",))
    with pytest.raises(ConfigError, match="WordNet is not installed"):
        run(config)
    assert not (tmp_path / "run").exists()
    config = RunConfig(input=str(source), out=tmp_path / "run", metrics=("meteor:synonyms=none",))
    summary = run(config).summary["metrics"]["meteor:synonyms=none"]
    assert summary["mean"] == pytest.approx(1 - 0.5 / 8)


def test_synonyms_match_as_equal_words(monkeypatch):
    """`huge` is a synonym of `vast`, which neither letters nor stems say."""

    class WordNet:
        def synsets(self, word):
            lemmas = [SimpleNamespace(name=lambda: "vast")]
            return [SimpleNamespace(lemmas=lambda: lemmas)] if word == "huge" else []

    monkeypatch.setattr(module, "_wordnet", WordNet)
    pair = ("the huge hotel", "the vast hotel")
    assert meteor(*pair, synonyms=False) < meteor(*pair) == pytest.approx(1 - 0.5 / 27)
