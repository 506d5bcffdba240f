"""How many tokens a request will take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.ratelimit.token_estimate import TokenEstimate
from claimscore.types import Completion, Message, OutputSchema, Request, Usage


def request(characters: int, *, max_tokens: int = 800, schema: str | None = None) -> Request:
    output = None if schema is None else OutputSchema(schema, {})
    messages = (Message("user", "x" * characters),)
    return Request("p", "n", "m", messages, max_tokens=max_tokens, output=output)


def answer(prompt: int | None, output: int | None, text: str = "") -> Completion:
    return Completion(text, "m", usage=Usage(prompt, output))


def test_unreported_usage_is_estimated_from_the_text():
    estimate = TokenEstimate()
    assert estimate.learn(request(40), answer(None, None, "y" * 8)) == 12
    assert estimate.learn(request(40), answer(7, None, "y" * 8)) == 9
    assert estimate.learn(request(40), answer(None, 3, "y" * 8)) == 13


@given(
    st.floats(1.5, 6),
    st.integers(5, 400),
    st.lists(st.tuples(st.integers(50, 5000), st.floats(0.5, 1.5)), min_size=60, max_size=60),
)
@settings(max_examples=50)
def test_the_mean_error_becomes_small(
    characters_per_token: float, mean: int, shapes: list[tuple[int, float]]
):
    estimate, expected, used = TokenEstimate(), 0, 0
    for i, (characters, spread) in enumerate(shapes):
        asked = request(characters)
        if i >= 30:
            expected += estimate.expect(asked)
        took = estimate.learn(
            asked, answer(round(characters / characters_per_token), round(mean * spread))
        )
        used += took if i >= 30 else 0
    slack = 30 * mean * 0.5
    assert abs(expected - used) <= 0.15 * used + slack
