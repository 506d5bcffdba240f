"""What tokens cost, and what a bill may hold beside."""

from __future__ import annotations

from collections.abc import Iterator

from claimscore.pipeline.estimating.figures import Estimate, Span
from claimscore.pipeline.llm.budget.pricing import Price


def cost(
    price: Price | None, n: float, prompt: Span, completion: Span, most: float
) -> tuple[Span | None, float | None]:
    """Dollars of `n` requests, and with answers of `most` tokens; None where nobody knows."""
    if price is None:
        return None, None
    sizes = zip(prompt, completion, strict=True)
    usd = Span(*(price.of_many(n, prompted, answered) for prompted, answered in sizes))
    return usd, price.of_many(n, prompt.high, most)


def about_money(estimate: Estimate) -> Iterator[str]:
    """What the dollars leave out, and what they can come to."""
    if estimate.most_usd is None:
        return
    yield "no discount for what the server has in a cache of its own, and no failed attempts"
    yield (
        "a model that thinks first is billed for its thoughts too: "
        f"${estimate.most_usd:,.2f} if every answer is as long as it may be"
    )
