"""FactCC: source and summary as one pair, through the verifier."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import LONG, TEXTS, save_tiny_nli


@pytest.fixture
def records(tmp_path: Path) -> Path:
    rows = [{"id": str(n), "source": LONG + text, "summary": TEXTS[1]} for n, text in
            enumerate(TEXTS[2:4])]  # fmt: skip
    rows[1]["source"] = TEXTS[3]
    path = tmp_path / "in.jsonl"
    return write_jsonl(path, rows)


def test_the_probability_is_that_of_the_label_correct(
    cli: Command, tmp_path: Path, records: Path
) -> None:
    """As the stock model gives it for the pair, the source alone cut to the model's limit."""
    folder = save_tiny_nli(tmp_path / "two", labels=("INCORRECT", "CORRECT"))
    options = ("--metrics", "factcc", "--verifier", folder, "--out", tmp_path / "run", "--quiet")
    done = cli("run", records, *options)
    assert done.status == 0, done.err
    scores = pl.read_parquet(tmp_path / "run" / "scores.parquet").sort("id")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for line, value in zip(records.read_text().splitlines(), scores["value"], strict=True):
        row = json.loads(line)
        inputs = tokenizer(
            row["source"], row["summary"], truncation="only_first", max_length=64,
            return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            expected = model(**inputs).logits.softmax(-1)[0, 1].item()
        assert value == pytest.approx(expected, abs=2e-5)
    assert "limit of 64" in done.out
    assert str(folder) in scores["signature"][0]


def test_a_language_model_is_refused_with_the_way_out(
    cli: Command, tmp_path: Path, records: Path
) -> None:
    options = ("--metrics", "factcc", "--verifier", "llm", "--out", tmp_path / "run")
    refused = cli("run", records, *options)
    assert refused.status == 2
    assert "metric factcc: --verifier llm judges claims" in refused.err
