"""NLI over claims and blocks: which pairs, in which order, in the memory of a part of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.passes import pair_nli
from tests.support.pass_doubles import claims, run_nli

#: Claims of the two sides of some records.
SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5)


def test_every_pair_has_a_row_in_both_directions() -> None:
    result, _ = run_nli(claims(r1_a=["x", "xx"], r1_b=["yyy"]), ["r1"])
    columns = ("direction", "premise_index", "hypothesis_index", "entailment")
    assert result.rows["nli"].select(columns).rows() == [
        ("a_to_b", 0, 0, pytest.approx(0.01)),
        ("a_to_b", 1, 0, pytest.approx(0.02)),
        ("b_to_a", 0, 0, pytest.approx(0.03)),
        ("b_to_a", 0, 1, pytest.approx(0.03)),
    ]


@given(SIZES, st.integers(1, 9))
@settings(max_examples=40)
def test_blocks_leave_no_trace(sizes: list[tuple[int, int]], at_once: int) -> None:
    texts = {
        f"r{number}_{side}": [f"{side}{number} {'x' * i}" for i in range(n)]
        for number, of_record in enumerate(sizes)
        for side, n in zip("ab", of_record, strict=True)
    }
    table, ids = claims(**texts), [f"r{number}" for number in range(len(sizes))]
    whole, once = run_nli(table, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_nli, "PAIRS_AT_ONCE", at_once)
        result, model = run_nli(table, ids)
    assert result.rows["nli"].equals(whole.rows["nli"])
    assert result.failures.is_empty()
    largest = max((a * b for a, b in sizes), default=0)
    assert all(len(call) <= max(at_once, largest) for call in model.calls)
    pairs, at_once_pairs = ([p for call in one.calls for p in call] for one in (model, once))
    assert pairs == at_once_pairs
