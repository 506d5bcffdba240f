"""No number takes the place of a missing one: what is missing, and the reason that is told.

What all metrics have in common (blank texts, failed stages) is in `test_contract.py`.
"""

import math
from typing import Any

import pytest

from claimscore.metrics import load_metric
from claimscore.metrics.base import (
    PassRequirement,
    Requirements,
    TaskRequirement,
    failure_reasons,
)
from tests.support.frames import (
    Row,
    answer,
    block_rows,
    claim_rows,
    cosine,
    fact_cells,
    fact_rows,
    nli_rows,
    number,
    support_rows,
    tables,
    token_row,
)

NAN = math.nan
RECORD = {"id": "x", "summary": "A.", "references": ["B.", " ", "C."], "source": "D."}

CLAIMS = claim_rows("x", 2, 1)
NLI = nli_rows("x", [["neutral"], ["entailment"]], [["neutral"] * 2])
FACTS, CELLS = fact_rows("x", 2, 1), fact_cells("x", [[0.5], [0.5]])
AGAINST = {"candidate_side": "summary", "reference_side": "references"}
TOKENS = [token_row("x", 0.5, reference_index=index, **AGAINST) for index in (0, 2)]
COSINES = [cosine(("summary", "references"), (0, index), 0.5) for index in (0, 2)]
WMS = [number("sentence_movers", "wms", 0.5, ("references", index)) for index in (0, 2)]
GRADES = [answer("judge", "summary", i, {"score": 4, "probabilities": None}) for i in range(4)]
SOURCE = {"source": "A text of more than ten characters", "summary": "A text of the same length"}
CLAIM = [
    {"id": "x", "side": "summary", "claim_index": index, "text": f"t{index}"} for index in (0, 1)
]
BLOCK = [[0.9, 0.1, 0.0]]
QA = [
    answer(task, side, index, {"answer": "pool"})
    for side in ("summary", "source")
    for index in range(2)
    for task in ("questions", "answers")
]


def changed(rows: list[Row], **changes: object) -> list[Row]:
    return [rows[0] | changes, *rows[1:]]


def likelihood(measure: str, mean: float, tokens: int, given: Any = None) -> list[Row]:
    numbers = {"log_likelihood": mean * tokens, "tokens": tokens}
    return [number(measure, name, value, given) for name, value in numbers.items()]


