"""The page of `compare`: intervals of the differences, and the claims behind what moved."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from claimscore.evaluation.compare.cells import Flip, RecordCells
from claimscore.evaluation.compare.comparison import Comparison, RunComparison
from claimscore.evaluation.compare.details import RecordDetail
from claimscore.evaluation.compare.scores import MetricDifference
from claimscore.evaluation.compare.sections import (
    agreement_section,
    groups_section,
    labels_section,
    means_section,
    method_notes,
    move_cells,
    moves_section,
    settings_section,
    tests_section,
)
from claimscore.evaluation.compare.source import Source as Compared
from claimscore.report.evaluation.charts import Mark, find_axis, interval_chart, legend
from claimscore.report.evaluation.page import (
    EvaluationPage,
    Part,
    settings_signature,
    write_page,
)
from claimscore.report.evaluation.sources import Source, run_link
from claimscore.report.evaluation.tables import collapsed, notes_html, section_html
from claimscore.report.markup import count, text

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
    parts = [part for run in found.runs for part in _parts(found, run)]
    parts.append(Part("notes", "Notes", notes_html(tuple(_notes(found)))))
    first = found.sources[0]
    shared = {metric for run in found.runs for metric in (row.metric for row in run.metrics)}
    config = found.config
    settings = {
        "runs": config.runs,
        "metrics": config.metrics or "all",
        "by": config.by,
        "similarity": found.similarity,
        "threshold": found.threshold,
        "samples": config.samples,
        "seed": config.seed,
    }
    write_page(
        EvaluationPage(
            title="Runs compared",
            lede=[
                count(len(found.sources), "run"),
                count(first.n_records, "record") + " in the baseline",
                count(len(shared), "metric"),
            ],
            command=command,
            signature=settings_signature("compare", settings),
            sources=[_source(source, path) for source in found.sources],
            parts=parts,
            signatures=list(_signatures(found)),
        ),
        path,
    )


def _source(source: Compared, page: Path) -> Source:
    is_run = source.directory is not None
    what = f"{source.label}, the baseline" if source.label == "A" else source.label
    return Source(what, str(source.path), is_run, run_link(source.path, page) if is_run else None)


def _signatures(found: Comparison) -> Iterator[tuple[str, str]]:
    for source in found.sources:
        for metric, signatures in source.metrics.items():
            yield from ((f"{source.label}: {metric}", signature) for signature in signatures)


def _notes(found: Comparison) -> Iterator[str]:
    yield from method_notes(found)
    for source, notice in ((s, notice) for s in found.sources for notice in s.notices):
        yield f"{source.label}: {notice}"


def _parts(found: Comparison, run: RunComparison) -> Iterator[Part]:
    """The sections of the page about one run; their names are ours, the titles name the run."""
    name, title = run.b.label.lower(), f"{run.b.label} against {run.a.label}"
    notices = "".join(
        f'<p class="notice" role="note">{text(source.label)}: {text(notice)}</p>'
        for source in (run.a, run.b)
        for notice in source.notices
    )
    settings = settings_section(run)
    shown = section_html(settings) if settings.rows else notes_html(settings.notes)
    yield Part(f"settings-{name}", f"{title}: what differs", notices + shown)
    yield Part(f"means-{name}", f"{title}: means", _means(run))
    if run.groups:
        yield Part(f"groups-{name}", f"{title}: by {found.config.by}", _groups(found, run))
    agreement = [s for s in (agreement_section(run), labels_section(run)) if s.rows]
    if agreement:
        yield Part(f"claims-{name}", f"{title}: claims", "".join(map(section_html, agreement)))
    if run.moves:
        yield Part(f"moved-{name}", f"{title}: moved most", _moved(run))


def _means(run: RunComparison) -> str:
    """A figure a metric, each on a scale of its own, then the tables."""
    section, tests = means_section(run), tests_section(run)
    if not section.rows:
        return '<p class="hint">The runs share no metric.</p>' + notes_html(section.notes)
    figures = "".join(
        _figure(row.metric, [(f"{run.b.label} − {run.a.label}", row)]) for row in run.metrics
    )
    before = f'{legend("interval")}<div class="figures">{figures}</div>'
    return section_html(section, before) + section_html(tests)


def _figure(title: str, rows: Sequence[tuple[str, MetricDifference]]) -> str:
    marks = [_mark(label, row) for label, row in rows]
    scale = max(abs(mark.value or 0.0) for mark in marks)
    number = ".2f" if scale >= 1 else ".4f"
    return interval_chart(title, marks, find_axis(marks, 0.0), number)


def _mark(label: str, row: MetricDifference) -> Mark:
    found = row.difference
    known = found.low is not None and found.high is not None
    interval = (found.low, found.high) if known else None
    return Mark(label, found.mean, interval)  # type: ignore[arg-type]  # both are known


def _groups(found: Comparison, run: RunComparison) -> str:
    of_metric: dict[str, list[tuple[str, MetricDifference]]] = {}
    for row in run.groups:
        of_metric.setdefault(row.metric, []).append((row.group or "", row))
    figures = "".join(_figure(metric, rows) for metric, rows in of_metric.items())
    before = f'{legend("interval")}<div class="figures">{figures}</div>'
    return section_html(groups_section(run, found.config.by or ""), before)


# Records


def _moved(run: RunComparison) -> str:
    records = "".join(
        _record(record, run, is_open=place == 0) for place, record in enumerate(run.records)
    )
    return section_html(moves_section(run)) + records


def _record(record: RecordDetail, run: RunComparison, *, is_open: bool) -> str:
    moves = "; ".join(
        f"{move.metric} {one} to {other} ({difference})"
        for move in record.moves
        for one, other, difference in [move_cells(move)]
    )
    notes = [f"texts of the record that differ: {', '.join(record.texts)}"] if record.texts else []
    body = notes_html(notes) + "".join(_units(table, rows, run) for table, rows in _tables(record))
    body += "".join(_cells(cells, run) for cells in record.cells)
    if not (record.units or record.cells):
        body += notes_html(["neither run has claims or labels of it"])
    shown = collapsed(f"{record.id}: {moves}", body)
    return shown.replace("<details>", "<details open>", 1) if is_open else shown


Unit = dict[str, str | None]


def _tables(record: RecordDetail) -> Iterator[tuple[str, list[Unit]]]:
    for table, rows in record.units.items():
        yield table, list(rows.iter_rows(named=True))


def _units(table: str, rows: Sequence[Unit], run: RunComparison) -> str:
    """The claims that are not the same in both; what was reworded with its words marked."""
    if not rows:
        return ""
    n_same = sum(row["kind"] == "same" for row in rows)
    cells = [
        (text(_KINDS[kind]), text(row["side"]), *_both_words(row["a"], row["b"]))
        for row in rows
        if (kind := row["kind"] or "") in _KINDS
    ]
    noun = table.removesuffix("s")
    same = f"{count(n_same, noun)} {'is' if n_same == 1 else 'are'} the same in both"
    header = ("change", "side", run.a.label, run.b.label)
    shown = _text_table(f"{table.capitalize()} that differ", header, cells) if cells else ""
    return shown + notes_html([same])


def _both_words(a: str | None, b: str | None) -> tuple[str, str]:
    """Both texts as HTML, the words that only one has marked; a missing one is empty."""
    if a is None or b is None:
        return ("" if a is None else text(a)), ("" if b is None else text(b))
    one, other = _WORDS.findall(a), _WORDS.findall(b)
    left, right = [], []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, other, False).get_opcodes():
        same = kind == "equal"
        left.append(_marked("del", "".join(one[i:j]), same))
        right.append(_marked("ins", "".join(other[k:m]), same))
    return "".join(left), "".join(right)


def _marked(tag: str, words: str, same: bool) -> str:
    return text(words) if same or not words else f"<{tag}>{text(words)}</{tag}>"


def _cells(cells: RecordCells, run: RunComparison) -> str:
    """Flipped labels, then how many pairs of texts only one run has."""
    rows = [
        (
            text(flip.a.label),
            text(flip.b.label) + (" (reworded)" if flip.reworded else ""),
            *_flip_texts(flip),
        )
        for flip in cells.flips[:MAX_FLIPS]
    ]
    header = (f"label in {run.a.label}", f"in {run.b.label}", "premise", "hypothesis")
    shown = _text_table(f"NLI labels that flipped ({cells.table})", header, rows) if rows else ""
    notes = [f"{count(cells.shared, 'pair')} of texts in both, {len(cells.flips):,} labels flipped"]
    if len(cells.flips) > MAX_FLIPS:
        notes.append(f"the first {MAX_FLIPS} are shown; all are in --json")
    for source, labels in ((run.a, cells.only_a), (run.b, cells.only_b)):
        if labels:
            counts = ", ".join(f"{n:,} {label}" for label, n in labels.items())
            notes.append(f"pairs of texts only in {source.label}: {counts}")
    return shown + notes_html(notes)


def _flip_texts(flip: Flip) -> tuple[str, str]:
    def shown(side: str, one: str, other: str) -> str:
        words = text(one) if one == other else " → ".join(_both_words(one, other))
        return f"<b>{text(side)}</b> {words}"

    one, other = flip.cell, flip.cell_b
    return (
        shown(one.premise_side, one.premise, other.premise),
        shown(one.hypothesis_side, one.hypothesis, other.hypothesis),
    )


def _text_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML already."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td dir="auto">{cell}</td>' for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="result"><h3>{text(title)}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(title)}">'
        f'<table class="plain result-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></div>"
    )
