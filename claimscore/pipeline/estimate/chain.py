"""The prompts of a map, done dry: what they are known to ask, and what later ones ask at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from anyio import lowlevel

from claimscore.config import LLMConfig
from claimscore.pipeline.estimate.dry_engine import DryEngine, open_cache_if_there
from claimscore.pipeline.estimate.figures import Estimate
from claimscore.pipeline.estimate.stage import put_together
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm_stage import NOT_SENT
from claimscore.pipeline.map.table_prompt import RowOutcome, RowRequests, Rows, TablePrompt
from claimscore.pipeline.supervision import run_blocking
from claimscore.prompts.output import scalar_of
from claimscore.types import Completion


def estimate_chain(
    steps: Sequence[TablePrompt],
    chunks: Iterable[Rows],
    *,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None,
    retry_failed: bool,
) -> Estimate:
    """The requests of each prompt about these rows, minus what the cache has, then those that later
    prompts may send about answers that are not there yet: others stand in for them.

    Nothing is sent or written. The chunks may be a generator: they are not kept.
    """
    samples, names, n_rows = llm.max_samples, [step.prompt.name for step in steps], 0
    with open_cache_if_there(cache_dir) as cache:
        known, at_most = (
            [
                DryEngine(
                    name + of, provider, cache, max_samples=samples, retry_failed=retry_failed
                )
                for name in names
            ]
            for of in ("", ", at most")
        )

        async def ask(rows: Rows, first: int = 0, weight: int = 0) -> None:
            """Count what is asked about rows from a prompt on; stand-ins have a weight."""
            for place, step in enumerate(steps[first:], start=first):
                asked, answered = step.requests(rows, provider), list[RowOutcome]()
                engine = at_most[place] if weight else known[place]
                if weight:
                    weight *= step.prompt.max_items if step.prompt.explode in step.made else 1
                    engine.weight, engine.means = weight, known[place].means
                if step.made or not weight:  # else it is known
                    how = step.how(step.parse)
                    answered += await engine.answer_all(asked.requests, **how)
                missing = [n for n, a in zip(asked.places, answered, strict=False) if a is NOT_SENT]
                if weight:
                    answered = _stand_ins(step, asked)
                elif missing and place + 1 < len(steps):
                    guessed = asked._replace(places=missing, failures={})
                    after, _ = step.answers(rows, guessed, _stand_ins(step, guessed))
                    await ask(after, place + 1, weight=1)
                rows, _ = step.answers(rows, asked, answered)

        async def ask_all() -> None:
            nonlocal n_rows
            for rows in chunks:
                n_rows += rows.frame.height
                await ask(rows)
                await lowlevel.checkpoint()  # Ctrl-C ends it here

        run_blocking(ask_all)
        guessed = {n: engine for n, engine in enumerate(at_most) if engine.n_questions}
        notes = [
            f"{engine.task}: about answers that are not there yet"
            + f", each with {prompt.max_items:,} items; a lower max_items of its prompt asks less"
            * bool(prompt.explode)
            for prompt, engine in ((steps[n].prompt, engine) for n, engine in guessed.items())
        ]
        return put_together(llm, [*known, *guessed.values()], n_rows, notes=notes)


def _stand_ins(step: TablePrompt, asked: RowRequests) -> list[RowOutcome]:
    """An answer for each row that is asked about: all differ, a quarter as long as they may be."""
    prompt, kind = step.prompt, "number" if step.prompt.label_words else "string"
    kinds, answers = prompt.output or dict.fromkeys(prompt.columns, kind), list[RowOutcome]()
    for row in asked.places:
        text = f"{asked.rows.numbers[row]}.{row} ".ljust(prompt.settings.max_tokens, "x")
        answers.append(Answer("", Completion("", ""), _stand_in(kinds, text), cached=False))
    return answers


def _stand_in(kind: Any, text: str) -> Any:
    """A value of a type as `[output]` has it; a list has one item."""
    if scalar := scalar_of(kind):
        return {"string": text, "boolean": False}.get(scalar, 0)
    if isinstance(kind, list):
        return [_stand_in(kind[0], text[:40])]
    return {name: _stand_in(inner, text) for name, inner in kind.items()}
