"""Claims that others of their text entail: which stay, and what the model is asked."""

import numpy as np
import polars as pl
import pytest

from claimscore.pipeline.passes.pair_nli import ENTAILED, entailed
from tests.support.pass_doubles import FakeModel, FunctionClassifier, claims, run_pass


def left_out(*pairs: str, n: int = 4) -> list[int]:
    """The claims 0, 1, ... that are left out where these entail: `01` is 0 entails 1."""
    matrix = np.zeros((n, n), dtype=np.float32)
    np.fill_diagonal(matrix, 1)
    for premise, hypothesis in pairs:
        matrix[int(premise), int(hypothesis)] = ENTAILED
    return list(entailed(matrix))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        pytest.param((), [], id="none"),
        pytest.param(("01", "10"), [1], id="each other: the earlier stays"),
        pytest.param(("10",), [0], id="one way: the one that says more stays"),
        pytest.param(("01", "12"), [1], id="what only a claim that is left out entails stays"),
        pytest.param(("32", "21", "10", "31", "30", "20"), [0, 1, 2], id="a chain"),
        pytest.param(("01", "12", "20"), [1], id="a circle: the earliest stays"),
        pytest.param(("01", "10", "12", "21", "02", "20"), [1, 2], id="three alike"),
    ],
)
def test_of_claims_that_entail_others(pairs: tuple[str, ...], expected: list[int]) -> None:
    assert left_out(*pairs) == expected


def test_rows_of_claims_that_are_left_out() -> None:
    """Texts stand together only within a side; the other side is not looked at."""
    table = claims(r1_a=["x y", "z", "x"], r1_b=["x"], r2_a=["x"]).with_columns(
        sentence_index=pl.col("sentence_index") + 7
    )

    def judge(premise: str, hypothesis: str) -> list[float]:
        return [0.95, 0.05, 0] if set(hypothesis) <= set(premise) else [0.89, 0.11, 0]

    model = FunctionClassifier(judge)
    records = pl.DataFrame({"id": ["r1", "r2", "r3"]})
    result = run_pass("entailed_claims", model, records, over=("a",), claims=table)
    columns = ("id", "side", "sentence_index", "claim_index", "claim_position", "check", "value")
    assert result.rows["claim_checks"].select(columns).rows() == [
        ("r1", "a", 9, 0, 2, "entailed", pytest.approx(0.95))
    ]
    assert len(model.asked) == 9
    assert not {"r2", "r3"} & set(result.rows["claim_checks"]["id"])


def test_a_pair_that_was_cut_is_not_entailed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FunctionClassifier(lambda *_: (1, 0, 0))
    monkeypatch.setattr(model, "truncates", lambda pairs: np.ones(len(pairs), dtype=bool))
    records, table = pl.DataFrame({"id": ["r1"]}), claims(r1_a=["x", "y"])
    result = run_pass("entailed_claims", model, records, over=("a",), claims=table)
    assert result.rows["claim_checks"].is_empty()


def test_claims_that_do_not_fit_cost_their_record_alone() -> None:
    """The claims of records of which a task failed are not asked about."""
    model, table = FakeModel(), claims(r1_a=["x", "huge"], r2_a=["x" * 95, "y"], r3_a=["z", "z"])
    records = pl.DataFrame({"id": ["r1", "r2", "r3"]})
    result = run_pass(
        "entailed_claims", model, records, over=("a",), claims=table, broken=frozenset({"r3"})
    )
    assert result.rows["claim_checks"].select("id", "claim_position").rows() == [("r2", 1)]
    failed = result.failures.select("id", "stage", "side", "kind").rows()
    assert failed == [("r1", "entailed_claims", "a", "out_of_memory")]
    assert not any("z" in pair for call in model.calls for pair in call)
