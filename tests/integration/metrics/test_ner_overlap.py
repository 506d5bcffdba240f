"""Entities in common, with spaCy's entity ruler in the place of a trained model."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cli import main
from claimscore.errors import ConfigError
from claimscore.metrics import load_metric, ner_overlap
from claimscore.metrics.ner_overlap import overlap
from tests.support.frames import tables
from tests.support.rated_tables import write_jsonl

entities = st.frozensets(st.sampled_from("abcdefg"))

PATTERNS = [
    {"label": "GPE", "pattern": [{"LOWER": "new"}, {"LOWER": "york"}]},
    {"label": "PERSON", "pattern": [{"LOWER": "ada"}]},
    {"label": "ORG", "pattern": [{"LOWER": "acme"}]},
    {"label": "DATE", "pattern": [{"LOWER": "monday"}]},
]


@pytest.fixture(scope="module")
def ruler(tmp_path_factory):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra: ner)")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns(PATTERNS)
    folder = tmp_path_factory.mktemp("spacy") / "ruler"
    nlp.to_disk(folder)
    return folder


def score(ruler, options="", **record):
    record = {"id": "x", "summary": "Ada in New York on Monday.", **record}
    metric = load_metric(f"ner-overlap:model={ruler}{options}")
    metric.check()
    (found,) = metric.score(tables([record]))
    return found


@given(entities, entities)
def test_shares_of_sets(summary, source):
    """Ranges, 1 for equal sets, P and R change places, F1 is their harmonic mean."""
    found, turned = overlap(summary, source), overlap(source, summary)
    assert (found.precision, found.recall, found.f1) == (turned.recall, turned.precision, turned.f1)
    assert all(value is None or 0 <= value <= 1 for value in found)
    assert set(overlap(summary, summary)) == ({1.0} if summary else {None})
    if found.f1:
        p, r = found.precision, found.recall
        assert found.f1 == pytest.approx(2 * p * r / (p + r))


def test_entities_are_compared_without_case(ruler):
    source = "ACME says: ADA lives in new york."
    found = score(ruler, source=source)
    assert found.value == pytest.approx(2 / 3)
    assert found.components["missing"] == ["monday"]
    assert found.components["n_source"] == 3
    assert score(ruler, ":measure=recall", source=source).value == pytest.approx(2 / 3)
    assert score(ruler, ":measure=f1", source=source).value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("options", "record", "expected"),
    [
        (":types=names", {"source": "Ada of New York"}, 1),
        ("", {"source": ["Ada.", "New York", "Monday!"]}, 1),
        ("", {"source": "nobody"}, 0),
        ("", {"summary": "nobody", "source": "Ada"}, "no entities in summary"),
        (":measure=recall", {"source": "nobody"}, "no entities in source"),
        (":measure=f1", {"source": "nobody"}, "no entities in source"),
        (":measure=f1", {"summary": "nobody", "source": "Ada"}, "no entities in summary"),
        ("", {"source": "Ada " * 300_000}, "a text is too long for spaCy"),
    ],
)
def test_a_share_or_a_reason(ruler, options, record, expected):
    found = score(ruler, options, **record)
    assert (found.reason if found.value is None else found.value) == expected


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.jsonl"
    rows = [
        {"id": "x", "source": "ACME is in New York.", "summary": "Ada of Acme, New York."},
        {"id": "y", "source": "Ada.", "summary": "Somebody."},
    ]
    return write_jsonl(path, rows)


def test_a_run_with_rules_for_a_model(ruler, records, tmp_path):
    out, metric = tmp_path / "out", f"ner-overlap:model={ruler}"
    assert main(["run", str(records), "--out", str(out), "--metrics", metric, "--quiet"]) == 0
    first, second = pl.read_parquet(out / "scores.parquet").iter_rows(named=True)
    assert first["value"] == pytest.approx(2 / 3)
    assert json.loads(first["components"])["missing"] == ["ada"]
    assert (second["value"], second["reason"]) == (None, "no entities in summary")
    assert f"ner:{ruler}" in first["signature"]


def test_without_spacy_a_run_ends_before_it_begins(records, tmp_path, monkeypatch, capsys):
    for name in ("spacy", "spacy.util"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    out = tmp_path / "out"
    command = ["run", str(records), "--out", str(out), "--metrics", "ner-overlap", "--quiet"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("spaCy is not installed; run pip install 'claimscore[ner]'")
    assert not out.exists()


def test_models_that_are_not_there_or_find_nothing(tmp_path):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra: ner)")
    with pytest.raises(ConfigError, match="python -m spacy download xx_none_sm"):
        load_metric("ner-overlap:model=xx_none_sm").check()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        ner_overlap._load(str(tmp_path))
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ConfigError, match="finds no entities"):
        ner_overlap._load(str(tmp_path / "blank"))
