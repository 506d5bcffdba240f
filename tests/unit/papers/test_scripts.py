"""`papers.support` and `papers.claims`: scores and claims beside those of people."""

from pathlib import Path

import polars as pl
import pytest

from papers import claims, support
from papers.support import drawn
from tests.support.rated_tables import write_jsonl


def test_scores_stand_beside_published_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for case in map(str, range(6)):
        texts = {"case": case, "source": f"The kettle {case} boils water. It is red."}
        true, wrong = f"The kettle {case} boils water.", f"The pan {case} burns oil."
        rows.append({"id": f"{case}-true", **texts, "summary": true, "label": 1})
        edited = {"summary": wrong, "label": 0, "kind": "name", "twin": f"{case}-true"}
        rows.append({"id": f"{case}-0", **texts, **edited})
    path = write_jsonl(tmp_path / "bump.jsonl", rows)
    support.main([str(path), "--out", str(tmp_path / "out"), "--metrics", "rouge-1:against=source"])
    text = (tmp_path / "out" / "bump" / "table.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    (ours,) = [line for line in lines if line[:1] == ["rouge-1:against=source"]]
    assert ours[1:] == ["100.0"] * 3
    assert ["QAFactEval, published", "87.0", "71.4", ""] in lines
    assert "12 rows of 6 documents" in capsys.readouterr().out


def test_differences_are_paired() -> None:
    """A score that gets every row right beside one that turns every pair round: 100 points."""
    rows = [
        {
            "id": f"{case}{label}",
            "case": case,
            "label": label,
            "twin": None if label else f"{case}1",
        }
        for case in "abcdef"
        for label in (1, 0)
    ]
    frame = pl.DataFrame(rows).with_columns(
        right=pl.col("label") + 0.0, wrong=1.0 - pl.col("label"), even=pl.lit(0.5)
    )
    gains = support.differences(frame, ["wrong", "right", "even", "wrong"])
    assert gains.rows() == [
        ("right", *["+100.0 [+100.0, +100.0]"] * 2),
        ("even", *["+50.0 [+50.0, +50.0]"] * 2),
        ("wrong", *["+0.0 [+0.0, +0.0]"] * 2),
    ]
    alone = support.differences(frame.drop("twin"), ["even", "right"])
    assert alone.columns == ["less even, points", "ROC-AUC"]


def test_drawn_rows_have_their_twins() -> None:
    rows = [{"id": f"{n}", "twin": f"t{n}"} for n in range(20)]
    records = pl.DataFrame([*rows, *({"id": f"t{n}", "twin": None} for n in range(20))])
    some = drawn(records, 8)
    assert 8 <= some.height < 16
    assert set(some["twin"].drop_nulls()) <= set(some["id"])
    assert drawn(records, 8).equals(some)
    assert drawn(records, None) is records


def test_the_claims_of_builtin_stand_beside_human_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    human = {"summary": "Bo sat and Al ran.", "claims": ["Bo sat.", "Al ran."]}
    rows = [{"id": "1", **human}, {"id": "2", "summary": "Cy won.", "claims": ["Cy won."]}]
    records = write_jsonl(tmp_path / "rose.jsonl", rows)
    claims.main([str(records), "--out", str(tmp_path / "out")])
    systems = pl.read_parquet(tmp_path / "out" / "rose" / "systems.parquet")
    f1 = dict(systems.select("system", "f1").iter_rows())
    assert f1["builtin"] == 1.0
    assert f1["whole sentence"] == pytest.approx(2 * 2 / (2 + 3))
    assert "3 human claims of 2 sentences" in capsys.readouterr().out
