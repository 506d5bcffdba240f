"""From what was measured to the words of the table: medians, ratios within rounds, differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rows import OWN, Row, Target

#: A label that a difference this small could turn is no disagreement.
MARGIN = 2e-5

Array = NDArray[np.float64]


class Difference(NamedTuple):
    """How far numbers are from the reference; `same_label` is a share, of NLI alone."""

    most: float
    same_label: float | None = None


@dataclasses.dataclass(slots=True)
class Played:
    """A row's figures, a round each: seconds by variant, GFLOP/s by way to multiply matrices.

    Whoever failed has no seconds but a reason in `failed`, also who is not installed.
    """

    row: Row
    threads: int
    n: int
    gflop: float
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    ways: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    differences: dict[str, Difference] = dataclasses.field(default_factory=dict)
    tuned: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def peaks(self) -> list[float]:
        """The best way's GFLOP/s in each round."""
        return [max(rounds) for rounds in zip(*self.ways.values(), strict=True)]

    def per_second(self, name: str) -> float:
        return median(self.n / seconds for seconds in self.seconds[name])

    def share(self, name: str) -> float:
        """Of the peak, within each round: what slowed a round slowed both."""
        pairs = zip(self.seconds[name], self.peaks, strict=True)
        return median(self.gflop / seconds / peak for seconds, peak in pairs)

    def ratios(self, name: str, other: str) -> list[float]:
        """How many times as fast as another, in each round."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=True)
        return [theirs / mine for mine, theirs in pairs]


class TableLine(NamedTuple):
    """One line as it is printed; `met` is None where nothing is asked."""

    what: str
    threads: str
    at_least: str
    met: bool | None
    own: str
    beside: str = ""
    ratio: str = ""


HEADER = ("what", "threads", "at least", "met", "claimscore", "beside it", "ratio")


def lines(played: Played) -> list[TableLine]:
    """A row's comparisons and its share of the peak; one that lacks a side says why."""
    row, is_own = played.row, OWN in played.seconds
    found = []
    for name, target in row.beside.items():
        ratios = played.ratios(OWN, name) if is_own and name in played.seconds else []
        text = f"{median(ratios):.2f}{_range(ratios)}" if ratios else ""
        line = _line(played, row.what, target, "{:g} x", ratios)
        found.append(line._replace(beside=cell(played, name), ratio=text))
    shares = [played.share(OWN)] if is_own and played.peaks else []
    peaks = [f"{way} {gflops_text(median(rates))}" for way, rates in played.ways.items()]
    line = _line(played, f"{row.what}, share of the peak", row.share, "{:.0%}", shares)
    beside, text = f"peak, GFLOP/s: {', '.join(peaks)}", f"{shares[0]:.0%}" if shares else ""
    return [*found, line._replace(beside=beside, ratio=text)]


def _line(
    played: Played, what: str, target: Target, form: str, reached: Sequence[float]
) -> TableLine:
    is_cpu = played.row.device == "cpu"
    asked = target.two if is_cpu and played.threads > 1 else target.one
    met = None
    if asked is not None and reached:
        met = median(reached) >= asked and agrees(played)
    threads, wanted = str(played.threads) if is_cpu else "GPU", asked and form.format(asked)
    return TableLine(what, threads, wanted or "", met, cell(played, OWN))


def gflops_text(gflops: float) -> str:
    return f"{gflops:,.0f}" if gflops else "not here"


def _range(values: Sequence[float]) -> str:
    return f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""


def agrees(played: Played) -> bool:
    """Whether claimscore's numbers are as near to the reference as the row asks."""
    found = played.differences.get(OWN)
    if played.row.bound is None or found is None:
        return True
    return found.most <= played.row.bound and found.same_label in (None, 1.0)


def cell(played: Played, name: str) -> str:
    """A variant's rate, its share of the machine's peak, and how far its numbers are."""
    shown = f"{name}, {played.tuned[name]}: " if name in played.tuned else f"{name}: "
    shown = "" if name == OWN else shown
    if name not in played.seconds:
        return shown + played.failed.get(name, "not asked for")
    text = f"{shown}{played.per_second(name):,.1f}/s"
    if played.peaks:
        text += f", {played.share(name):.0%} of {median(played.peaks):,.0f} GFLOP/s"
    if name in played.differences:
        text += f", {difference_text(played.row.task, played.differences[name])}"
    return text


def difference_text(task: str, found: Difference) -> str:
    what = {"nli": "off by", "embed": "1-cos", "bertscore": "off by"}[task]
    labels = "" if found.same_label is None else f", same label {found.same_label:.1%}"
    return f"{what} {max(found.most, 0.0):.0e}{labels}"


def difference(task: str, values: Array, reference: Array) -> Difference:
    """Compare what came out with the reference: probabilities, vectors, or scores."""
    values, reference = values.astype(np.float64), reference.astype(np.float64)
    if values.shape != reference.shape or not np.isfinite(values).all():
        return Difference(float("inf"), 0.0 if task == "nli" else None)
    if task == "embed":
        lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(reference, axis=1)
        return Difference(float((1 - (values * reference).sum(axis=1) / lengths).max()))
    most = float(np.abs(values - reference).max())
    if task != "nli":
        return Difference(most)
    top = np.sort(reference, axis=1)
    clear = top[:, -1] - top[:, -2] > MARGIN
    same = (values.argmax(axis=1) == reference.argmax(axis=1)) | ~clear
    return Difference(most, float(same.mean()))


def table(found: Sequence[TableLine]) -> str:
    """One Markdown table."""
    words = {None: "", True: "met", False: "**not met**"}
    rows: list[Sequence[str]] = [HEADER, ["---"] * len(HEADER)]
    for line in found:
        rows.append([words[v] if v is None or isinstance(v, bool) else v for v in line])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_json(played: Played) -> dict[str, Any]:
    """Everything measured, for `--out`."""
    content = {field.name: getattr(played, field.name) for field in dataclasses.fields(played)}
    content["row"] = played.row.name
    content["differences"] = {name: found._asdict() for name, found in played.differences.items()}
    return content
