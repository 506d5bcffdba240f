"""How much work a pass is, estimated without a model or a tokenizer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import polars as pl
import pytest

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.throughput import CHARACTERS_PER_TOKEN, SPECIAL_TOKENS
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.passes.pass_counts import count_items, count_tokens
from claimscore.tables import TABLES
from tests.unit.pipeline.passes.test_model_pass import claims

#: A text of ten tokens, special ones included.
TEN = "a" * CHARACTERS_PER_TOKEN * (10 - SPECIAL_TOKENS)


def tokens(kind: str, table: pl.DataFrame | None = None, **columns: Any) -> int:
    need = {
        "nli": PassRequirement("nli", ("a", "b")),
        "ls_padded": PassRequirement("ls_padded", ("summary",)),
        "perplexity": PassRequirement("perplexity", ("summary",)),
        "text_similarities": PassRequirement(
            "text_similarities", ("summary.text", "references.text")
        ),
    }.get(kind, PassRequirement(kind, ("summary", "references")))
    n = len(next(iter(columns.values()), ["r"]))
    records = pl.DataFrame({"id": [f"r{i}" for i in range(n)], **columns})
    given = table if table is not None else pl.DataFrame()

    def read(name: str) -> pl.DataFrame:
        return given if name == "claims" else TABLES[name].empty()

    return count_tokens(PASSES[kind], need, records, read)


def test_nli_is_every_pair_in_both_directions() -> None:
    """Two claims and three claims of ten tokens each: twelve pairs of twenty."""
    first = [f"{i}{TEN[1:]}" for i in range(2)]
    second = [f"{i}{TEN[1:]}" for i in range(2, 5)]
    assert tokens("nli", claims(r0_a=first, r0_b=second)) == 12 * 20


def test_what_is_there_twice_is_computed_once() -> None:
    """As the models do: a pair that many records have costs no more than one."""
    many = {f"r{i}_{side}": [TEN] for i in range(5) for side in "ab"}
    assert tokens("nli", claims(**many), summary=["x"] * 5) == 20


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("token_scores", 20, id="both texts"),
        pytest.param("text_similarities", 20, id="each text"),
        pytest.param("bart_score", 20, id="source and target"),
        pytest.param("perplexity", 10, id="one side"),
        pytest.param("ls", 20, id="document and summary"),
        pytest.param("ls_padded", 512, id="filled up"),
        pytest.param("mover_score", 20, id="asked in groups"),
    ],
)
def test_a_record_of_two_texts(kind: str, expected: int) -> None:
    """Every kind of pass says what it gives its model."""
    if kind == "mover_score" and find_spec("ot") is None:  # POT would import torch
        pytest.skip("the extra movers is not installed")
    assert tokens(kind, summary=[TEN], references=[["b" + TEN[1:]]]) == expected


def test_passes_that_ask_in_groups_are_counted_whole() -> None:
    """The first group stands for the others."""
    n = 100
    summaries = [f"{i:04}{TEN[4:]}" for i in range(n)]
    references = [[f"{i + n:04}{TEN[4:]}"] for i in range(n)]
    assert tokens("mover_score", summary=summaries, references=references) == n * 20


def test_nothing_to_do_costs_nothing() -> None:
    """A chunk without claims, and one whose texts are blank."""
    assert tokens("nli", claims()) == 0
    assert tokens("token_scores", summary=[" "], references=[[" "]]) == 0


def test_every_kind_of_pass_can_be_weighed() -> None:
    """A new pass whose question is not understood would count as nothing, and bound nothing."""
    columns = {"summary": [TEN], "source": [TEN], "references": [[TEN]]}
    columns |= {"summary_a": [TEN], "summary_b": [TEN]}
    records = pl.DataFrame({"id": ["r0"], **columns})
    facts = TABLES["facts"].frame(
        [
            {"id": "r0", "side": side, "index": 0, "subject": "room", "description": "is warm"}
            for side in ("summary", "source")
        ]
    )
    tables = {"facts": facts, "claims": claims(r0_a=[TEN], r0_b=["b" + TEN[1:]])}
    overs = {
        "nli": ("a", "b"),
        "block_nli": ("source.document", "summary.document"),
        "ls": ("source", "summary"),
        "ls_padded": ("summary",),
        "perplexity": ("summary",),
        "fact_similarities": ("source.fact", "summary.fact"),
        "text_similarities": ("summary.text", "references.text"),
    }
    for kind, model_pass in PASSES.items():
        need = PassRequirement(kind, overs.get(kind, ("summary", "references")))
        read = tables.__getitem__
        assert count_items(model_pass, need, records, read) > 0, kind
        assert count_tokens(model_pass, need, records, read) > 0, kind
