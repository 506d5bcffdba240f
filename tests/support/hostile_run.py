"""A run in which every text that others could choose is hostile."""

import json

import polars as pl

from claimscore import tables as schemas
from claimscore.claim_checks import summarized
from claimscore.report import DetailChunk, ReportTables, RunFacts
from claimscore.report.report_tables import LLMCall
from claimscore.types import Completion, Message, Usage
from tests.support.made_up_run import metric_row

EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>"
    "</title></style><!-- ]]> --> &lt;b&gt; ${x} $title \u2028\u2029 \x00 \u202e <script"
)


class SameCall:
    """One conversation behind every row."""

    def __init__(self, string: str) -> None:
        self.string = string

    def __call__(self, chunk: DetailChunk, keys: frozenset[str]) -> dict[str, LLMCall]:
        answer = Completion(self.string, self.string, self.string, Usage(7, 3))
        messages = (Message("system", self.string), Message("user", self.string))
        return {key: LLMCall(messages, answer) for key in keys}


def hostile(string: str, *, llm: str = "openai:m") -> ReportTables:
    """A run of two records in which every text that could be chosen by others is `string`."""
    claim = dict.fromkeys(schemas.CLAIMS.schema, string) | {"sentence_index": 0, "claim_index": 0}
    failure = dict.fromkeys(schemas.FAILURES.schema, string) | {"index": 0, "attempts": 2}
    nli = {
        **dict.fromkeys(schemas.NLI.schema, string),
        **dict.fromkeys(("premise_index", "hypothesis_index"), 0),
        **dict.fromkeys(("entailment", "neutral", "contradiction"), 1 / 3),
        "truncated": True,
    }
    score = dict.fromkeys(schemas.SCORES.schema, string) | {"value": None}
    score["components"] = json.dumps({string: string})
    record = {"id": string, "summary_a": string, "summary_b": string, string: string}
    record |= {"source": string, "references": [string], "system": string}
    other = {
        name: f"{value}2" if isinstance(value, str) else value for name, value in record.items()
    }
    records = pl.DataFrame([record, other])
    fact = dict.fromkeys(schemas.FACTS.schema, string) | {"index": 0}
    cell = dict.fromkeys(schemas.SIMILARITIES.schema, string) | {
        "unit": "fact",
        "row_side": "source",
        "column_side": "summary",
        "row_index": 0,
        "column_index": 0,
        "similarity": 0.25,
        "truncated": False,
    }
    finding = {"id": string, "side": "a", "sentence_index": 0, "claim_index": 0, "check": "repeat"}
    block = nli | {"premise_cut": string, "hypothesis_cut": string}
    block = {name: block[name] for name in schemas.BLOCK_NLI.schema}
    support = dict.fromkeys(schemas.SUPPORT.schema, string) | dict.fromkeys(
        ("claim_position", "source_index", "evidence_index", "probability", "contradiction"), 0
    )
    support |= {"side": "a", "verbatim": True, "truncated": False, "uncertainty": 0}
    support["votes"] = [{"verifier": string, "verdict": string, "probability": 0.5}]
    scores = schemas.SCORES.frame(
        [
            score | {"id": name} | row
            for name in (string, f"{string}2")
            for row in ({}, {"metric": "caspr", "value": 50.0})
        ]
    )
    failures = schemas.FAILURES.frame([failure])
    return ReportTables(
        run=RunFacts(
            title=string,
            input=string,
            n_records=2,
            llm=llm,
            models={string: string},
            version=string,
            finished=string,
            counts={string: string},
            settings={string: {string: [string]}},
            notices=(string,),
            truncated={string: {"rows": 2, "records": 1, "limits": [], "unknown": 0}},
            claim_checks=summarized({"repeat": 1}, 2, 2),
        ),
        metrics={
            name: metric_row(
                [score | row for row in rows],
                **dict.fromkeys(("description", "higher_is", "reference", "verdict"), string),
                worst=[{"id": string, "value": 1.0}],
            )
            for name, rows in {"caspr": [{"value": 50.0}] * 2, string: [{}, {}]}.items()
        },
        records=pl.concat([records, records]),  # values that repeat make groups
        llm_calls=SameCall(string),
        scores=pl.concat([scores, scores]),
        failures=[{"stage": string, "kind": string, "count": 1, "example": string}],
        chunks=lambda: [
            DetailChunk(
                records,
                schemas.CLAIMS.frame([claim, claim | {"side": "a"}]),
                schemas.NLI.frame([nli]),
                schemas.FACTS.frame([fact | {"side": side} for side in ("source", "summary")]),
                schemas.SIMILARITIES.frame([cell]),
                schemas.BLOCK_NLI.frame([block]),
                schemas.SUPPORT.frame([support]),
                claim_checks=schemas.CLAIM_CHECKS.frame([finding, finding | {"claim_index": None}]),
                scores=scores,
                failures=failures,
            )
        ],
    )
