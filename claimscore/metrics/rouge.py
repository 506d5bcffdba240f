"""ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum of a summary against its references or its source."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from claimscore.errors import ConfigError
from claimscore.metrics.against import AGAINST, MEASURES, MULTI, Compared, combined, compared
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    scored,
    unscored,
)
from claimscore.metrics.rouge_counts import NoTokensError, Rouge, by_rouge_101, by_rouge_score
from claimscore.text import RULES_VERSION

REFERENCE = (
    "Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries, equations 1 to 7; "
    "rouge-score 0.1.2; rouge 1.0.1 (variant=rouge-1.0.1)"
)

VARIANTS = ("rouge-score", "rouge-1.0.1")
_UNITS = {"rouge-1": "word", "rouge-2": "bigram"}


def rouge_of(rouge_type: str, settings: Mapping[str, str], candidate: str, reference: str) -> Rouge:
    """ROUGE of one pair of texts as a family's options say; `NoTokensError` as its counters."""
    if settings["variant"] == "rouge-1.0.1":
        return by_rouge_101(rouge_type, candidate, reference)
    return by_rouge_score(
        rouge_type,
        candidate,
        reference,
        stemmer=settings["stemmer"] == "yes",
        split=settings.get("sentences") != "lines",
    )


def _score(rouge_type: str, settings: Mapping[str, str], tables: ChunkTables) -> list[Score]:
    items = compared(tables.records, settings["against"])
    return [_score_record(rouge_type, settings, item) for item in items]


def _score_record(rouge_type: str, settings: Mapping[str, str], item: Compared) -> Score:
    if item.reason is not None:
        return unscored(item.id, item.reason)
    found: list[tuple[int, Rouge]] = []
    wordless = ""
    for index, text in item.texts:
        try:
            found.append((index, rouge_of(rouge_type, settings, item.summary, text)))
        except NoTokensError as exc:
            wordless = "summary" if exc.side == "candidate" else settings["against"]
    if not found:
        return unscored(item.id, f"no word that ROUGE counts in {wordless}")
    measure = settings["measure"]
    values = {index: getattr(rouge, measure) for index, rouge in found}
    defined = {index: value for index, value in values.items() if value is not None}
    if not defined:
        lacking = settings["against"] if measure == "recall" else "summary"
        return unscored(item.id, f"no {_UNITS.get(rouge_type, 'word')} in {lacking}")
    best = max(defined, key=lambda index: defined[index])
    components: dict[str, object] = {
        **dict(found)[best]._asdict(),
        "best": best,
        "values": values,
    }
    return scored(item.id, combined(list(defined.values()), settings["multi"]), components)


def _make(rouge_type: str, name: str, settings: Mapping[str, str]) -> Metric:
    other = settings["variant"] == "rouge-1.0.1"
    if other and settings["stemmer"] == "yes":
        raise ConfigError(f"metric {rouge_type}: the package rouge 1.0.1 has no stemmer")
    facts = [(key, settings[key]) for key in ("variant", "against", "measure", "multi", "stemmer")]
    if rouge_type == "rouge-lsum" and not other:
        rules = settings["sentences"] == "rules"
        facts.append(("splitter", RULES_VERSION if rules else "lines"))
    return Metric(
        name=name,
        version="v1",
        requires=Requirements(columns=("summary", settings["against"])),
        score=functools.partial(_score, rouge_type, settings),
        signature_keys=("claimscore",),
        higher_is="more shared words",
        range=(0.0, 1.0),
        description=(
            f"{rouge_type.upper()} {settings['measure']} of the summary against its "
            f"{settings['against']}"
        ),
        reference=REFERENCE,
        facts=tuple(facts),
    )


def _family(rouge_type: str) -> MetricFamily:
    options: dict[str, tuple[str, ...] | None] = {
        "against": AGAINST,
        "measure": MEASURES,
        "multi": MULTI,
        "stemmer": ("no", "yes"),
        "variant": VARIANTS,
    }
    if rouge_type == "rouge-lsum":
        options["sentences"] = ("rules", "lines")
        options["variant"] = VARIANTS[:1]
    return MetricFamily(rouge_type, options, functools.partial(_make, rouge_type))


ROUGE_1 = _family("rouge-1")
ROUGE_2 = _family("rouge-2")
ROUGE_L = _family("rouge-l")
ROUGE_LSUM = _family("rouge-lsum")
