"""The passes of LS_Score over a chunk, with a model that is a function; and a whole run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import load_metric, ls_score
from claimscore.metrics.base import ChunkTables
from claimscore.pipeline.encoders.ls_model import PairNumbers, load
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.passes import PassResult
from claimscore.pipeline.run import run, score
from claimscore.tables import TEXT_SCORES
from tests.support.ls_models import tiny_checkpoint
from tests.unit.pipeline.passes.test_model_pass import run_pass

OVER = ("source", "summary")


class FakeModel:
    """Numbers from lengths; `huge` does not fit, a zero-width space has no tokens."""

    info = ModelInfo("fake", "r1", "float32")

    def __init__(self, head: str = "ls") -> None:
        self.head = head

    def score(self, pairs: Sequence[tuple[str, str]], *, on_batch: object = None) -> PairNumbers:
        self._refuse([" ".join(pair) for pair in pairs])
        lengths = np.array([(len(d), len(s)) for d, s in pairs], dtype=np.int64).reshape(-1, 2)
        cosine = lengths[:, 0] / 10
        cut = np.zeros(len(pairs), dtype=np.int64)
        means = -lengths[:, 1].astype(float)
        return PairNumbers(
            means, means - 1, cosine, cosine + 5, lengths[:, 0], cut, lengths[:, 1], cut
        )

    def padded_log_probs(
        self, summaries: Sequence[str], *, on_batch: object = None
    ) -> NDArray[np.float64]:
        self._refuse(summaries)
        return np.array([(-400.0, len(text)) for text in summaries]).reshape(-1, 2)

    @staticmethod
    def _refuse(texts: Sequence[str]) -> None:
        huge = tuple(i for i, text in enumerate(texts) if "huge" in text)
        if huge:
            raise RejectedItemsError("does not fit", "out_of_memory", huge)


def records(*rows: tuple[object, str | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"id": f"r{i}", "source": source, "summary": text}
            for i, (source, text) in enumerate(rows)
        ]
    )


def rows_of(result: PassResult) -> list[tuple]:
    frame = result.rows["text_scores"]
    assert frame.schema == pl.Schema(TEXT_SCORES.schema)
    columns = ("id", "measure", "side", "given_side", "given_index", "name", "value")
    return frame.select(columns).rows()


def test_a_summary_beside_every_text_of_the_source() -> None:
    """The likelihood once a summary, the cosine once a text; blank texts are left out."""
    result = run_pass("ls", FakeModel(), records((["one", " ", "three"], "abc")), over=OVER)
    assert rows_of(result) == [
        ("r0", "ls", "summary", None, None, "linguistic", -3.0),
        ("r0", "ls", "summary", None, None, "linguistic_inner", -4.0),
        ("r0", "ls", "summary", None, None, "tokens", 3.0),
        ("r0", "ls", "summary", None, None, "cut", 0.0),
        ("r0", "ls", "summary", "source", 0, "semantic", 0.3),
        ("r0", "ls", "source", None, 0, "tokens", 3.0),
        ("r0", "ls", "source", None, 0, "cut", 0.0),
        ("r0", "ls", "summary", "source", 1, "semantic", 0.5),
        ("r0", "ls", "source", None, 1, "tokens", 5.0),
        ("r0", "ls", "source", None, 1, "cut", 0.0),
    ]
    assert result.failures.is_empty()


def test_the_padded_pass_gives_the_codes_linguistic_score() -> None:
    """(−400/4 + 200)/100."""
    result = run_pass("ls_padded", FakeModel(), records(("a", "abcd")), over=("summary",))
    assert rows_of(result) == [("r0", "ls_padded", "summary", None, None, "linguistic_code", 1.0)]


@pytest.mark.parametrize(("kind", "over"), [("ls", OVER), ("ls_padded", ("summary",))])
def test_blank_texts_have_no_rows_and_rejected_ones_a_failure(
    kind: str, over: tuple[str, ...]
) -> None:
    """One text that the model rejects costs its record, not the chunk."""
    chunk = records(("a", " "), ("a", "huge"), ("a", "b"), ("a", None))
    result = run_pass(kind, FakeModel(), chunk, over=over)
    assert {row[0] for row in rows_of(result)} == {"r2"}
    assert result.failures.select("id", "stage", "kind").rows() == [("r1", kind, "out_of_memory")]


def test_a_linear_head_has_one_score_a_pair_and_no_padded_rows() -> None:
    """Neither L nor S; the metric says which variant fits."""
    model = FakeModel("bert-linear")
    names = {row[5] for row in rows_of(run_pass("ls", model, records(("a", "b")), over=OVER))}
    assert names == {"linear", "tokens", "cut"}
    padded = run_pass("ls_padded", model, records(("a", "b")), over=("summary",))
    assert rows_of(padded) == []


RECORDS = [
    {"id": "x", "source": "The hotel was clean and quiet. The pool was warm.", "summary": "clean"},
    {"id": "y", "source": ["We had a great stay.", "the staff was rude!"], "summary": "the pool"},
    {"id": "z", "source": "Nothing was as promised.", "summary": " "},
    {"id": "w", "source": "Nothing was as promised.", "summary": "\u200b"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps(record) for record in RECORDS]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def config(folder: Path, model: Path | None, *metrics: str) -> RunConfig:
    return RunConfig(
        input=str(folder / "in.jsonl"),
        out=folder / "run",
        metrics=metrics,
        encoders=EncoderConfig(ls_model=str(model) if model else None, device="cpu"),
        cache_dir=folder / "cache",
    )


def test_a_run_from_records_to_scores(folder: Path) -> None:
    """Both variants through the pipeline equal the plain function; the code's is added later."""
    model = tiny_checkpoint(folder)
    run(config(folder, model, "ls-score"))
    score(folder / "run", ("ls-score:variant=code",))
    scores = pl.read_parquet(folder / "run" / "scores.parquet")
    found = {(r["id"], r["metric"]): r for r in scores.iter_rows(named=True)}
    loaded = load(EncoderConfig(ls_model=str(model), device="cpu"))
    document = loaded.log_probs(RECORDS[0]["source"])
    for variant, name in (("paper", "ls-score"), ("code", "ls-score:variant=code")):
        text = loaded.log_probs("clean", padded=variant == "code")
        expected = ls_score(text.ids, text.log_probs, document.cls, text.cls, variant=variant)
        assert found["x", name]["value"] == pytest.approx(expected.score, abs=1e-5)
        assert found["y", name]["value"] is not None
        assert found["z", name]["reason"] == "no text in summary"
        assert found["w", name]["reason"].startswith("ls failed: the tokenizer")
        assert f"ls_model:{model}@{loaded.info.revision}" in found["x", name]["signature"]
    components = json.loads(found["y", "ls-score"]["components"])
    assert components["n_sources"] == 2
    assert set(scores["metric"]) == {"ls-score", "ls-score:variant=code"}


