"""`papers.caspr`: the five comparisons, the texts that are made, and the table."""

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.metrics import distinctiveness
from claimscore.types import Completion
from papers.caspr import COMPARISONS, main, pairs, texts_of
from papers.command import read
from tests.fake_server import Body, FakeServer
from tests.support.rated_tables import write_jsonl
from tests.support.shared_data import shared

PUBLISHED_TEXTS = {
    "syn_low_contrast": "The room was calm. It is close to the beach.",
    "syn_high_contrast": "The room was loud. It is far from the beach.",
    "paraphrase_a": "It was a quiet room. The beach is near.",
    "paraphrase_b": "The personnel was impolite. The bed was firm.",
}
RECORDS: list[dict[str, Any]] = [
    {
        "id": f"pair/{n}",
        "entity_a_summary": [f"The room {n} was quiet. It is near the beach.", "Quiet rooms."],
        "entity_b_summary": ["The staff was rude. The bed was hard."],
        **PUBLISHED_TEXTS,
    }
    for n in range(3)
]
#: The names of the shared file -> those of the script.
NAMES = dict(
    zip(("syn_low", "ref_similar", "ref_contrastive", "syn_high", "syn_contrast"), COMPARISONS,
        strict=True)
)  # fmt: skip


def test_the_papers_pairs():
    """All 240 pairs of the published data, text by text."""
    rows = read([shared("data/caspr/comparisons.jsonl")]).iter_rows(named=True)
    wanted = {(f"{NAMES[r['comparison']]}/{r['id']}", r["text_a"], r["text_b"]) for r in rows}
    made = pairs(texts_of(read([shared("data/caspr/cocotrip_caspr.jsonl")])))
    assert len(made) == 240
    assert {tuple(pair.values()) for pair in made} == wanted


def cells(out: Path, row: str) -> list[str]:
    lines = (out / "caspr.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {row} ")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_table_has_means_and_the_papers_beside_them(tmp_path: Path, capsys: Any):
    path = write_jsonl(tmp_path / "records.jsonl", RECORDS)
    out = tmp_path / "out"
    main([str(path), "--out", str(out), "--metrics", "ds"])
    texts = [[row["entity_a_summary"][0], row["syn_high_contrast"]] for row in RECORDS]
    mean = sum(map(distinctiveness, texts)) / 3
    assert cells(out, "synthetic high")[0].startswith(f"{mean:.2f} ± ")
    assert cells(out, "synthetic high")[0].endswith("(44.5 ± 1.6)")
    assert cells(out, "order as wanted") == ["no"]
    printed = capsys.readouterr().out
    assert "Texts made by builtin: 0. Pairs without a score: 0 of 15." in printed
    assert printed.startswith("## The five comparisons of the CASPR paper, 3 pairs each")


def test_a_language_model_makes_the_texts_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A text of which a sentence could not be made leaves its pair out."""

    async def answer(body: Body) -> Completion:
        system, text = body["messages"][0]["content"], body["messages"][-1]["content"]
        text = text.splitlines()[-1]
        if "rude" in text:
            return Completion(text="no JSON", model="m")
        if "decompose" in system.lower() or "claims" in system.lower():
            return Completion(text=json.dumps({"claims": [text]}), model="m")
        key = "negation" if "negation" in system else "paraphrase"
        return Completion(text=json.dumps({key: f"{key} of {text}"}), model="m")

    kept = ("id", "entity_a_summary", "entity_b_summary")
    records = [{name: row[name] for name in kept} for row in RECORDS]
    path = write_jsonl(tmp_path / "records.jsonl", records)
    out = tmp_path / "out"
    with FakeServer(answer=answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        main([str(path), "--out", str(out), "--metrics", "ds", "--llm", "openai:m"])
    page = (out / "caspr.md").read_text(encoding="utf-8")
    assert "Texts made by openai:m: 9." in page
    assert "of 12." in page, "three pairs lack B's paraphrase"
    assert cells(out, "synthetic contrast") == ["no score (74.1 ± 0.8)"]
    assert cells(out, "ρ of the last and the third") == ["not defined (0.51)"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param({"id": 7}, "record 7: needs two texts of A", id="no texts"),
        pytest.param(None, "No such file", id="no file"),
        pytest.param("x", "neither JSONL nor Parquet", id="no JSON"),
    ],
)
def test_wrong_records_are_refused_in_one_line(
    tmp_path: Path, content: Any, message: str, capsys: Any
):
    path = tmp_path / "records.jsonl"
    if content is not None:
        path.write_text(content if content == "x" else json.dumps(content), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main([str(path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
