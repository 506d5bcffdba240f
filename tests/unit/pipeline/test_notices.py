"""What a run says of the limits of what judged it and of what made its claims."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore.pipeline.encoders
from claimscore.metrics import load_metric
from claimscore.pipeline import notices as told
from claimscore.pipeline.notices import notices
from claimscore.pipeline.scoring import score_run
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIMS, SUPPORT

EMBEDDED, LARGE = {"name": "embedded"}, {"name": "some/large"}
BUILTIN, SERVER = {"provider": "builtin"}, {"provider": "openai", "params": "{}"}


@pytest.mark.parametrize(
    ("additive", "steps", "expected"),
    [
        (
            {"nli": EMBEDDED, "support": {"verifier": "nli"}, "llm": {"decompose": BUILTIN}},
            ["decompose-summary", "claim_entailment-summary", "support-source.model-summary"],
            [told.WEAK_VERIFIER, told.BUILTIN_CLAIMS],
        ),
        ({"nli": EMBEDDED}, ["block_nli-source-summary"], [told.WEAK_VERIFIER]),
        (
            {"nli": EMBEDDED, "llm": {"decompose": SERVER}},
            ["decompose-a-b", "claim_entailment-a", "nli-a-b"],
            [told.WEAK_PAIRS],
        ),
        (
            {"nli": EMBEDDED, "support": {"verifier": "llm"}, "llm": {"decompose": SERVER}},
            ["decompose-summary", "claim_entailment-summary"],
            [],
        ),
        (
            {"nli": LARGE, "support": {"verifier": "nli"}, "llm": {"facts": BUILTIN}},
            ["facts-source-summary", "support-source.model-summary"],
            [told.BUILTIN_FACTS],
        ),
        ({"texts": {"units": "sentences"}}, ["decompose-a-b"], []),
    ],
)
def test_a_run_names_what_is_weak(
    additive: dict[str, Any], steps: list[str], expected: list[str], tmp_path: Path
) -> None:
    with RunDirectory(tmp_path / "run") as run:
        run.check_settings({"additive": additive})
        for step in steps:
            run.write_parts(0, step, {"claims": CLAIMS.empty()})
        assert list(notices(run)) == expected


def test_the_model_card_and_the_metrics_page_have_the_same_figures() -> None:
    data = Path(claimscore.pipeline.encoders.__file__).parent / "data"
    docs = Path(__file__).parents[3] / "docs" / "metrics"
    refused, confirmed = f"{told.TRUE_REFUSED} %", f"{told.ERRORS_CONFIRMED} %"
    for page in (data / "MODEL_CARD.md", docs / "faithfulness.md"):
        text = page.read_text(encoding="utf-8")
        assert f"does not confirm {refused}" in text
        assert f"confirms {confirmed}" in text


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        ("sssu", "75 % of the claims of a summary could be confirmed in its source"),
        ("suu", "33 % of the claims"),
    ],
)
def test_the_embedded_judge_confirms_and_does_not_know(
    verdicts: str, says: str, tmp_path: Path
) -> None:
    names = {"s": ("supported", 1.0), "u": ("unmentioned", 0.0)}
    row = {"id": "one", "side": "summary", "source_side": "source", "read": "model.best"}
    claims = [{"id": "one", "side": "summary", "text": f"Claim {n}."} for n in range(len(verdicts))]
    rows = [
        {**row, "claim_position": n, "source_index": 0}
        | {"verdict": names[letter][0], "probability": names[letter][1], "contradiction": 0.0}
        for n, letter in enumerate(verdicts)
    ]
    record = pl.DataFrame({"id": ["one"], "summary": ["Said."], "source": ["Said."]})
    with RunDirectory(tmp_path / "run") as run:
        run.check_settings({"records": {"count": 1}, "chunk_records": 1})
        run.write_parts(0, "records", {"records": record})
        run.write_parts(0, "decompose-summary", {"claims": CLAIMS.frame(claims)})
        run.write_parts(0, "support-source.model-summary", {"support": SUPPORT.frame(rows)})
        of_judge = {
            judge: score_run(run, [load_metric("faithfulness")], {"verifier": judge}, 0)
            for judge in ("embedded@2-abc", "some/large@1")
        }
    weak, strong = (summary["faithfulness"]["verdict"] for summary in of_judge.values())
    assert weak.startswith(says)
    assert weak.endswith("; verdicts err both ways")
    assert strong.startswith("the source supports")
