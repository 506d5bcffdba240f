"""The rows of the table: what is asked of which server, by whom, and what must come out.

A cell has what one client reached over all rounds; a check says whether the target is met.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from statistics import median

import scenarios
from measure import Run
from server import Settings

ALL = ("claimscore", "aiohttp", "openai", "litellm", "curator")
PEERS = ("claimscore", "openai", "litellm", "curator")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A client's place in the table; `met` is None where nothing is asked of it."""

    text: str
    met: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Runs:
    """One client's runs of a row, a round each; `bare` and `clean` are of the same rounds.

    `bare` are aiohttp's, `clean` the client's own on a server without the row's faults.
    """

    mine: Sequence[Run]
    bare: Sequence[Run] = ()
    clean: Sequence[Run] = ()

    def middle(self, figure: Callable[[Run], float]) -> float:
        return median(figure(run) for run in self.mine)

    def ratio(self, figure: Callable[[Run], float], others: Sequence[Run]) -> float:
        """The median of the rounds' ratios: what disturbed a round disturbed both."""
        pairs = zip(self.mine, others, strict=True)
        return median(figure(mine) / figure(other) for mine, other in pairs)

    @property
    def lost(self) -> int:
        """The worst round's."""
        return max(run.lost for run in self.mine)

    @property
    def note(self) -> str:
        """Losses, and an end that was none."""
        ends = [run.ended for run in self.mine if run.ended]
        words = [f"{self.lost:,} lost"] if self.lost else []
        return "; ".join(["", *words, *ends[:1]])


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Asked by `clients` of a server with `settings`; or claimscore's own `scenario`.

    `told` are limits given to every client; `without` are settings taken away for the clean
    run that a run is compared with.
    """

    name: str
    what: str
    target: str
    cell: Callable[[Runs], Cell]
    n: int = 1000
    concurrency: int = 64
    settings: Settings = dataclasses.field(default_factory=dict)
    told: tuple[str, ...] = ()
    clients: tuple[str, ...] = PEERS
    without: tuple[str, ...] = ()
    timeout_s: float = 300.0


_LIMIT = {"rpm": 3000, "latency_s": 0.05}


# -- cells


def throughput(runs: Runs) -> Cell:
    speed, cpu = runs.middle(lambda r: r.per_second), runs.middle(lambda r: r.cpu_per_1000)
    memory = runs.middle(lambda r: r.rss_mb)
    text = f"{speed:,.0f}/s, {cpu:.2f} CPU-s per 1,000, {memory:.0f} MB"
    if not runs.bare:
        return Cell(text + runs.note)
    faster = runs.ratio(lambda r: r.per_second, runs.bare)
    text += f" ({faster:.2f} x){runs.note}"
    return Cell(text, faster >= 0.25 and cpu <= 1.8 and not runs.lost)


def refusals(run: Run) -> float:
    """429s of the limits for each answer."""
    return float(run.server["refused_by_limit"] / max(1, run.server["paid"]))


def rate_share(run: Run) -> float:
    """Answers a minute, from the first request to the last answer, of those allowed."""
    return float(run.server["paid"] / run.span_s / (_LIMIT["rpm"] / 60))


def limit_share(runs: Runs) -> Cell:
    share = runs.middle(rate_share)
    refused = runs.middle(refusals)
    text = f"{share:.1%} of the rate, 429s {refused:.1%}{runs.note}"
    return Cell(text, share >= 0.98 and refused <= 0.001 and not runs.lost)


def full_bucket(runs: Runs) -> Cell:
    times = runs.middle(lambda r: r.span_s / r.ideal_s)
    text = f"{times:.2f} x ideal, 429s {runs.middle(refusals):.1%}{runs.note}"
    return Cell(text, times <= 1.03 and not runs.lost)


def token_share(runs: Runs) -> Cell:
    share = runs.middle(lambda r: r.ideal_s / r.span_s)
    text = f"{share:.1%} of the rate, 429s {runs.middle(refusals):.1%}{runs.note}"
    return Cell(text, share >= 0.95 and not runs.lost)


def learnt_share(runs: Runs) -> Cell:
    """The rate of the ten seconds before the sixtieth (or before the end, if that is earlier)."""

    def late_share(run: Run) -> float:
        seconds = run.server["paid_per_s"][:60][-11:-1]
        return float(sum(seconds) / max(1, len(seconds)) / (_LIMIT["rpm"] / 60))

    share, refused = runs.middle(late_share), runs.middle(refusals)
    whole = runs.middle(rate_share)
    text = f"{share:.0%} by 60 s ({whole:.0%} overall), 429s {refused:.1%}{runs.note}"
    return Cell(text, share >= 0.90 and refused <= 0.02 and not runs.lost)


def outage(runs: Runs) -> Cell:
    sent = runs.middle(lambda r: r.server["received"] / r.n)
    late = runs.middle(lambda r: r.span_s - r.ideal_s)
    text = f"{runs.lost:,} lost, {sent:.2f} x sent, {late:+.1f} s"
    return Cell(text + ended(runs), not runs.lost and sent <= 1.10 and late <= 5)


def isolated_faults(runs: Runs) -> Cell:
    slower = runs.ratio(lambda r: r.wall_s, runs.clean)
    text = f"{runs.lost:,} lost, {slower:.2f} x the clean run{ended(runs)}"
    return Cell(text, not runs.lost and slower <= 1.3)


def broken_answers(runs: Runs) -> Cell:
    def needless(run: Run) -> float:
        """Requests beyond one an item and one for each broken answer."""
        faults = ("malformed", "truncated", "reset")
        n_broken = sum(run.server["outcomes"].get(fault, 0) for fault in faults)
        return float(run.server["received"] - run.n - n_broken)

    extra = max(needless(run) for run in runs.mine)
    text = f"{runs.lost:,} lost, {max(extra, 0):.0f} asked needlessly{ended(runs)}"
    return Cell(text, not runs.lost and extra <= 0)


def quota(runs: Runs) -> Cell:
    refused = max(run.server["outcomes"].get("quota", 0) for run in runs.mine)
    seconds = runs.middle(lambda r: r.wall_s)
    kept = all(run.answered == run.server["paid_distinct"] for run in runs.mine)
    text = f"{refused:,} refused, out in {seconds:.0f} s{'' if kept else ', answers lost'}"
    return Cell(text + ended(runs), refused <= 32 and kept)


def ended(runs: Runs) -> str:
    """How a run ended that did not end by itself."""
    ends = [run.ended for run in runs.mine if run.ended]
    return f"; {ends[0]}" if ends else ""


# -- the table

_OUTAGE = {"from_s": 3, "to_s": 23}

ROWS: tuple[Row, ...] = (
    Row(
        name="throughput",
        what="5,000 short requests, 50 ms, 128 in flight",
        target="at least 0.25 of aiohttp's requests a second, at most 1.8 CPU seconds per 1,000",
        cell=throughput,
        n=5000,
        concurrency=128,
        settings={"latency_s": 0.05},
        told=("--unlimited",),
        clients=ALL,
    ),
    Row(
        name="rpm-second",
        what="known limit of 3,000 requests a minute, bucket of one second",
        target="at least 98 % of the rate, 429s at most 0.1 %",
        cell=limit_share,
        n=2000,
        settings={**_LIMIT, "depth_s": 1},
        told=("--rpm", "3000"),
        clients=ALL,
    ),
    Row(
        name="rpm-minute",
        what="the same limit, bucket of a full minute, 5,000 requests",
        target="at most 1.03 times the ideal time",
        cell=full_bucket,
        n=5000,
        settings={**_LIMIT, "depth_s": 60},
        told=("--rpm", "3000"),
    ),
    Row(
        name="tpm",
        what="known limit of 300,000 tokens a minute, 2 s latency, 10 to 60 tokens an answer",
        target="at least 95 % of the token rate",
        cell=token_share,
        n=1500,
        concurrency=256,
        settings={"tpm": 300_000, "depth_s": 1, "latency_s": 2, "completion_tokens": [10, 60]},
        told=("--tpm", "300000", "--max-tokens", "1024"),
    ),
    Row(
        name="learnt-headers",
        what="3,000 requests a minute, not told; headers say it",
        target="at least 90 % within 60 s, 429s at most 2 %, none lost",
        cell=learnt_share,
        n=3600,
        settings={**_LIMIT, "depth_s": 1},
    ),
    Row(
        name="learnt-blind",
        what="the same, and no headers at all",
        target="at least 90 % within 60 s, 429s at most 2 %, none lost",
        cell=learnt_share,
        n=3600,
        settings={**_LIMIT, "depth_s": 1, "headers": "none"},
    ),
    Row(
        name="outage",
        what="outage of 20 s (503) in 1,000 requests",
        target="none lost, at most 1.10 times sent, at most 5 s later than the least possible",
        cell=outage,
        concurrency=32,
        settings={"latency_s": 0.3, "outages": [{"how": "503", **_OUTAGE}]},
        told=("--unlimited",),
    ),
    Row(
        name="outage-refused",
        what="the same, connections refused",
        target="as above",
        cell=outage,
        concurrency=32,
        settings={"latency_s": 0.3, "outages": [{"how": "refuse", **_OUTAGE}]},
        told=("--unlimited",),
        clients=("claimscore", "openai"),
    ),
    Row(
        name="faults",
        what="5 % 500 and 5 % 429, isolated",
        target="none lost, at most 1.3 times the clean run",
        cell=isolated_faults,
        concurrency=32,
        settings={"latency_s": 0.3, "rates": {"500": 0.05, "429": 0.05}},
        without=("rates",),
        told=("--unlimited",),
    ),
    Row(
        name="broken",
        what="2 % malformed, 2 % truncated, 2 % resets",
        target="none lost, only the broken one asked again",
        cell=broken_answers,
        concurrency=32,
        settings={
            "latency_s": 0.05,
            "rates": {"malformed": 0.02, "truncated": 0.02, "reset": 0.02},
        },
        told=("--unlimited",),
    ),
    Row(
        name="quota",
        what="quota gone after 510 of 1,000, 32 in flight",
        target="refused at most 32, every answer kept",
        cell=quota,
        concurrency=32,
        settings={"latency_s": 0.05, "quota_after": 510},
        told=("--unlimited",),
        timeout_s=60,
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A row of claimscore's alone: several commands, a kill, what is left.

    `once`: the scenario has its own repetitions and is not run again each round.
    """

    name: str
    what: str
    target: str
    play: Callable[[float], scenarios.Outcome]
    once: bool = False
    on_request: bool = False


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "quota-map",
        "the same by `map`: exit code, and the way on",
        "exit 75, every answer kept",
        scenarios.quota,
    ),
    Scenario(
        "kill",
        "kill -9 at 20 random moments, 64 in flight",
        "paid twice at most those in flight, none whose answer was out 50 ms before; same bytes",
        scenarios.kill,
        once=True,
    ),
    Scenario(
        "restart",
        "first new request after 100,000 finished items",
        "within 1 s, start-up left out",
        scenarios.restart,
        once=True,
    ),
    Scenario(
        "sigint",
        "SIGINT half-way",
        "exit 75 within 2 s, nothing paid twice, marked partial",
        scenarios.interrupt,
    ),
    Scenario(
        "verdicts",
        "900 verdicts of Yes or No by `run`: kill -9, Ctrl-C three times, `--max-cost` at half",
        "bought twice at most those in flight at the kill, none otherwise; the cap is kept",
        scenarios.verdicts,
    ),
    Scenario(
        "odd-verdicts",
        "60 records, 6 of their verdicts neither Yes nor No",
        "at most 1.05 times the questions",
        scenarios.odd_verdicts,
    ),
    Scenario(
        "servers",
        "three servers, 16 in flight each, 0.2, 0.4 and 0.8 s an answer; one away for a while, one "
        "dies half-way; 5,000 items",
        "none lost, none paid twice, each within 10 % of what it can while it is there",
        scenarios.servers,
    ),
    Scenario(
        "changes",
        "one row added to 1,000; system prompt changed; parser changed",
        "exactly 1; all; 0 requests",
        scenarios.changes,
        once=True,
    ),
    Scenario(
        "warm",
        "20,000 items again, all cached, by the Python interface",
        "half of a loop over diskcache that decodes the same answers, nothing sent",
        scenarios.warm,
        once=True,
    ),
    Scenario(
        "warm-map",
        "`map` of 100,000 rows of a CSV file, all cached, from start to exit",
        "0.4 of such a loop, nothing sent",
        scenarios.warm_map,
        once=True,
    ),
    Scenario(
        "memory",
        "`map` of 100,000 items; growth from 10,000",
        "at most 200 MB, at most 1 KB an item",
        scenarios.memory,
        once=True,
    ),
    Scenario(
        "million",
        "`map` of 1,000,000 items beside 10,000",
        "at most 1.3 times the memory",
        scenarios.million,
        once=True,
        on_request=True,
    ),
    Scenario(
        "budget",
        "`--max-cost` at half the bill",
        "never over it, exit 75",
        scenarios.budget,
    ),
    Scenario(
        "estimate",
        "`estimate` beside the bill of the run",
        "within 15 %",
        scenarios.estimate,
        once=True,
    ),
)
