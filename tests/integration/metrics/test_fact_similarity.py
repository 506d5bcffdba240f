"""Fact similarity with real embeddings: the tables of the paper."""

from __future__ import annotations

import json

import pytest

from claimscore.metrics.fact_similarity import factsim
from tests.support.embedded_models import needs_backbone
from tests.support.shared_data import shared

pytestmark = needs_backbone


@pytest.fixture(scope="module")
def embed():
    """Facts given as (subject, description) -> vectors of the embedded encoder."""
    import torch

    from claimscore.config import EncoderConfig
    from claimscore.pipeline.encoders import load_model
    from claimscore.pipeline.passes.similarities import fact_text

    torch.set_num_threads(1)
    encoder = load_model("embedder", EncoderConfig(device="cpu", offline=True))
    return lambda tuples: encoder.embed([fact_text(*one) for one in tuples])


def examples() -> dict:
    return json.loads(shared("data/factsim/paper_examples.json").read_text(encoding="utf-8"))


def test_table_2_of_the_paper(embed):
    """One fact a claim: equal facts 1, and quick, slow, sluggish in the paper's order."""
    reference, found = [("car", "fast")], {}
    for row in examples()["table2"]:
        score = factsim(embed(reference), embed(row["tuples"])).score
        print(f"{row['claim']:45} ours {score:.2f}  paper {row['factsim']:.2f}")
        found[row["tuples"][0][1]] = score
    assert found["fast"] == pytest.approx(1, abs=1e-6)
    assert found["fast"] > found["quick"] > found["slow"] > found["sluggish"] > 0


def test_table_1_of_the_paper(embed):
    """Tuples of the negated sentence: nearer to the bad and slow car than to the good one."""
    sentences = examples()["table1"]
    negated = embed(sentences[0]["tuples"])
    scores = [factsim(embed(row["tuples"]), negated).score for row in sentences]
    for row, score in zip(sentences, scores, strict=True):
        print(f"{row['sentence']:45} {score:.2f}")
    assert scores[0] == pytest.approx(1, abs=1e-6)
    assert scores[2] == pytest.approx(1, abs=1e-6)
    assert max(scores[1], scores[3]) < 0.999
