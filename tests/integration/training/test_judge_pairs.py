"""What the embedded judge is trained on: `scripts.judge` makes its pairs, with labels that hold."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from claimscore.training.nli_examples import read_pairs
from scripts.judge import pairs as made
from scripts.judge.train import phases
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
def test_the_phases_learn_from_pairs_of_every_rule_and_documents_are_kept_apart(
    human: Path, known: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "TRAINING", FEW)
    data = tmp_path / "nli"
    data.mkdir()
    known.write_parquet(data / "train.parquet")
    *earlier, last = phases(data, human, tmp_path / "judge.safetensors")
    assert [phase.start for phase in (*earlier[1:], last)] == [phase.out for phase in earlier]
    monotone, claims = (read_pairs([file]) for file in last.data[1:])
    assert set(monotone["label"]) == {"entailment", "neutral"}
    assert claims.equals(made.claim_pairs(human, known, counts=FEW))

    def of(kind: str, *labels: str) -> list[tuple[str, str]]:
        found = claims.filter(pl.col("label").is_in(labels), source=f"claim_{kind}")
        return found.select("premise", "hypothesis").rows()

    kinds = {"claim", "reworded", "paragraph", "unrelated", "name", "roles", "among", "turned"}
    assert {f"claim_{kind}" for kind in kinds} < set(claims["source"])
    assert all(claim in premise for premise, claim in of("identity", "entailment"))
    assert not of("scrambled", "entailment", "contradiction")
    assert not of("number", "entailment")
    assert any("was not born" in claim for _, claim in of("denied", "contradiction"))
    assert any("Silver Bow" in claim for _, claim in of("unsaid", "neutral"))
    assert all("Silver Bow" not in p for p, c in of("unsaid", "neutral") if "Silver Bow" in c)
    changed = of("replaced", "neutral", "contradiction")
    assert all(claim not in premise for premise, claim in changed)
    assert any(claim in premise for premise, claim in of("replaced", "entailment"))
    other = made.claim_pairs(human, known, counts=FEW, development=True)
    whole = pl.col("source").is_in(["claim_identity", "claim_paragraph"])
    assert not set(claims.filter(whole)["premise"]) & set(other.filter(whole)["premise"])
