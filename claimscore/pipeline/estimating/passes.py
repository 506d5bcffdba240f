"""What metrics need and what model passes have to do: the part of an estimate without an LLM."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from claimscore.config import RunConfig
from claimscore.metrics.base import Metric, PassNeed, TaskNeed
from claimscore.pipeline.passes.counting import count_items, count_tokens
from claimscore.pipeline.plan import Plan, PlannedPass
from claimscore.pipeline.tasks import TASKS
from claimscore.tables import TABLES
from claimscore.types import JSON


@dataclasses.dataclass(frozen=True)
class MetricNeeds:
    """The tasks of a metric, those that they wait for included, and its passes."""

    metric: str
    tasks: tuple[TaskNeed, ...]
    passes: tuple[PassNeed, ...]

    def to_json(self) -> JSON:
        return {
            "metric": self.metric,
            "tasks": [{"task": need.task, "sides": list(need.sides)} for need in self.tasks],
            "passes": [need.step for need in self.passes],
        }


@dataclasses.dataclass(frozen=True)
class PassEstimate:
    """A model pass that is shared by `metrics`.

    `model` is what the user named, None where that is missing. `items` are still to be asked,
    None where they are known only after tasks of which something is left to do. `expected_items`
    and `tokens` (by characters) go by the claims and facts that the built-in rules make where
    nobody was asked yet; None where they were not counted. `tokens_per_s` is the model's
    remembered pace on one device, None where there is none; `seconds` are those of all devices.
    """

    step: str
    role: str
    model: str | None
    metrics: tuple[str, ...]
    items: int | None
    unit: str
    expected_items: int | None = None
    tokens: int | None = None
    tokens_per_s: float | None = None
    seconds: float | None = None

    def to_json(self) -> JSON:
        return {**dataclasses.asdict(self), "metrics": list(self.metrics)}


def metric_needs(metric: Metric) -> MetricNeeds:
    """What a metric needs, the tasks in the order in which they are done."""
    sides: dict[str, dict[str, None]] = {}
    for need in metric.needs.tasks:
        sides.setdefault(need.task, {}).update(dict.fromkeys(need.sides))
    for name in reversed(TASKS):
        for before in TASKS[name].after if name in sides else ():
            sides.setdefault(before, {}).update(sides[name])
    tasks = tuple(TaskNeed(name, tuple(sides[name])) for name in TASKS if name in sides)
    return MetricNeeds(metric.name, tasks, metric.needs.passes)


class PassTally:
    """Counts the items of every pass of a plan, chunk by chunk."""

    def __init__(self, config: RunConfig, plan: Plan) -> None:
        self._config = config
        self._plan = plan
        self._items = dict.fromkeys((planned.step for planned in plan.passes), 0)
        self._unknown: set[str] = set()
        self._n_records = 0
        self._expected: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._n_weighed = 0

    def add(self, records: pl.DataFrame, left: Sequence[PlannedPass]) -> None:
        """A chunk, and the passes that are not done on it."""
        self._n_records += records.height
        for planned in left:
            if planned.model_pass.after:
                self._unknown.add(planned.step)
                continue
            need = planned.need
            self._items[planned.step] += count_items(planned.model_pass, need, records, _nothing)

    def weigh(
        self,
        records: pl.DataFrame,
        left: Sequence[PlannedPass],
        tables: Mapping[str, pl.DataFrame],
    ) -> None:
        """A chunk whose tables are there, made by rules where nobody was asked yet."""
        self._n_weighed += records.height

        def read(table: str) -> pl.DataFrame:
            return tables[table] if table in tables else _nothing(table)

        for planned in left:
            given = planned.model_pass, planned.need, records, read
            self._expected[planned.step] += count_items(*given)
            self._tokens[planned.step] += count_tokens(*given)

    def passes(self, total: int) -> Iterator[PassEstimate]:
        """Every pass, for `total` records, of which those that were added are a sample."""
        share = self._n_records / total if total else 1.0
        scale = total / self._n_weighed if self._n_weighed else None
        for planned in self._plan.passes:
            items = round(self._items[planned.step] / (share or 1.0))
            users = (m.name for m in self._plan.metrics if planned.need in m.needs.passes)
            yield PassEstimate(
                planned.step,
                planned.model_pass.role,
                getattr(self._config.encoders, planned.model_pass.role),
                tuple(users),
                None if planned.step in self._unknown else items,
                planned.model_pass.unit,
                None if scale is None else round(self._expected[planned.step] * scale),
                None if scale is None else round(self._tokens[planned.step] * scale),
            )

    def notes(self, total: int) -> Iterator[str]:
        """On how many of the records was counted, where not on all."""
        counted = [step for step in self._items if step not in self._unknown]
        if counted and self._n_records < total:
            yield f"model passes: counted on {self._n_records:,} of {total:,} records"
        if 0 < self._n_weighed < total and self._expected:
            yield f"work of the models: counted on {self._n_weighed:,} of {total:,} records"


def _nothing(table: str) -> pl.DataFrame:
    return TABLES[table].empty()
