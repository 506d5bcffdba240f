"""BLANC: how much a summary helps a masked language model to fill in the words of its source."""

from __future__ import annotations

import dataclasses

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    option,
    option_facts,
    scored,
    text_numbers,
    unscored,
)
from claimscore.metrics.reference_texts import SummaryPair, score_pairs
from claimscore.tables import SOURCE_SIDE
from claimscore.text import RULES_VERSION

REFERENCE = (
    "Vasilyev, Dharnidharka and Bohannon 2020, Fill in the BLANC: Human-free quality estimation of "
    "document summaries (Eval4NLP); blanc.py of PrimerAI/blanc"
)

#: The masked tokens that are right in neither case, only with the summary, only without it, in
#: both: their names in the table `text_scores`.
COUNTS = NEITHER, HELPED, HURT, BOTH = ("neither", "helped", "hurt", "both")

RELATIVE, IMPROVE = "relative", "improve"


def blanc(neither: float, helped: float, hurt: float, both: float, measure: str) -> float:
    """(helped − hurt) / all masked tokens; with ``measure="improve"`` helped / (all − hurt).

    Vasilyev et al. 2020, equation 1 and section 3. `ValueError` where nothing was masked.
    """
    of = neither + helped + both + (hurt if measure == RELATIVE else 0)
    if not of > 0:
        raise ValueError("BLANC is a share of the masked tokens, and there is none")
    return (helped - (hurt if measure == RELATIVE else 0)) / of


@dataclasses.dataclass(frozen=True)
class BlancOptions:
    """Options of `blanc`."""

    variant: str = option(
        "help", "Whether the model reads the summary, or is trained on it.", ("help", "tune")
    )
    measure: str = option(
        RELATIVE, "Whether tokens that the summary spoils count too.", (RELATIVE, IMPROVE)
    )


def _make(name: str, options: BlancOptions) -> Metric:
    kind = f"blanc_{options.variant}"
    requires = Requirements(
        columns=("source", "summary"),
        passes=(PassRequirement(kind, (SOURCE_SIDE, "summary")),),
    )

    def score(tables: ChunkTables) -> list[Score]:
        numbers = text_numbers(tables, (kind,), "summary", SOURCE_SIDE)

        def score_pair(pair: SummaryPair) -> Score:
            rows = [numbers.get(pair.id, {}).get(index, {}) for index in pair.texts]
            sums = {part: sum(row.get(part) or 0 for row in rows) for part in COUNTS}
            components: dict[str, object] = {part: int(n) for part, n in sums.items()}
            try:
                return scored(pair.id, blanc(**sums, measure=options.measure), components)
            except ValueError:
                return unscored(pair.id, "no word of the source could be masked", components)

        return score_pairs(tables, requires, SOURCE_SIDE, score_pair)

    return Metric(
        name=name,
        requires=requires,
        score=score,
        signature_keys=("masked_lm", "dtype", "claimscore"),
        higher_is="more helpful",
        range=(-1.0, 1.0),
        description="share of masked words of the source that the summary helps to fill in "
        "(--masked-lm)",
        reference=REFERENCE,
        facts=(*option_facts(options), ("gap", "6"), ("splitter", RULES_VERSION)),
    )


BLANC = MetricFamily("blanc", BlancOptions, _make)
