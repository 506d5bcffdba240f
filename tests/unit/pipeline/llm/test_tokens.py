"""How many tokens a request will take."""

from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.tokens import TokenEstimate
from claimscore.types import Completion, Message, Request, Usage


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
        asked = Request("p", "n", "m", (Message("user", "x" * characters),), max_tokens=3 * mean)
        if i >= 30:
            expected += estimate.expect(asked)[1]
        usage = Usage(round(characters / characters_per_token), round(mean * spread))
        took = estimate.learn(asked, Completion("", "m", usage=usage))
        used += took if i >= 30 else 0
    slack = 30 * mean * 0.5
    assert abs(expected - used) <= 0.15 * used + slack