def test_without_a_model_nothing_is_done(folder: Path) -> None:
    """The option is named, before anything is spent."""
    with pytest.raises(ConfigError, match="--ls-model"):
        run(config(folder, None, "ls-score"))


def test_the_ablation_from_records_to_scores(folder: Path) -> None:
    """A linear head scores under its variant; the other variants say so."""
    model = tiny_checkpoint(folder, "bert-linear")
    run(config(folder, model, "ls-score:variant=bert-linear", "ls-score"))
    scores = pl.read_parquet(folder / "run" / "scores.parquet").filter(pl.col("id") == "x")
    values = dict(scores.select("metric", "value").iter_rows())
    reasons = dict(scores.select("metric", "reason").iter_rows())
    assert values["ls-score:variant=bert-linear"] is not None
    assert "linear head" in reasons["ls-score"]


def test_the_metric_reads_only_its_own_measures() -> None:
    """Other passes write to the same table."""
    result = run_pass("ls", FakeModel(), records(("four", "abc")), over=OVER)
    other = result.rows["text_scores"].with_columns(measure=pl.lit("other"), value=pl.lit(99.0))
    frames = {
        "records": records(("four", "abc")),
        "text_scores": pl.concat([other, result.rows["text_scores"]]),
        "failures": result.failures,
    }
    (found,) = load_metric("ls-score").score(ChunkTables(frames.__getitem__))
    assert found.value == pytest.approx(0.4 - 0.03)
