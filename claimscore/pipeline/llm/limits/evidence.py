"""Whether refusals (429) come from a limit or are isolated.

Each test is a CUSUM over the requests in the order in which they were sent: a refusal adds
the logarithm of how much likelier it is under a limit than by itself, and every request
sent in between, answered or still under way, takes a little away. What the tests say is
put to a trial: if refusals are as frequent as before once the rate was lowered, they do not
come from the rate, and from then on more of them are taken for isolated.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

#: What lowering the rate has brought: fewer refusals, none fewer, or none fewer so far.
Outcome = Literal["helped", "in vain", "doubtful"]

#: This share of refusals is taken for isolated, and this for a limit's, by the test that ...
_CLOSED = (0.05, 0.5)  # ... nearly everything is refused,
_CROWDED = (0.05, 0.3)  # ... much is,
_PROBED = (0.01, 0.1)  # ... some is, while more than the known good rate is tried.

#: The evidence asked for, as a logarithm. By chance alone it comes up once in exp() requests
#: or less often; what follows from the last test costs little.
_HEIGHTS = (11.0, 10.0, 4.5)

#: So many requests show whether a lower rate made refusals rarer: as many as are sent in so
#: many seconds, within bounds.
_TRIAL_S = 4.0
_TRIAL_REQUESTS = (60, 240)

#: So many requests, and refusals among them, show how many refusals there are by themselves.
_BASE_REQUESTS = 60
_BASE_REFUSED = 3

#: The share of refusals is averaged over about so many requests.
_MEMORY_REQUESTS = 500


class Run:
    """The refusals that a test has added up since its sum was last at zero."""

    def __init__(self, seq: int, sent_at: float) -> None:
        self.first_seq = self.last_seq = seq
        self.first_at = self.last_at = sent_at
        self.refused = 0
        #: The latest time at which a refusal asked to come again.
        self.hint_until = 0.0

    def add(self, seq: int, sent_at: float, hint_until: float) -> None:
        """One more refusal."""
        self.refused += 1
        self.hint_until = max(self.hint_until, hint_until)
        if seq > self.last_seq:
            self.last_seq, self.last_at = seq, sent_at

    @property
    def sent(self) -> int:
        """How many were sent from the first of them to the last."""
        return max(self.last_seq - self.first_seq + 1, self.refused)

    @property
    def admitted(self) -> int:
        """How many of these were not refused."""
        return self.sent - self.refused


class Verdict(NamedTuple):
    """There is a limit; `closed` where nearly nothing gets through."""

    run: Run
    closed: bool


class Cusum:
    """Tells a share of refusals of `limited` from one of `isolated`."""

    def __init__(self, isolated: float, limited: float, height: float) -> None:
        self._height = height
        self._sum = 0.0
        self._run: Run | None = None
        self._last_seq = 0
        self._shares = (isolated, limited)
        self.take_for_isolated(0.0)

    def take_for_isolated(self, share: float) -> None:
        """Do not count this share of refusals as evidence."""
        isolated = max(self._shares[0], min(share, 0.45))
        limited = max(self._shares[1], 2 * isolated)
        self._up = math.log(limited / isolated)
        self._down = math.log((1 - isolated) / (1 - limited))

    def refused(self, seq: int, sent_at: float, hint_until: float) -> Run | None:
        """Add a refusal; the run of refusals where there is evidence enough."""
        self._sum -= self._down * max(0, seq - self._last_seq - 1)
        if self._sum <= 0 or self._run is None:
            self._sum, self._run = max(0.0, self._sum), Run(seq, sent_at)
        self._last_seq = max(seq, self._last_seq)
        self._sum += self._up
        self._run.add(seq, sent_at, hint_until)
        return self._run if self._sum >= self._height else None

    def clear(self, seq: int, but: float = 0.0) -> None:
        """Forget refusals up to this request; let `but` of the next be evidence enough."""
        self._run, self._last_seq = None, seq
        self._sum = self._height - but * self._up + 1e-9 if but else 0.0


class _Trial:
    """How many are refused of the first sent since the rate was lowered, against before.

    Where as many are, the rate may still be too high: so it is lowered once more.
    """

    def __init__(self, seq: int, rate: float, run_share: float, base_share: float | None) -> None:
        self._n = round(min(max(_TRIAL_S * rate, _TRIAL_REQUESTS[0]), _TRIAL_REQUESTS[1]))
        self.last_seq = seq + self._n
        self._run_share = run_share
        self._base_share = base_share
        self._first_share: float | None = None
        self.refused = 0

    @property
    def share(self) -> float:
        """The share of refusals."""
        return self.refused / self._n

    @property
    def outcome(self) -> Outcome:
        if self._first_share is not None:
            still = self.refused >= 2 and self.share >= 0.5 * self._first_share
            return "in vain" if still else "helped"
        base = self._base_share
        like_base = base is not None and 0.5 * base <= self.share <= 3 * base
        doubtful = self.refused >= 3 and (like_base or self.share >= 0.7 * self._run_share)
        return "doubtful" if doubtful else "helped"

    def again(self, seq: int) -> None:
        """Begin anew at a still lower rate."""
        self._first_share, self.refused = self.share, 0
        self.last_seq = seq + self._n


class Evidence:
    """Judges refusals; is told of all outcomes of requests sent since the rate was lowered."""

    def __init__(self) -> None:
        self._closed, self._crowded, self._probed = self._tests = tuple(
            Cusum(*shares, height)
            for shares, height in zip((_CLOSED, _CROWDED, _PROBED), _HEIGHTS, strict=True)
        )
        self._lowered_seq = self._refused = 0
        self._share = 0.0
        self._isolated = 0.0
        self._trial: _Trial | None = None

    def answered(self, seq: int) -> Outcome | None:
        """What lowering the rate has brought, once that is known.

        It is when a request was answered that was sent after those of the trial: refusals
        come no later than answers.
        """
        self._count(0.0)
        trial = self._trial
        if trial is None or seq <= trial.last_seq:
            return None
        outcome = trial.outcome
        if outcome != "doubtful":
            self._trial = None
        if outcome == "in vain":
            self._take_for_isolated(max(self._isolated, trial.share))
        return outcome

    def lowered_further(self, seq: int) -> float:
        """Try the same again with what is sent after this request; the share of refusals."""
        assert self._trial is not None
        share = self._trial.share
        self._trial.again(seq)
        self._begin(seq)
        return share

    def refused(
        self, seq: int, sent_at: float, hint_until: float, *, probing: bool
    ) -> Verdict | None:
        """Judge a refusal; `probing` where it was sent at more than the known good rate."""
        self._count(1.0)
        self._refused += 1
        if self._trial is not None and seq <= self._trial.last_seq:
            self._trial.refused += 1
        closed = self._closed.refused(seq, sent_at, hint_until)
        crowded = self._crowded.refused(seq, sent_at, hint_until)
        if closed:
            return Verdict(closed, True)
        if crowded and self._trial is None:
            return Verdict(crowded, False)
        probed = self._probed.refused(seq, sent_at, hint_until) if probing else None
        return Verdict(probed, False) if probed else None

    def lowered(self, verdict: Verdict, seq: int, *, to: float | None) -> None:
        """Begin anew with what is sent after this request, at a lower rate.

        It is put on trial; None where it was not measured: nothing can be said of that.
        """
        run = verdict.run
        self._trial = None
        if to is not None:
            self._trial = _Trial(seq, to, run.refused / run.sent, self._base_share(run))
        self._begin(seq)
        if verdict.closed and to is None:
            self._closed.clear(seq, but=2)

    def _begin(self, seq: int) -> None:
        for test in self._tests:
            test.clear(seq)
        self._lowered_seq, self._refused = seq, 0

    def _count(self, refused: float) -> None:
        self._share += (refused - self._share) / _MEMORY_REQUESTS
        if self._isolated > 2 * self._share:
            self._take_for_isolated(self._share)

    def _base_share(self, run: Run) -> float | None:
        """The share of refusals before the run; None where too few were seen."""
        sent = run.first_seq - self._lowered_seq
        refused = self._refused - run.refused
        return refused / sent if sent >= _BASE_REQUESTS and refused >= _BASE_REFUSED else None

    def _take_for_isolated(self, share: float) -> None:
        self._isolated, self._share = share, max(share, self._share)
        for test in self._tests:
            test.take_for_isolated(1.5 * share)
