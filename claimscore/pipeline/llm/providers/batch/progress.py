"""What people see of batches that are under way. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from claimscore.pipeline.llm.providers.batch.course import Batch
from claimscore.pipeline.llm.providers.batch.files import named


@dataclasses.dataclass(frozen=True, slots=True)
class BatchProgress:
    """What is under way, for whoever draws it. `trouble` is why it takes longer than it should."""

    collecting: int
    batches: int
    requests: int
    answered: int
    failed: int
    oldest_s: float
    trouble: str


def progress(known: Iterable[Batch], *, collecting: int, trouble: str, now: float) -> BatchProgress:
    """The numbers of this moment, as the server told them last."""
    batches = list(known)
    told = [batch.server for batch in batches if batch.server is not None]
    oldest = min((batch.state.prepared_at for batch in batches), default=now)
    return BatchProgress(
        collecting=collecting,
        batches=len(batches),
        requests=sum(batch.state.n_requests for batch in batches),
        answered=sum(server.completed for server in told),
        failed=sum(server.failed for server in told),
        oldest_s=max(0.0, now - oldest),
        trouble=trouble,
    )


def notice(known: Iterable[Batch]) -> str | None:
    """What a user must know who stops now; None where nothing is under way."""
    sent = [batch.state for batch in known if batch.state.status in ("creating", "created")]
    if not sent:
        return None
    n_requests = sum(state.n_requests for state in sent)
    go_on = "which goes on" if len(sent) == 1 else "which go on"
    return (
        f"{n_requests:,} requests are in {named(sent)}, {go_on}; "
        "run the same command to collect the answers"
    )


def under_way(
    known: Iterable[Batch], *, n_waiting: int, trouble: str, now: float
) -> tuple[str, float]:
    """What is waited for, in words, and for how many seconds already; "" for nothing."""
    waited_for = [batch for batch in known if batch.waiters]
    sent = [batch for batch in waited_for if batch.state.batch_id is not None]
    why = f"; {trouble}" if trouble else ""
    if not sent:
        return (f"{n_waiting:,} requests are put together{why}" if n_waiting else ""), 0.0
    told = [batch.server for batch in sent if batch.server is not None]
    status = ", ".join(sorted({server.status for server in told})) or "sent"
    words = (
        f"{sum(batch.state.n_requests for batch in sent):,} requests are in "
        f"{named([batch.state for batch in sent])} ({status}, "
        f"{sum(server.completed for server in told):,} answered){why}"
    )
    return words, max(0.0, now - min(batch.state.prepared_at for batch in sent))
