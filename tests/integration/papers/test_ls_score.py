"""The script of LS_Score's paper on a few records, with a tiny random backbone."""

from pathlib import Path

import numpy as np
import pytest

from papers.ls_score import RATINGS, cross_validated, main
from tests.integration.training.test_ls_score import toy_rows
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import save_tiny_encoder


def test_a_row_of_correlations_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    backbone = save_tiny_encoder(tmp_path / "backbone")
    texts = toy_rows(24)
    rows = [
        {
            "id": f"n{i}",
            "article_key": i // 2,
            "system": "s",
            "document": text["source"],
            "summary": text["summary"].split(" and ")[0] if i % 2 else text["summary"],
            "human": {name: [1 + i % 3, 3 + i % 2] for name in RATINGS},
        }
        for i, text in enumerate(texts)
    ]
    newsroom = write_jsonl(tmp_path / "newsroom.jsonl", rows)
    articles = write_jsonl(tmp_path / "articles.jsonl", [{**text, "label": 1} for text in texts])
    options = ("--articles", articles, "--backbone", backbone)
    main([*map(str, (newsroom, "--out", tmp_path / "out", *options))])
    table = [
        line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line[:1] == "|"
    ]
    assert [row[0].strip() for row in table[2:]] == [
        "published (BERT)",
        "untrained",
        "number of tokens alone",
        "trained",
        "linear head, cross-validated",
    ]
    assert all(abs(float(cell)) <= 1 for row in table[2:] for cell in row[1:])


def test_a_linear_relation_is_found_in_rows_that_are_held_out() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    y = x @ rng.normal(size=(5, 2)) + 3
    folds = np.arange(60) % 6
    assert cross_validated(x, y, folds) == pytest.approx(y, abs=1e-3)
    assert np.corrcoef(cross_validated(x, rng.permutation(y), folds)[:, 0], y[:, 0])[0, 1] < 0.5
