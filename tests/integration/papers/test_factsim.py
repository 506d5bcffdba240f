"""`papers.factsim`: the paper's examples, and correlations with ratings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from claimscore.stats.agreement import correlation
from papers.factsim import DIMENSIONS, correlations, main
from tests.support.embedded_models import needs_backbone
from tests.support.shared_data import shared
from tests.support.tiny_models import save_tiny_encoder

EXAMPLES: dict[str, Any] = {
    "table1": [
        {"sentence": "The room is not good.", "tuples": [["room", "bad"]]},
        {"sentence": "The room is quiet.", "tuples": [["room", "quiet"], ["room", "calm"]]},
    ],
    "table2": [
        {"claim": "The bed is soft.", "tuples": [["bed", "soft"]], "factsim": 1.0},
        {"claim": "The bed was very soft.", "tuples": [["bed", "soft"]], "factsim": 0.9},
        {"claim": "Never again!", "tuples": [["bed", "hard"]], "factsim": 0.7},
    ],
    "figure3": {
        "reviews": ["The room is quiet. The bed is soft.", "The staff was rude."],
        "summary": "The bed is soft. The pool is warm.",
        "references": ["The staff was rude."],
    },
}


def rows(out: Path, name: str) -> list[list[str]]:
    lines = (out / f"{name}.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]


def test_from_examples_to_tables(tmp_path: Path) -> None:
    path = tmp_path / "examples.json"
    path.write_text(json.dumps(EXAMPLES), encoding="utf-8")
    encoder = save_tiny_encoder(tmp_path / "bert")
    out = tmp_path / "out"
    main([str(path), "--out", str(out), "--embedder", str(encoder)])
    assert [row[1:3] for row in rows(out, "table1")] == [
        ["room bad", "room bad"],
        ["room quiet; room calm", "room quiet"],
    ]
    first, second, without_facts = rows(out, "table2")
    assert first[3:] == ["1.00", "1.00", "1.00"]
    assert second[1:] == ["bed soft", "bed soft", "1.00", "1.00", "0.90"]
    assert without_facts[2] == ""
    assert without_facts[4:] == ["none", "0.70"]
    product = rows(out, "product")
    assert [row[:2] for row in product] == [["summary", "2 of 3"], ["reference 1", "1 of 3"]]
    assert product[1][3] == "1.00", "the reviews say it too"


@needs_backbone
def test_the_examples_of_the_paper(tmp_path: Path) -> None:
    """The parser finds the paper's tuples; the embedded encoder keeps Table 2's order."""
    out = tmp_path / "out"
    main([str(shared("data/factsim/paper_examples.json")), "--out", str(out)])
    tuples = rows(out, "table1") + rows(out, "table2")
    assert len(tuples) == 12
    assert all(ours == papers for _, papers, ours, *_ in tuples)
    of_published = {row[5]: row[4] for row in rows(out, "table2")}
    assert of_published == {"1.00": "1.00", "0.84": "0.86", "0.76": "0.82", "0.53": "0.63"}
    assert len(rows(out, "product")) == 4


def test_correlations_are_of_whole_cases() -> None:
    """A case with a summary that has no score is left out."""
    rng = np.random.default_rng(0)
    records = pl.DataFrame(
        [
            {
                **{"id": f"{case}-{system}", "case": f"c{case}", "system": f"s{system}"},
                "ratings": {name: float(rng.integers(1, 6)) for name in DIMENSIONS},
            }
            for case in range(4)
            for system in range(3)
        ]
    )
    values = rng.normal(size=12)
    scores = pl.DataFrame({"id": records["id"], "m": values})
    lacking = scores.with_columns(m=pl.when(pl.col("id") == "2-1").then(None).otherwise("m"))
    kept = [0, 1, 3]
    ratings = records["ratings"].struct.field(DIMENSIONS[0]).to_numpy().reshape(4, 3)[kept]
    of = [
        correlation("kendall", values.reshape(4, 3)[kept], ratings, level=level).value
        for level in ("system", "summary")
    ]
    assert correlations(records, lacking, "m")[0] == " / ".join(f"{value:.2f}" for value in of)
