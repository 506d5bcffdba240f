"""Whether too many rows have failed."""

from __future__ import annotations

from claimscore.config import FailureLimit
from claimscore.errors import ClaimscoreError, ConfigError, TooManyFailures
from claimscore.pipeline.llm.stats import EngineStats

#: Rows that must have an outcome before a share of failures says anything.
_ROWS_FOR_A_SHARE = 50

#: So many requests too long for the model, and none answered: then all of them are.
_ALL_TOO_LONG = 10


def why_stop(stats: EngineStats, limit: FailureLimit, last: str) -> ClaimscoreError | None:
    """What stops the run after a row failed, which is counted in `stats`; `last` says why."""
    if stats.all_too_long and stats.failed >= _ALL_TOO_LONG:
        return ConfigError(f"every request is too long for the model: {last}")
    share = stats.failed / stats.rows_done if stats.rows_done else 1.0
    if limit.rows is not None and stats.failed > limit.rows:
        allowed = f"{limit.rows:,}"
    elif limit.share is not None and share > limit.share and stats.rows_done >= _ROWS_FOR_A_SHARE:
        allowed = f"{limit.share:.4g} of the rows"
    else:
        return None
    kind, count = stats.failures.most_common(1)[0]
    return TooManyFailures(
        f"{stats.failed:,} of {stats.rows_done:,} rows failed, and --max-failures allows "
        f"{allowed}; most often ({count:,}): {kind}; the last one: {last}"
    )
