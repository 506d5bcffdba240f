"""`claimscore evaluate factsim`: the paper's examples, and what is no such file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main
from claimscore.errors import InputError
from claimscore.evaluation.factsim_examples import read_examples
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
        {"claim": "The bed was very soft.", "tuples": [["bed", "soft"]], "factsim": 1.0},
        {"claim": "Never again!", "tuples": [["bed", "hard"]], "factsim": 0.7},
    ],
    "figure3": {
        "reviews": ["The room is quiet. The bed is soft.", "The staff was rude."],
        "summary": "The bed is soft. The pool is warm.",
        "references": ["The staff was rude."],
    },
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("enc") / "bert")


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "examples.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def evaluate(*arguments: object) -> int:
    return main(["evaluate", "factsim", *map(str, arguments), "--quiet"])


def texts(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "texts.parquet")


def test_from_examples_to_tables(tmp_path: Path, encoder: Path, capsys: Any) -> None:
    source, out = written(tmp_path, EXAMPLES), tmp_path / "out"
    assert evaluate(source, "--out", out, "--embedder", encoder) == 0
    found = texts(out)
    assert found["part"].to_list() == ["table1"] * 2 + ["table2"] * 3
    assert found["published"].to_list() == [None, None, 1.0, 1.0, 0.7]
    assert found["published_facts"][1] == "room quiet; room calm"
    assert found["facts"].to_list() == ["room bad", "room quiet", "bed soft", "bed soft", ""]
    own = found["factsim"].to_list()
    assert [own[0], own[2], own[3]] == pytest.approx([1, 1, 1], abs=1e-5)
    assert (own[4], found["reason"][4]) == (None, "no facts in summary")
    of_paper = found["of_published_facts"].to_list()
    assert of_paper[3] == pytest.approx(1, abs=1e-5), "the same facts in the paper"
    assert 0 <= of_paper[4] < 1, "other facts"
    product = pl.read_parquet(out / "product.parquet")
    assert product["text"].to_list() == ["summary", "reference 1"]
    assert product["n_reviews"].to_list() == [3, 3]
    assert product["consistency"][1] == pytest.approx(1, abs=1e-5)
    assert (out / "run" / "report.html").is_file()
    printed, page = capsys.readouterr().out, (out / "factsim.md").read_text(encoding="utf-8")
    for shown in ("Table 1", "Table 2", "no facts in summary", "reference 1"):
        assert shown in printed
        assert shown in page


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param([], "Input should be an object", id="no object"),
        pytest.param({"tables": []}, "none of table1, table2, figure3", id="nothing known"),
        pytest.param({"table2": [{"claim": " ", "tuples": []}]}, "text is empty", id="blank"),
        pytest.param(
            {"table2": [{"claim": "a", "tuples": [["b"]]}]},
            "table2, item 1, tuples, item 1, item 2: Field required",
            id="no pair",
        ),
        pytest.param({"figure3": {"reviews": ["a"]}}, "needs reviews and a summary", id="product"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, capsys: Any, content: object, reason: str
) -> None:
    source = written(tmp_path, content)
    with pytest.raises(InputError, match=reason):
        read_examples(source)
    assert evaluate(source, "--out", tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@needs_backbone
def test_the_examples_of_the_paper(tmp_path: Path) -> None:
    """The built-in rules find the paper's tuples; the embedded encoder keeps Table 2's order."""
    source = shared("data/factsim/paper_examples.json")
    assert evaluate(source, "--out", tmp_path / "out") == 0
    found = texts(tmp_path / "out")
    assert found["facts"].to_list() == found["published_facts"].to_list()
    assert found["factsim"].to_list() == pytest.approx(
        found["of_published_facts"].to_list(), abs=1e-5
    )
    ours = dict(found.filter(part="table2").select("published", "factsim").iter_rows())
    assert ours == pytest.approx({1.0: 1.0, 0.84: 0.86, 0.76: 0.82, 0.53: 0.63}, abs=0.006)
    assert pl.read_parquet(tmp_path / "out" / "product.parquet").height == 4
