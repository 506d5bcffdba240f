"""A comparison as titled tables of text, for the terminal and the page, and as one JSON object."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claimscore import __version__
from claimscore.evaluation.claim_changes import KINDS, LEAST_ALIKE, UNIT_TABLES
from claimscore.evaluation.comparison import Comparison, RunComparison
from claimscore.evaluation.inputs import ComparedRun
from claimscore.evaluation.result import Mark, Section, signature
from claimscore.evaluation.run_differences import MetricDifference
from claimscore.stats.bootstrap import MOST_RESAMPLED
from claimscore.stats.gates import Gate
from claimscore.stats.paired import ALPHA, EQUAL_WITHIN, LEVEL, POWER, Difference
from claimscore.tables import SIDE_COLUMNS

#: So many records are named in a line; JSON has more.
MOST_NAMED = 10

#: So many lines come before the one that names the options for more.
MOST_LINES = 5

#: A corrected p-value up to which a difference is surely more than chance.
SURE = 0.01

#: The settings that are named first, by how their names begin.
_TELLING = ("code of ", "llm.model", "prompts.", "support.", "nli.name")

#: What a run has more or fewer of; it is more or less of anything else.
_OF_THINGS = re.compile(r"\b(words|facts|answers|entities|sources|sentences)\b")

_VERDICTS = {
    "higher": "higher",
    "lower": "lower",
    "not shown": "not shown",
    "same": "no change",
    "too few": "too few",
}


def sections_of(comparison: Comparison) -> Iterator[Section]:
    """All tables of a comparison that have something to show, and the words about them."""
    for run in comparison.runs:
        notes = tuple(_sentences(run))
        yield Section(f"{run.b.label} against {run.a.label}", notes=notes)
    yield _sources(comparison)
    for run in comparison.runs:
        yield _settings(run)
        yield _means(run)
        later = (
            _by_labels(run),
            _counts(run),
            _groups(run, comparison.config.by or ""),
            _changes(run),
            _moves(run),
            _units(run),
        )
        yield from (section for section in later if section.rows)
    yield Section("Method", notes=tuple(_method_notes(comparison)))


def group_sections(comparison: Comparison) -> Iterator[Section]:
    """The tables by group, where groups are asked for."""
    of_runs = (_groups(run, comparison.config.by or "") for run in comparison.runs)
    return (section for section in of_runs if section.rows)


def signature_of(comparison: Comparison) -> str:
    """All that changes the numbers of a comparison, in one line."""
    names = ("runs", "metrics", "by", "samples", "seed")
    settings = {name: getattr(comparison.config, name) for name in names}
    return signature("compare", settings | {"metrics": comparison.config.metrics or "all"})


def _sources(comparison: Comparison) -> Section:
    """The run that each letter stands for, and its unfinished parts."""
    rows = [
        (source.label, f"{source.path}{'' if place else ' (baseline)'}", f"{source.n_records:,}")
        for place, source in enumerate(comparison.sources)
    ]
    notes = [
        f"{source.label}: {notice}" for source in comparison.sources for notice in source.notices
    ]
    return Section("Runs", ("run", "where", "records"), rows, tuple(notes))


# What a person would say


def summary_lines(comparison: Comparison) -> list[str]:
    """Of each run a sentence about the metric whose difference is surest, then the other metrics
    and what differs; at most `MOST_LINES`, and how to see more."""
    lines, notes = [], []
    for run in comparison.runs:
        rows = sorted(run.metrics, key=lambda row: row.verdict not in ("higher", "lower"))
        if rows:
            lines.append(sentence(run, rows[0]))
            notes += [_others(run, rows[1:]), *_moved(run, rows[0])]
        notes += [_not_compared(run), _differing(run), _changed(run)]
    lines = [*(lines or ["the runs share no metric"]), *filter(None, notes)]
    return [*lines[:MOST_LINES], "all tables: --full; as a page: --html FILE"]


def _others(run: RunComparison, rows: Sequence[MetricDifference]) -> str:
    """The differences of more metrics, by verdict; empty where there are none."""
    by_verdict: dict[str, list[str]] = {}
    for row in rows:
        mean = row.difference.mean
        shown = f" {signed(mean, _places(mean))}" if mean and row.verdict != "same" else ""
        by_verdict.setdefault(_VERDICTS[row.verdict], []).append(row.metric + shown)
    parts = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
    return f"other metrics in {run.b.path}, {'; '.join(parts)}" if parts else ""


def _sentences(run: RunComparison) -> Iterator[str]:
    """A sentence a metric; one for all of which the same is to be said."""
    alike: dict[str, list[str]] = {}
    for row in run.metrics:
        if same := _no_difference(row):
            alike.setdefault(same, []).append(row.metric)
        else:
            yield sentence(run, row)
    yield from (f"{same}: {', '.join(metrics)}" for same, metrics in alike.items())


def _no_difference(row: MetricDifference) -> str:
    """Why no difference is to be told of a metric; empty where there is one."""
    one = row.difference
    if one.mean is None or one.deviation is None:
        return f"nothing can be said, {one.reason or _VERDICTS[row.verdict]}"
    return f"no difference in any of {one.n:,} records" if row.verdict == "same" else ""


def sentence(run: RunComparison, row: MetricDifference) -> str:
    """What the comparison says of a metric, its direction understood."""
    one, metric = row.difference, row.metric
    if same := _no_difference(row):
        return f"{same}: {metric}"
    moved = one.mean or 0.0
    places, sign = _places(moved), -1 if row.verdict == "lower" else 1
    first, second = number(one.mean_a, places), number(one.mean_b, places)
    difference = number(sign * moved, places)
    if one.low is not None and one.high is not None:
        ends = sorted((sign * one.low, sign * one.high))
        difference += f" ({' to '.join(number(end, places) for end in ends)})"
    a, b, many = run.a.path, run.b.path, f"{one.n:,} records"
    if row.verdict == "not shown":
        line = f"no difference in {metric} is shown: {a} {first}, {b} {second}, difference "
        line += f"{difference}, {many}; it may be chance"
        if (needed := one.records_needed()) is not None and needed > one.n:
            line += f" (about {needed:,} would show it)"
    else:
        if row.verdict == "higher":
            a, b, first, second = b, a, second, first
        is_more = run.higher_is.get(metric) or "higher"
        verb = "has" if _OF_THINGS.search(is_more) else "is"
        surely = "surely" if row.holm is not None and row.holm <= SURE else "probably"
        line = f"{a} {verb} {is_more} than {b}: {metric} {first} against {second}, difference "
        line += f"{difference}, {many}; {surely} more than chance"
    return line


def _places(difference: float) -> int:
    """So many digits after the point as show a difference, from two to four."""
    size = abs(difference) or 1.0
    return next((places for places in (2, 3) if size >= 2 * 10**-places), 4)


def _moved(run: RunComparison, row: MetricDifference) -> Iterator[str]:
    """How many records moved, and those that did most."""
    one = row.difference
    if one.n > one.same:
        counts = f"{one.higher:,} higher, {one.lower:,} lower, {one.same:,} the same"
        most = [move.id[:40] for move in run.moves if move.metric == row.metric][:3]
        records = f"records in {run.b.path} by {row.metric}"
        yield f"{records}: {counts}{'; most: ' * bool(most)}{', '.join(most)}"


def _differing(run: RunComparison) -> str:
    """Which settings and columns differ; empty where none does."""
    differing = [
        *(
            f"{one.name} ({(one.a or 'not set')[:30]}, {(one.b or 'not set')[:30]})"
            for one in sorted(run.settings, key=lambda one: not one.name.startswith(_TELLING))
        ),
        *(
            f"column {column} ({why or f'{n:,} of {run.n_shared:,} records'})"
            for column, n, why in run.data
        ),
    ]
    n = max(1, sum(len(", ".join(differing[: at + 1])) <= 90 for at in range(len(differing))))
    more = f" and {len(differing) - n:,} more" if len(differing) > n else ""
    return f"{run.b.path} differs in {', '.join(differing[:n])}{more}" if differing else ""


def _changed(run: RunComparison) -> str:
    """How many claims and facts are not the same; empty where all are."""
    counts: Counter[str] = sum((Counter(kinds) for kinds in run.changes.values()), Counter())
    if counts.total() == counts["same"]:
        return ""
    return f"its claims: {', '.join(f'{counts[kind]:,} {kind}' for kind in KINDS)}"


def _not_compared(run: RunComparison) -> str:
    """What is unfinished, or has no score to compare; empty where nothing is."""
    alone = run.only_a.n + run.only_b.n
    parts = [f"{alone:,} records of one run alone"] if alone else []
    for place, one in enumerate((run.a, run.b)):
        nulls = {row.nulls[:2][place] for row in run.metrics}
        if most := max(nulls, default=0):
            have = "record has" if most == 1 else "records have"
            up_to = "up to " * (len(nulls) > 1)
            parts.append(f"{up_to}{most:,} {have} no score in {one.path}")
    parts += [f"{one.path} {notice}" for one in (run.a, run.b) for notice in one.notices]
    return f"not compared: {'; '.join(parts)}" if parts else ""


# All tables


def _interval(low: float | None, high: float | None, places: int) -> str:
    """Bounds of a difference, with their signs."""
    return f"{signed(low, places)} to {signed(high, places)}"


def _settings(run: RunComparison) -> Section:
    """Settings, signatures and data that differ."""
    a, b = run.a.label, run.b.label
    rows = [(one.name, one.a or "not set", one.b or "not set") for one in run.settings]
    notes = []
    if not rows and run.a.settings and run.b.settings:
        notes.append("no setting differs")
    elif not rows:
        notes.append("nothing differs in what the scores say of themselves (their signatures)")
    for column, n, why in run.data:
        if n is None:
            notes.append(f"column {column} of the records: {why}")
        else:
            notes.append(f"column {column} differs in {n:,} of {run.n_shared:,} shared records")
    if run.a.directory is None or run.b.directory is None:
        notes.append("claims and labels are compared of run directories only, not of score files")
    return Section(f"What differs: {a} and {b}", ("setting", a, b), rows, tuple(notes))


def _means(run: RunComparison) -> Section:
    """Means, their difference with its interval, and the verdict."""
    rows = [_means_row(row) for row in run.metrics]
    a, b = run.a.label, run.b.label
    header = ("metric", "n", f"mean {a}", f"mean {b}", f"{b} − {a}", "p-value", "verdict")
    title = f"{b} − {a}: {run.n_shared:,} shared record{'' if run.n_shared == 1 else 's'}"
    notes = [] if rows else ["the runs share no metric"]
    charts = {row.metric: [_mark(f"{b} − {a}", row)] for row in run.metrics}
    return Section(title, header, rows, (*notes, *_missing_notes(run)), charts)


def _mark(label: str, row: MetricDifference) -> Mark:
    one = row.difference
    text = signed(one.mean, digits(one.mean_a, one.mean_b))
    return Mark(label, one.mean, one.low, one.high, text)


def _means_row(row: MetricDifference, *group: str) -> tuple[str, ...]:
    one = row.difference
    places = digits(one.mean_a, one.mean_b)
    interval = f" [{_interval(one.low, one.high, places)}]" if one.low is not None else ""
    return (
        row.metric,
        *group,
        f"{one.n:,}",
        number(one.mean_a, places),
        number(one.mean_b, places),
        signed(one.mean, places) + interval,
        p_value(row.holm),
        _VERDICTS[row.verdict] if one.n else one.reason or "",
    )


def _by_labels(run: RunComparison) -> Section:
    """Differences corrected by labels of people, those of the labels alone, and uncorrected."""
    rows = []
    for metric, mean in run.by_labels.items():
        estimates = mean.corrected, mean.classical, mean.uncorrected
        cells = [
            signed(one.value, 3)
            + (f" [{signed(one.low, 3)}, {signed(one.high, 3)}]" if one.interval else "")
            for one in estimates
        ]
        rows.append((metric, f"{mean.n_labels:,}", *cells))
    header = ("metric", "labels", "corrected", "labels alone", "uncorrected")
    title = f"{run.b.label} − {run.a.label}, corrected by labels of people"
    return Section(title, header, rows, ("the corrected difference has no bias of the judge",))


def _counts(run: RunComparison) -> Section:
    """Records up and down, and the least difference that so many show."""
    rows = [
        (
            row.metric,
            *(f"{n:,}" for n in (one.higher, one.same, one.lower)),
            number(one.least_detectable, digits(one.mean_a, one.mean_b)),
        )
        for row in run.metrics
        for one in [row.difference]
    ]
    return Section(
        f"Records that moved, {run.b.label} − {run.a.label}",
        ("metric", "higher", "same", "lower", "least shown"),
        rows,
        (
            f"least shown: the mean difference that so many records show in {100 * POWER:.0f} % of "
            "cases; half of it takes about four times as many",
        ),
    )


def _groups(run: RunComparison, by: str) -> Section:
    """As `_means`, a row a group."""
    a, b = run.a.label, run.b.label
    rows = [_means_row(row, row.group or "") for row in run.groups]
    header = ("metric", by, "n", f"mean {a}", f"mean {b}", f"{b} − {a}", "p-value", "verdict")
    charts: dict[str, list[Mark]] = {}
    for row in run.groups:
        charts.setdefault(row.metric, []).append(_mark(row.group or "", row))
    return Section(f"{b} − {a} by {by}", header, rows, charts=charts)


def _changes(run: RunComparison) -> Section:
    """How many claims and facts of each text are the same in both."""
    rows = [
        (f"{table} of {SIDE_COLUMNS.get(side, side)}", *(f"{counts[kind]:,}" for kind in KINDS))
        for (table, side), counts in run.changes.items()
    ]
    which = "all records" if run.n_equal == run.n_shared else f"the {run.n_equal:,} equal records"
    title = f"Claims of {which}, {run.a.label} to {run.b.label}"
    return Section(title, ("claims or facts", *KINDS), rows)


def _moves(run: RunComparison) -> Section:
    """The records that moved most, metric by metric."""
    a, b = run.a.label, run.b.label
    header = ("metric", "record", a, b, f"{b} − {a}")
    rows = []
    for move in run.moves:
        places = digits(move.a, move.b)
        values = number(move.a, places), number(move.b, places), signed(move.difference, places)
        rows.append((move.metric, move.id, *values))
    return Section(f"Moved most, {a} to {b}", header, rows)


def _missing_notes(run: RunComparison) -> Iterator[str]:
    for source, missing in ((run.b, run.only_a), (run.a, run.only_b)):
        if missing.n:
            named = [*missing.first, *(["…"] if missing.n > len(missing.first) else [])]
            are = "record is" if missing.n == 1 else "records are"
            yield f"{missing.n:,} {are} not in {source.label}: {', '.join(named)}"
    without: dict[str, list[str]] = {}  # what holds for several metrics is said once
    for row in run.metrics:
        for source, n, reasons in (
            (run.a, row.nulls.a, row.nulls.reasons_a),
            (run.b, row.nulls.b, row.nulls.reasons_b),
        ):
            if n:
                why = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.items())
                where = f"{n:,} of the shared records have no score in {source.label}"
                without.setdefault(f"{where}: {why}", []).append(row.metric)
    yield from (f"{', '.join(metrics)}: {what}" for what, metrics in without.items())
    for source, metrics in ((run.a, run.only_metrics_a), (run.b, run.only_metrics_b)):
        if metrics:
            yield f"only in {source.label}: {', '.join(metrics)}"


def _method_notes(comparison: Comparison) -> Iterator[str]:
    """How the numbers were made."""
    rows = (row for run in comparison.runs for row in (*run.metrics, *run.groups))
    many = any(row.difference.n > MOST_RESAMPLED for row in rows)
    limit = f"; where more than {MOST_RESAMPLED:,} differ, what samples come to" if many else ""
    yield (
        f"difference: mean over the records with a score in both, with its {100 * LEVEL:.0f} % "
        f"paired bootstrap interval ({comparison.config.samples:,} samples of the records, seed "
        f"{comparison.config.seed}{limit}); scores within {EQUAL_WITHIN:g} of each other count as "
        "the same"
    )
    yield (
        "p-value: how often chance alone would make such a difference, corrected (Holm) for the "
        "number of metrics and runs, or of groups; verdict: higher or lower where it is at most "
        f"{ALPHA:g}, else no difference is shown"
    )
    if any(run.changes for run in comparison.runs):
        yield (
            "reworded: the most alike of what is not the same, by letter trigrams (Dice) of at "
            f"least {LEAST_ALIKE:g}"
        )


def _units(run: RunComparison) -> Section:
    """The claims and facts that are not the same in both, of the records that moved most and have
    equal texts."""
    shown = run.records[:MOST_NAMED]
    rows = [
        (
            record.id,
            f"{UNIT_TABLES[unit.table]} {kind}",
            SIDE_COLUMNS.get(unit.side, unit.side),
            one or "",
            other or "",
        )
        for record in shown
        for unit in record.changes
        for kind, one, other in [unit.change]
    ]
    notes: list[str] = []
    if len(run.records) > len(shown):
        notes.append(f"{len(run.records) - len(shown):,} more records that moved are in --json")
    a, b = run.a.label, run.b.label
    header = ("record", "change", "of", a, b)
    title = f"Claims of the records that moved most, {a} and {b}"
    return Section(title, header, rows, tuple(notes), compares_texts=True)


def digits(*values: float | None) -> int:
    """Two digits after the point where a value has two before it, else four."""
    return 2 if any(value is not None and abs(value) >= 10 for value in values) else 4


def number(value: float | None, places: int) -> str:
    if value is None:
        return "none"
    return signed(value, places).removeprefix("+")


def signed(value: float | None, places: int) -> str:
    """With its sign; what rounds to zero has none."""
    if value is None:
        return "none"
    shown = f"{abs(value):.{places}f}" if abs(value) < 1e9 else f"{abs(value):.4g}"
    if not float(shown):
        return shown
    return ("+" if value > 0 else "−") + shown


def p_value(p: float | None) -> str:
    if p is None:
        return "none"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


# JSON

#: A higher one where a name in the object changed its meaning or went away.
FORMAT = 4


def to_json(comparison: Comparison, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """The comparison by the names of its parts, `a` the baseline and `b` the other run, with
    `gates` where there are conditions; what cannot be computed is null, and `reason` says why."""
    runs = [
        {**_plain(run), "verdict": [sentence(run, row) for row in run.metrics]}
        for run in comparison.runs
    ]
    method = {"level": LEVEL, "alpha": ALPHA, "equal_within": EQUAL_WITHIN, "correction": "holm"}
    return {
        "format": FORMAT,
        "claimscore": __version__,
        "config": _plain(comparison.config),
        "method": method,
        "runs": runs,
        **({"gates": _plain(gates)} if gates else {}),
    }


def _plain(value: Any) -> Any:
    """A part of a comparison as JSON has it; the rows of all records are in the table."""
    if isinstance(value, ComparedRun):
        names = ("label", "path", "n_records", "metrics", "notices")
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Difference):
        return {**dataclasses.asdict(value), "records_needed": value.records_needed()}
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else " ".join(name): _plain(item)
            for name, item in value.items()
            if name != "paired"
        }
    if isinstance(value, tuple | list):
        return list(map(_plain, value))
    return str(value) if isinstance(value, Path) else value
