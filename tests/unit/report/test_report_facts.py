"""What the report holds of facts and of blocks, and what there is no room for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore import tables as schemas
from claimscore.blocks import Cut
from claimscore.metrics.base import ChunkTables
from claimscore.metrics.fact_similarity import FACTSIM
from claimscore.report.matrices import (
    BlockMatrices,
    FactMatrices,
    SupportRows,
)
from tests.support.frames import block_rows, fact_cells, fact_rows, support_rows
from tests.support.report_pages import decode


def frames(matrices: dict[str, Sequence[Sequence[float]]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    facts = [r for k, m in matrices.items() for r in fact_rows(k, len(m), len(m[0]))]
    cells = [row for name, matrix in matrices.items() for row in fact_cells(name, matrix)]
    return schemas.FACTS.frame(facts), schemas.SIMILARITIES.frame(cells)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_missing_and_unsupported_are_those_of_the_metric(data: Any) -> None:
    n, m = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    value = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([0.7, 0.6999995, 0.69999]))
    matrix = [[data.draw(value) for _ in range(m)] for _ in range(n)]
    facts, cells = frames({"x": matrix})
    records = pl.DataFrame([RECORD])
    read = {"records": records, "facts": facts, "similarities": cells}
    tables = ChunkTables(lambda name: read[name] if name in read else schemas.TABLES[name].empty())
    (score,) = FACTSIM.metric().score(tables)
    found = FactMatrices(facts, cells).of("x")
    assert found is not None
    for name, side in (("missing", "source"), ("unsupported", "summary")):
        assert [found[side][place] for place in found[name]] == score.components[name]
    assert (
        np.abs(np.array(decode(found["cells"])) / 1000 - np.clip(matrix, 0, 1).ravel()).max() < 1e-3
    )


def verdicts(rows: int, columns: int) -> list[list[tuple[float, float, float]]]:
    """Entailment on the diagonal."""
    return [
        [(0.8, 0.1, 0.1) if i == j else (0.1, 0.1, 0.8) for j in range(columns)]
        for i in range(rows)
    ]


RECORD = {
    "id": "x",
    "sources": ["The first sentence here. The second one.", "And a third sentence."],
    "summary": "The summary has two. This is the other.",
}


def test_blocks_are_cut_as_the_pass_cuts_them() -> None:
    rows = [
        *block_rows("x", verdicts(3, 2)),
        *block_rows("x", verdicts(3, 1), ("sentence", "document")),
    ]
    found = BlockMatrices(schemas.BLOCK_NLI.frame(rows)).of(RECORD)
    assert [(m["rows"], m["columns"], m["labels"]) for m in found["matrices"]] == [
        ("source.sentence", "summary.document", "ECC"),
        ("source.sentence", "summary.sentence", "ECCECC"),
    ]
    texts = [*RECORD["sources"]]
    assert found["blocks"]["source.sentence"] == Cut().document_blocks(texts)
    assert found["blocks"]["summary.document"] == [RECORD["summary"]]
    assert len(found["blocks"]["summary.sentence"]) == 2


def test_the_least_sure_claim_is_first_and_votes_are_named() -> None:
    votes = [{"verifier": name, "probability": p} for name, p in (("m", 0.25), ("n", 0.75))]
    rows = support_rows("x", [[0.9], [0.3], [0.5]])
    rows[2] |= {"votes": votes}
    support = SupportRows(schemas.SUPPORT.frame([row | {"model": "m"} for row in rows]))
    (found,) = support.of("x")
    assert (found["unsure"], found["counts"]) == ([2, 1], [2, 0, 1])
    assert [row[5] for row in found["rows"]] == ["", "", "m 0.25, n 0.75"]


def test_support_of_one_way_of_reading_is_shown() -> None:
    rows = [
        *support_rows("x", [[0.9, 0.1]], read="window"),
        *support_rows("x", [[0.2, 0.3]]),
        *support_rows("x", [[0.6]], sides=("references", "summary")),
    ]
    support = SupportRows(schemas.SUPPORT.frame([row | {"model": "m"} for row in rows]))
    found = support.of("x")
    assert [(one["side"], one["texts"], one["count"]) for one in found] == [
        ("summary", "source", 2),
        ("references", "summary", 1),
    ]
    assert found[0]["rows"] == [[0, 0, "E", 0.9, None, ""], [0, 1, "N", 0.1, None, ""]]
    assert [one["unsure"] for one in found] == [[], [0]], "by the text that supports it most"
    assert support.of("y") == []
