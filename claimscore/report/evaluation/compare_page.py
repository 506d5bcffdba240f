"""The page of `compare`: intervals of the differences, and the claims behind what moved."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from claimscore.evaluation.compare.comparison import Comparison, RecordDetail, RunComparison
from claimscore.evaluation.compare.comparison_tables import (
    agreement_section,
    by_labels_section,
    groups_section,
    labels_section,
    means_section,
    method_notes,
    move_cells,
    moves_section,
    noise_section,
    settings_section,
    tests_section,
    verdict_lines,
)
from claimscore.evaluation.compare.nli_cells import Flip, RecordCells
from claimscore.evaluation.compare.run_differences import MetricDifference
from claimscore.evaluation.compared_run import ComparedRun
from claimscore.report.evaluation.evaluation_page import (
    Block,
    Chart,
    Mark,
    PageSection,
    SourceLink,
    Word,
    interval_charts,
    run_link,
    section_block,
    write_evaluation_page,
)
from claimscore.report.html_page import count

#: So many flipped labels of a record are on the page.
MAX_FLIPS = 100

_KINDS = {
    "vanished": "vanished",
    "appeared": "appeared",
    "changed": "reworded",
    "normalised": "other case or punctuation",
}
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def write_compare_page(found: Comparison, path: Path, command: str) -> None:
    """Write the page; `command` is what was typed to get it."""
    first = found.sources[0]
    shared = {metric for run in found.runs for metric in (row.metric for row in run.metrics)}
    notes = Block(notes=(*method_notes(found), *_notices(*found.sources)))
    noise = []
    if found.noise:
        noise.append(PageSection("noise", "Noise", [section_block(noise_section(found))]))
    settings = {
        "runs": found.config.runs,
        "metrics": found.config.metrics or "all",
        "by": found.config.by,
        "noise": found.config.noise,
        "similarity": found.similarity,
        "threshold": found.threshold,
        "samples": found.config.samples,
        "seed": found.config.seed,
    }
    write_evaluation_page(
        path,
        title="Runs compared",
        lede=[
            count(len(found.sources), "run"),
            count(first.n_records, "record") + " in the baseline",
            count(len(shared), "metric"),
        ],
        command=command,
        name="compare",
        settings=settings,
        sources=[_source_link(source, path) for source in found.sources],
        sections=[
            *(section for run in found.runs for section in _sections(found, run)),
            *noise,
            PageSection("notes", "Notes", [notes]),
        ],
        signatures=[
            (f"{source.label}: {metric}", signature)
            for source in found.sources
            for metric, signatures in source.metrics.items()
            for signature in signatures
        ],
    )


def _source_link(source: ComparedRun, page: Path) -> SourceLink:
    is_run = source.directory is not None
    what = f"{source.label}, the baseline" if source.label == "A" else source.label
    link = run_link(source.path, page) if is_run else None
    return SourceLink(what, str(source.path), is_run, link)


def _notices(*sources: ComparedRun) -> tuple[str, ...]:
    return tuple(f"{source.label}: {notice}" for source in sources for notice in source.notices)


def _sections(found: Comparison, run: RunComparison) -> Iterator[PageSection]:
    """The sections of one run; their names are ours; of several runs the titles name the run."""
    several = len(found.runs) > 1

    def section(name: str, title: str, blocks: Sequence[Block]) -> PageSection:
        of_run = f"{run.b.label} against {run.a.label}: {title}"
        shown = of_run if several else title[:1].upper() + title[1:]
        return PageSection(f"{name}-{run.b.label.lower()}", shown, blocks)

    yield section("verdict", "verdict", [Block(says=tuple(verdict_lines(found, run)))])
    settings = settings_section(run)
    differs = [Block(notices=_notices(run.a, run.b))]
    differs.append(section_block(settings, title=""))
    yield section("settings", "what differs", differs)
    yield section("means", "means", list(_means(run)))
    if run.groups:
        of_metric: dict[str, list[tuple[str, MetricDifference]]] = {}
        for row in run.groups:
            of_metric.setdefault(row.metric, []).append((row.group or "", row))
        charts = tuple(_chart(metric, rows) for metric, rows in of_metric.items())
        block = section_block(
            groups_section(run, found.config.by or ""), legend=("interval",), charts=charts
        )
        yield section("groups", f"by {found.config.by}", [block])
    agreement = [s for s in (agreement_section(run), labels_section(run)) if s.rows]
    if agreement:
        yield section("claims", "claims", [section_block(s) for s in agreement])
    if run.moves:
        moved = [
            _record(record, run, is_open=place == 0) for place, record in enumerate(run.records)
        ]
        block = section_block(moves_section(found, run), title="")
        yield section("moved", "moved most", [block, *moved])


def _means(run: RunComparison) -> Iterator[Block]:
    """A chart a metric, each on a scale of its own, then the tables."""
    section = means_section(run)
    if not section.rows:
        yield Block(notes=("the runs share no metric", *section.notes))
        return
    label = f"{run.b.label} − {run.a.label}"
    charts = tuple(_chart(row.metric, [(label, row)]) for row in run.metrics)
    yield section_block(section, legend=("interval",), charts=charts)
    if run.by_labels:
        yield section_block(by_labels_section(run))
    yield section_block(tests_section(run))


def _chart(title: str, rows: Sequence[tuple[str, MetricDifference]]) -> Chart:
    marks = []
    for label, row in rows:
        found = row.difference
        known = found.low is not None and found.high is not None
        interval = (found.low, found.high) if known else None
        marks.append(Mark(label, found.mean, interval))  # type: ignore[arg-type]  # both known
    scale = max(abs(mark.value or 0.0) for mark in marks)
    (chart,) = interval_charts({title: marks}, 0.0, 2 if scale >= 1 or not scale else 4)
    return chart


# Records


def _record(record: RecordDetail, run: RunComparison, *, is_open: bool) -> Block:
    moves = "; ".join(
        f"{move.metric} {one} to {other} ({difference})"
        for move in record.moves
        for one, other, difference in [move_cells(move)]
    )
    texts = f"texts of the record that differ: {', '.join(record.texts)}"
    blocks = [Block(notes=(texts,))] if record.texts else []
    blocks += [
        _units(table, list(rows.iter_rows(named=True)), run)
        for table, rows in record.units.items()
        if not rows.is_empty()
    ]
    blocks += [_cells(cells, run) for cells in record.cells]
    nothing = () if record.units or record.cells else ("neither run has claims or labels of it",)
    return Block(
        summary=f"{record.id}: {moves}", is_open=is_open, blocks=tuple(blocks), notes=nothing
    )


def _units(table: str, rows: Sequence[dict[str, str | None]], run: RunComparison) -> Block:
    """The claims that are not the same in both; what was reworded with its words marked."""
    n_same = sum(row["kind"] == "same" for row in rows)
    noun = table.removesuffix("s")
    same = f"{count(n_same, noun)} {'is' if n_same == 1 else 'are'} the same in both"
    words = [
        ([("", _KINDS[kind])], [("", row["side"] or "")], *_both_words(row["a"], row["b"]))
        for row in rows
        if (kind := row["kind"] or "") in _KINDS
    ]
    if not words:
        return Block(notes=(same,))
    header = ("change", "side", run.a.label, run.b.label)
    return Block(
        title=f"{table.capitalize()} that differ", header=header, words=words, notes=(same,)
    )


def _both_words(a: str | None, b: str | None) -> tuple[list[Word], list[Word]]:
    """Both texts, the words that only one has marked; a missing text is empty."""
    if a is None or b is None:
        return [("", a or "")], [("", b or "")]
    one, other = _WORDS.findall(a), _WORDS.findall(b)
    left: list[Word] = []
    right: list[Word] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, other, False).get_opcodes():
        same = kind == "equal"
        left.append(("" if same or i == j else "del", "".join(one[i:j])))
        right.append(("" if same or k == m else "ins", "".join(other[k:m])))
    return left, right


def _cells(cells: RecordCells, run: RunComparison) -> Block:
    """Flipped labels, then how many pairs of texts only one run has."""
    words = [
        (
            [("", flip.a.label)],
            [("", flip.b.label + (" (reworded)" if flip.reworded else ""))],
            *_flip_texts(flip),
        )
        for flip in cells.flips[:MAX_FLIPS]
    ]
    notes = [f"{count(cells.shared, 'pair')} of texts in both, {len(cells.flips):,} labels flipped"]
    if len(cells.flips) > MAX_FLIPS:
        notes.append(f"the first {MAX_FLIPS} are shown; all are in --json")
    for source, labels in ((run.a, cells.only_a), (run.b, cells.only_b)):
        if labels:
            counts = ", ".join(f"{n:,} {label}" for label, n in labels.items())
            notes.append(f"pairs of texts only in {source.label}: {counts}")
    return Block(
        title=f"NLI labels that flipped ({cells.table})" if words else "",
        header=(f"label in {run.a.label}", f"in {run.b.label}", "premise", "hypothesis"),
        words=words,
        notes=tuple(notes),
    )


def _flip_texts(flip: Flip) -> Iterator[list[Word]]:
    one, other = flip.cell, flip.cell_b
    for side, a, b in (
        (one.premise_side, one.premise, other.premise),
        (one.hypothesis_side, one.hypothesis, other.hypothesis),
    ):
        left, right = _both_words(a, b)
        changed = [*left, ("", " → "), *right]
        yield [("b", side), ("", " "), *([("", a)] if a == b else changed)]
