"""`papers.claims`: from texts with human claims to the measures of a data set."""

from pathlib import Path

import polars as pl
import pytest

from papers.claims import main
from tests.support.rated_tables import write_jsonl


def test_the_claims_of_builtin_stand_beside_human_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    human = {"summary": "Bo sat and Al ran.", "claims": ["Bo sat.", "Al ran."]}
    rows = [{"id": "1", **human}, {"id": "2", "summary": "Cy won.", "claims": ["Cy won."]}]
    records = write_jsonl(tmp_path / "rose.jsonl", rows)
    main([str(records), "--out", str(tmp_path / "out")])
    systems = pl.read_parquet(tmp_path / "out" / "rose" / "systems.parquet")
    f1 = dict(systems.select("system", "f1").iter_rows())
    assert f1["run"] == 1.0
    assert f1["whole sentence"] == pytest.approx(2 * 2 / (2 + 3))
    assert "3 human claims of 2 sentences" in capsys.readouterr().out


def test_wrong_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = write_jsonl(tmp_path / "rose.jsonl", [{"id": "1", "summary": "Bo sat."}])
    with pytest.raises(SystemExit):
        main([str(records), "--out", str(tmp_path / "out")])
    assert "no column claims" in capsys.readouterr().err
