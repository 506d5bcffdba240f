"""Stages as functions with the models that come with claimscore, beside a run of the same texts."""

import signal
import threading

import anyio
import polars as pl
import pytest

import claimscore
from claimscore.pipeline.supervision import run_blocking

ROWS = [
    {"summary": "The pool is warm and the bar is shut.", "source": "The pool is warm. We slept."},
    {"summary": "It has a garden.", "source": "There is a large garden. The rooms are big."},
]


def test_functions_give_what_a_run_gives() -> None:
    run = claimscore.evaluate(ROWS, "faithfulness", progress=False)
    summaries = [row["summary"] for row in ROWS]
    claims = claimscore.decompose(summaries)
    assert claims["claim"].to_list() == run.claims["text"].to_list()
    assert set(run.claims["prompt_version"]) == {"v3"}, "builtin's own default"
    sources = [ROWS[text]["source"] for text in claims["text"]]
    verdicts = claimscore.verify(pl.DataFrame({"source": sources, "claim": claims["claim"]}))
    names = ["verdict", "probability", "evidence"]
    assert verdicts.select(names).equals(run.table("support").select(names))
    facts = claimscore.extract_facts(summaries)
    assert facts.select("text", "subject", "description").rows() == [
        *((0, "pool", "warm"), (0, "bar", "shut"))
    ]
    judged = claimscore.nli([("The pool is warm.", "The pool is warm."), ("It rains.", "Yes.")])
    sums = judged.select(pl.sum_horizontal("entailment", "neutral", "contradiction")).to_series()
    assert sums.to_list() == pytest.approx([1, 1], abs=1e-5)
    assert judged["label"][0] == "entailment"
    assert claimscore.embed(summaries).shape == (2, 384)


def test_an_interrupt_in_a_notebook_cancels_the_work() -> None:
    """The work is in another thread, because a loop runs in this one."""
    ends: list[str] = []

    async def work() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            ends.append("cancelled")

    async def cell() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as a notebook has it
        run_blocking(work)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        anyio.run(cell)
    signal.signal(signal.SIGINT, before)
    assert ends == ["cancelled"]
