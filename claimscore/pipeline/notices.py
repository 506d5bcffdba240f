"""What a run says, in its terminal, its report and its summary, of the limits of what judged it.

The figures stand here alone. They are of the embedded NLI model and the parser that ship: measured
by `python -m benchmarks.judge_probes`, and read by people. New weights change this place.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from claimscore.calibration import Calibration
from claimscore.config import LLM_VERIFIER
from claimscore.runs import RunDirectory

#: In percent: claims of faithful summaries that the embedded model does not confirm, and errors
#: planted into such summaries that it confirms (BUMP; the model card says so too).
TRUE_REFUSED, ERRORS_CONFIRMED = 21, 51

#: Of 20 pairs of hotel claims that the embedded model calls contradictions, and of 20 that it calls
#: entailments, those that are (by the labels of CASPR, from both directions).
CONTRADICTIONS_RIGHT, ENTAILMENTS_RIGHT = 4, 15

#: In percent: claims of the built-in parser that readers found good in every respect, of 480.
GOOD_CLAIMS = 65

_LARGER = "--nli FacebookAI/roberta-large-mnli"

WEAK_VERIFIER = (
    "The embedded NLI model is small and errs both ways: of claims that are true of their source "
    f"it does not confirm {TRUE_REFUSED} %, of planted errors it confirms {ERRORS_CONFIRMED} %. "
    f"Better: --verifier llm --llm openai:MODEL, or {_LARGER}."
)
WEAK_PAIRS = (
    "The embedded NLI model is small and often wrong about pairs of claims: of 20 (about hotels) "
    f"that it called contradictions {CONTRADICTIONS_RIGHT} were, of 20 that it called agreements "
    f"{ENTAILMENTS_RIGHT}. Better: {_LARGER}."
)
BUILTIN_CLAIMS = (
    f"The built-in parser made the claims: readers found {GOOD_CLAIMS} % of them good in every "
    "respect. Scores compare only with those of other runs by it. Better: --llm openai:MODEL."
)
BUILTIN_FACTS = (
    "The built-in parser found the facts by grammar. Scores compare only with those of other runs "
    "by it. Better: --llm openai:MODEL."
)

#: Where a language model verified, and its server gave no log-probabilities.
NO_LOGPROBS = (
    "Every probability of support is 1 or 0: the server gave no log-probabilities of verdicts, so "
    "score=probability says only whether every claim is supported, and uncertainty says nothing. "
    "Better: --verify-samples 5; score=share says how many are supported."
)

#: Where claims or probabilities are unlike those of a calibration.
DRIFT = (
    "The calibration was made on other data: {}. Its probabilities may mislead; label claims of "
    "this run and calibrate again."
)


def notices(directory: RunDirectory) -> Iterator[str]:
    """What a reader of the scores must know, and the one option that names something better."""
    additive = directory.settings["additive"]
    steps = {step.partition("-")[0] for step in directory.manifest.all_steps()}
    verifier = additive.get("support", {}).get("verifier")
    if additive.get("nli", {}).get("name") == "embedded":
        if "block_nli" in steps or ("support" in steps and verifier == "nli"):
            yield WEAK_VERIFIER
        if "nli" in steps:
            yield WEAK_PAIRS
    for task, notice in (("decompose", BUILTIN_CLAIMS), ("facts", BUILTIN_FACTS)):
        if task in steps and "params" not in additive.get("llm", {}).get(task, {"params": ""}):
            yield notice  # no server was asked
    if verifier == LLM_VERIFIER:
        rows, p = directory.scan("support").filter(~pl.col("verbatim")), pl.col("probability")
        is_sure = (pl.len() > 0) & ((p == 0) | (p == 1)).all()
        if rows.select(is_sure).collect(engine="streaming").item():
            yield NO_LOGPROBS
    if additive.get("support", {}).get("calibration", "none") != "none":
        calibration = Calibration.of(directory.plan()["calibration"], directory.name)
        if unlike := "; ".join(calibration.drift(directory.scan("support"), additive)):
            yield DRIFT.format(unlike)