#: By metric: changes of the record, if any; rows of tables; the reason.
CASES: dict[str, list[tuple[Any, ...]]] = {
    "caspr": [
        ({}, "no claims in summary_a"),
        ({"claims": CLAIMS[:2]}, "no claims in summary_b"),
        *(
            (
                {"claims": CLAIMS, "nli": rows},
                "nli rows do not match the claims, or are no numbers",
            )
            for rows in (NLI[1:], changed(NLI, neutral=NAN))
        ),
    ],
    "factsim": [
        ({}, "no facts in source"),
        ({"facts": FACTS[:2]}, "no facts in summary"),
        *(
            (
                {"facts": FACTS, "similarities": cells},
                "no similarity for some facts, or none that is a number",
            )
            for cells in (CELLS[1:], changed(CELLS, similarity=NAN))
        ),
    ],
    "bert-cosine": [
        ({"similarities": COSINES[1:]}, "no similarity: references 0"),
        (
            {"similarities": changed(COSINES, similarity=NAN)},
            "the similarity is not a number: references 0",
        ),
    ],
    "bertscore": [
        ({"token_scores": TOKENS[1:]}, "no token scores"),
        ({"token_scores": changed(TOKENS, f1=NAN)}, "the BERTScore f1 is not a number"),
    ],
    "bs-inverse": [
        ({}, "no token scores"),
        ({"token_scores": [token_row("x", None)]}, "no token scores"),
        ({"token_scores": TOKENS}, "no token scores"),
        ({"token_scores": [token_row("x", NAN)]}, "the BERTScore F1 is not a number"),
    ],
    "factcc": [({}, "no probability of support: source 0")],
    "supert": [({}, "no alignment of tokens: source 0")],
    "blanc": [({}, "no word of the source could be masked")],
    "bart-score": [
        ({}, "no likelihoods"),
        (
            {"text_scores": likelihood("bart_score", NAN, 4, ("source", 0))},
            "a likelihood is not a finite number",
        ),
    ],
    "bart-score:direction=f": [
        (
            {"references": ["B."]},
            {"text_scores": likelihood("bart_score", -1, 4, ("references", 0))},
            "no likelihoods",
        ),
    ],
    "wms": [
        ({"text_scores": WMS[:1]}, "no mover's score: references 2"),
        ({"text_scores": changed(WMS, value=None)}, "no words to compare: references 0"),
        (
            {"text_scores": changed(WMS, value=NAN)},
            "the mover's score is not a number: references 0",
        ),
    ],
    "perplexity": [
        ({}, "no likelihood of the summary"),
        (
            {"text_scores": likelihood("perplexity", 0, 0)},
            "the summary is one token, with none before it",
        ),
        (
            {"text_scores": likelihood("perplexity", -1e6, 1)},
            "the perplexity is not a finite number",
        ),
    ],
    "ls-score": [
        ({"source": ["", " "]}, {}, "no text in source"),
        ({}, "no LS_Score rows"),
    ],
    "llm-judge": [({"llm_answers": GRADES[:2]}, "no grade of fluency")],
    "llm-judge:expectation=required": [
        ({"llm_answers": GRADES}, "no log-probabilities: coherence"),
    ],
    "qa": [
        ({"llm_answers": QA[4:]}, "no questions from summary"),
        ({"llm_answers": QA[:4]}, "no questions from source"),
        ({"llm_answers": QA[:-1]}, "answers do not match the questions: 1 of 2"),
    ],
    "faithfulness": [
        ({}, "no claims in summary"),
        ({"claims": CLAIM[:1]}, "no rows of support"),
        *(
            (
                {"claims": claims, "support": rows},
                "rows of support do not match the claims, or are no numbers",
            )
            for claims, rows in (
                (CLAIM, support_rows("x", [[0.9, 0.5], [0.2, 0.4]])[1:]),
                (CLAIM[:1], support_rows("x", [[0.9]]) * 2),
                (CLAIM[:1], support_rows("x", [[NAN]])),
            )
        ),
    ],
    "claim-recall": [({"claims": CLAIM}, "no claims in references")],
    "claim-f1": [
        ({"claims": CLAIM[:1], "support": support_rows("x", [[0.9]])}, "no claims in references"),
    ],
    "summac-zs": [
        (SOURCE, {}, "no NLI rows"),
        (SOURCE, {"block_nli": block_rows("x", [BLOCK], ("2sents", "sentence"))}, "no NLI rows"),
        *(
            (SOURCE, {"block_nli": rows}, "NLI rows do not match the blocks, or are no numbers")
            for rows in (
                block_rows("x", [BLOCK * 2, BLOCK * 2])[:3],
                block_rows("x", [BLOCK]) * 2,
                block_rows("x", [[[0.9, NAN, 0.0]]]),
            )
        ),
    ],
    "rouge-l": [
        ({"references": []}, {}, "no text in references"),
        ({"summary": "良い"}, {}, "no word that ROUGE counts in summary"),
        ({"references": ["!!"]}, {}, "no word that ROUGE counts in references"),
    ],
    "rouge-2:measure=precision": [({"summary": "clean"}, {}, "no bigram in summary")],
}


@pytest.mark.parametrize(
    ("spec", "record", "rows", "reason"),
    [(spec, *({},) * (3 - len(case)), *case) for spec, cases in CASES.items() for case in cases],
)
def test_null_has_a_reason(
    spec: str, record: dict[str, Any], rows: dict[str, list[Row]], reason: str
) -> None:
    (found,) = load_metric(spec).score(tables([RECORD | record], **rows))
    assert (found.value, found.reason) == (None, reason)


def test_the_first_failure_is_the_reason():
    """Earlier stages come first, then sides and indices, whatever the order of the rows."""
    needs = Requirements(
        ("summary_a", "summary_b"),
        (TaskRequirement("decompose", ("a", "b")),),
        (PassRequirement("nli", ("a", "b")),),
    )
    failures = [
        {"id": "x", "stage": "nli", "message": "late"},
        {"id": "x", "stage": "decompose", "side": "b", "message": "second"},
        {"id": "x", "stage": "decompose", "side": "a", "index": 4, "message": "not first"},
        {"id": "x", "stage": "decompose", "side": "a", "index": 2, "message": "first"},
        {"id": "y", "stage": "token_scores", "message": "not needed"},
    ]
    reasons = failure_reasons(tables([{"id": "x"}], failures=failures), needs)
    assert reasons == {"x": "decompose failed for summary_a: first"}
