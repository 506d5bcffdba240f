"""The rule-made pairs about claims: what they are made from, and that their labels hold."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from claimscore.baseline import parser
from claimscore.errors import ConfigError
from claimscore.training import claim_pairs as made
from claimscore.training.text_changes import scramble, swap_roles
from tests.support.embedded_models import needs_backbone

FEW = made.Counts(200, 60, 200, 200)
SENTENCES = (
    "{name} was born in Lisbon in 1962 and moved to Porto with her family.",
    "{name} joined the orchestra in Vienna and praised the conductor in a letter.",
    "In 1994 {name} won the Silver Bow and did not accept the prize.",
)
CLAIMS = (
    ["{name} was born in Lisbon.", "{name} was born in 1962."],
    ["{name} joined the orchestra.", "{name} praised the conductor."],
    ["{name} won the Silver Bow in 1994."],
)


def biographies(families: str) -> pl.DataFrame:
    names = [
        f"{first} {last}" for first in ("Ana", "Eva", "Ida", "Mia") for last in families.split()
    ]
    return pl.DataFrame(
        {
            "name": name,
            "sentence_index": k,
            "sentence": text.format(name=name),
            "claims": [claim.format(name=name) for claim in CLAIMS[k]],
        }
        for name in names
        for k, text in enumerate(SENTENCES)
    )


@pytest.fixture
def human(tmp_path: Path) -> Path:
    """Files of the columns of FActScore, Factcheck-GPT and CaRB."""
    whole = biographies("Lopes Kern").select(
        "sentence_index", "sentence", topic="name", generator=pl.lit("G"), facts="claims"
    )
    shorter = whole.filter(pl.col("sentence_index") < 2).with_columns(generator=pl.lit("H"))
    pl.concat([whole, shorter]).write_parquet(tmp_path / "factscore.parquet")
    biographies("Weiss Holm").select(
        "sentence_index", "sentence", "claims", response_id="name"
    ).write_parquet(tmp_path / "factcheck_gpt.parquet")
    facts = [{"relation": "sold", "arguments": ["The baker", "3 loaves", "on Monday"]}]
    pl.DataFrame(
        {"sentence": ["The baker , a Dane , sold 3 loaves on Monday ."], "tuples": [facts]}
    ).write_parquet(tmp_path / "carb.parquet")
    return tmp_path


@pytest.fixture
def known() -> pl.DataFrame:
    rows = [
        (f"A man in a red shirt sells {k} apples.", f"A man sells {k} apples.", "entailment")
        for k in range(2, 60)
    ]
    return pl.DataFrame(rows, schema=["premise", "hypothesis", "label"], orient="row").with_columns(
        source=pl.lit("snli_dev_part")
    )


@needs_backbone
def test_pairs_of_every_rule_are_repeatable_and_documents_kept_apart(
    human: Path, known: pl.DataFrame
) -> None:
    pairs = made.claim_pairs(human, known, counts=FEW)
    assert pairs.equals(made.claim_pairs(human, known, counts=FEW))
    by_kind = {
        source.removeprefix("claim_"): pairs.filter(source=source)
        for source in pairs["source"].unique()
    }
    assert {"reworded", "paragraph", "unrelated", "name", "roles", "among"} < set(by_kind)
    assert set(by_kind["claim"]["label"]) == {"entailment"}
    assert all(h in p for p, h in by_kind["identity"].select("premise", "hypothesis").iter_rows())
    assert not set(by_kind["scrambled"]["label"]) - {"neutral"}
    assert "entailment" not in set(by_kind["number"]["label"])
    other = made.claim_pairs(human, known, counts=FEW, development=True)
    whole = pl.col("source").is_in(["claim_identity", "claim_paragraph"])
    assert not set(pairs.filter(whole)["premise"]) & set(other.filter(whole)["premise"])


@needs_backbone
def test_what_a_passage_says_is_entailed_and_what_is_changed_in_one_place_is_not(
    human: Path, known: pl.DataFrame
) -> None:
    pairs = made.claim_pairs(human, known, counts=FEW)

    def of(kind: str, label: str) -> list[tuple[str, str]]:
        found = pairs.filter(source=f"claim_{kind}", label=label)
        return found.select("premise", "hypothesis").rows()

    unsaid = of("unsaid", "neutral")
    assert any("Silver Bow" in claim for _, claim in unsaid)
    for premise, claim in unsaid:
        assert "Silver Bow" not in claim or "Silver Bow" not in premise
    assert any(claim.endswith("was born in Lisbon.") for _, claim in of("said", "entailment"))
    assert any("was not born" in claim for _, claim in of("denied", "contradiction"))
    changed = [*of("replaced", "neutral"), *of("replaced", "contradiction")]
    assert all(claim not in premise for premise, claim in changed)
    assert any(claim in premise for premise, claim in of("replaced", "entailment"))


@needs_backbone
@pytest.mark.parametrize(
    ("sentence", "turned"),
    [
        ("Norway beat Sweden in the final.", "Sweden beat Norway in the final."),
        ("The mayor was praised by a nurse.", "A nurse was praised by the mayor."),
    ],
)
def test_roles_are_exchanged(sentence: str, turned: str) -> None:
    tree = parser.load().parse(sentence)
    assert tree is not None
    assert swap_roles(random.Random(1), tree) == turned


@pytest.mark.parametrize("seed", range(40))
def test_scrambled_words_are_those_of_the_text_in_another_order(seed: int) -> None:
    text = "two old friends walked home from the small theatre"
    found = scramble(random.Random(seed), text).rstrip(".").lower()
    assert found != text
    assert not Counter(found.split()) - Counter(text.split())


def test_a_folder_without_the_files_is_refused(tmp_path: Path, known: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"factscore, factcheck_gpt, carb"):
        made.claim_pairs(tmp_path, known)
