"""What all passes have in common, with a model that is a function."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.passes.model_pass import count_items
from claimscore.tables import TABLES
from tests.support.pass_doubles import FakeModel, claims, facts, run_pass

#: What each kind of pass is about.
OVER = {
    "nli": ("a", "b"),
    "block_nli": ("source.sentence", "summary.sentence"),
    "support": ("source.both.all", "a"),
    "claim_entailment": ("a",),
    "entailed_claims": ("a",),
    "token_scores": ("summary", "references"),
    "ls": ("source", "summary"),
    "fact_similarities": ("source.fact", "summary.fact"),
    "text_similarities": ("summary.text", "references.text"),
    "perplexity": ("summary",),
    "bart_score": ("summary", "references"),
    "blanc_help": ("source", "summary"),
    "blanc_tune": ("source", "summary"),
    "sentence_movers": ("summary", "references"),
    "mover_score": ("summary", "references"),
    "supert": ("summary", "source"),
    "factcc": ("source", "summary"),
}
#: Those that need no optimal transport, whose library imports torch, and no second claim.
every_kind = pytest.mark.parametrize(
    "kind", [kind for kind in PASSES if "mover" not in kind and kind != "entailed_claims"]
)

WARM, COLD = "It was a warm day.", "It was a cold day."


def record(number: int, summary: str | None, other: str | None = COLD) -> dict[str, Any]:
    texts = {"summary": summary, "source": other, "references": [other]}
    return {"id": f"r{number}", **texts, "summary_a": summary, "summary_b": other}


HUGE = "It is huge."
RECORDS = pl.DataFrame(
    [record(4, WARM), record(1, WARM), record(2, HUGE), record(3, " ", " "), record(5, WARM)]
)
TABLES_READ = {
    "claims": claims(r5_a=["x"], r5_b=["y"], r2_a=["huge"], r2_b=["y"], r3_a=["x"])
    .vstack(claims(r1_a=["x"], r1_b=["y"]))
    .vstack(claims(r4_a=["x"], r4_b=["y"])),
    "facts": facts(
        r5_source=["a b"], r5_summary=["a b"], r2_source=["huge car"], r2_summary=["a b"],
        r3_source=["a b"], r1_source=["a b"], r1_summary=["a b"], r4_source=["a b"],
        r4_summary=["a b"],
    ),
}  # fmt: skip


def test_every_kind_of_pass_is_here() -> None:
    assert OVER.keys() == PASSES.keys()


@every_kind
def test_a_text_that_does_not_fit_costs_its_record_alone(kind: str) -> None:
    result = run_pass(kind, FakeModel(), RECORDS, over=OVER[kind], **TABLES_READ)
    ((name, rows),) = result.rows.items()
    assert rows.schema == pl.Schema(TABLES[name].schema)
    assert rows["id"].unique(maintain_order=True).to_list() == ["r4", "r1", "r5"]
    assert rows.select("model", "revision", "dtype").unique().rows() == [FakeModel.info]
    failed = [] if kind == "claim_entailment" else [("r2", kind, "out_of_memory")]
    assert result.failures.select("id", "stage", "kind").rows() == failed, "a check fails nothing"


@every_kind
def test_a_chunk_without_any_text_is_an_empty_table(kind: str) -> None:
    model, empty = FakeModel(), {name: TABLES[name].empty() for name in TABLES_READ}
    for records in (RECORDS.filter(id="r3"), RECORDS.clear()):
        result = run_pass(kind, model, records, over=OVER[kind], **empty)
        ((name, rows),) = result.rows.items()
        assert rows.schema == pl.Schema(TABLES[name].schema)
        assert rows.is_empty()
        assert result.failures.is_empty()
    assert not any(model.calls)


@pytest.mark.parametrize("kind", ["nli", "support", "fact_similarities", "ls"])
def test_records_of_which_a_task_failed_cost_no_model_time(kind: str) -> None:
    """Their metrics are null whatever the model says."""
    model, broken = FakeModel(), frozenset({"r1", "r2", "r4"})
    result = run_pass(kind, model, RECORDS, over=OVER[kind], broken=broken, **TABLES_READ)
    ((_, rows),) = result.rows.items()
    assert set(rows["id"]) == {"r5"}
    assert result.failures.is_empty()
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    ("kind", "n_items"),
    [
        pytest.param("token_scores", 1, id="both texts"),
        pytest.param("text_similarities", 2, id="each text"),
        pytest.param("perplexity", 1, id="one side"),
        pytest.param("ls", 1, id="document and summary"),
        pytest.param("nli", 2, id="claims, both ways"),
    ],
)
def test_items_are_counted_without_a_model(kind: str, n_items: int) -> None:
    def counted(*texts: str) -> int:
        records = pl.DataFrame([record(5, *texts)])
        need = PassRequirement(kind, OVER[kind])
        return count_items(PASSES[kind], need, records, TABLES_READ.__getitem__)

    assert counted(WARM, COLD) == n_items
    assert kind == "nli" or counted(" ", " ") == 0
