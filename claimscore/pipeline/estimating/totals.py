"""The tasks' counts put together: what they come to, and what was assumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from claimscore.config import LLMConfig
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.hours import family, hours_needed
from claimscore.pipeline.estimating.money import about_money
from claimscore.pipeline.estimating.questions import Tally
from claimscore.pipeline.estimating.tokens import known_ratio
from claimscore.pipeline.llm.budget.pricing import find_prices
from claimscore.pipeline.llm.providers.base import Provider


def summed(
    llm: LLMConfig,
    provider: Provider,
    tallies: Mapping[str, Tally],
    n_records: int,
    shares: Mapping[str, float],
    guessed: set[str],
    notes: list[str],
    models: Mapping[str, str] | None = None,
) -> Estimate:
    """The estimate of `n_records`, of which each task was counted on its share.

    `models` are the tasks' own where they have one; tasks in `guessed` ask about guesses, and
    `notes` are what was assumed so far.
    """
    models = models or {}
    base_url = getattr(provider, "base_url", None)
    price, others = find_prices(llm, base_url, filter(None, models.values()))
    ratio = known_ratio(tally.lengths for tally in tallies.values())
    tasks = tuple(
        tally.estimate(
            others.get(models.get(name, ""), price),
            share=shares.get(name, 1.0),
            bytes_per_token=ratio,
            guessed=name in guessed,
        )
        for name, tally in tallies.items()
    )
    estimate = Estimate(llm.model, n_records, tasks, price, None, ())
    if not estimate.requests:
        return dataclasses.replace(estimate, hours=0.0, assumptions=tuple(notes))
    hours, pace = hours_needed(llm, provider, estimate)
    if family(llm) != "builtin":
        notes = [*notes, *_about_tokens(tallies, ratio), *about_money(estimate)]
    return dataclasses.replace(estimate, hours=hours, assumptions=(*notes, pace))


def _about_tokens(tallies: Mapping[str, Tally], ratio: float | None) -> Iterator[str]:
    if ratio is None:
        yield "4 bytes of text a token: no answer of this model is stored to count by"
    for name, tally in tallies.items():
        if tally.n_missing:
            yield f"{name}: {tally.about_answers()}"
