"""A metric: its requirements, and a pure function from a chunk's tables to one score a record.

A score is a value, or None with a reason; never a stand-in number. A reason names columns as the
records do (`summary_a`), and the particulars of one record come after a colon.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from claimscore.errors import ConfigError
from claimscore.tables import (
    AMBIGUOUS,
    CLAIMS,
    REFERENCES_SIDE,
    SIDE_COLUMNS,
    SOURCE_SIDE,
    counted,
    texts_on_side,
)

#: The side of the tables that each column of the records becomes.
SIDES: dict[str, str] = {
    **{column: side for side, column in SIDE_COLUMNS.items()},
    "source": SOURCE_SIDE,
    "sources": SOURCE_SIDE,
    "references": REFERENCES_SIDE,
}


class TaskRequirement(NamedTuple):
    """An LLM task, asked about the texts of these sides."""

    task: str
    sides: tuple[str, ...]


class PassRequirement(NamedTuple):
    """A model pass: its kind (`claimscore.pipeline.passes`) and what it reads, in its order.

    An item of `over` is a side (`summary`), or a side and how its text is cut
    (`source.sentence`).
    """

    kind: str
    over: tuple[str, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(item.partition(".")[0] for item in self.over)

    @property
    def step(self) -> str:
        """The name of this work on one chunk in the run directory's manifest."""
        return "-".join((self.kind, *self.over))


@dataclasses.dataclass(frozen=True, slots=True)
class Requirements:
    """Columns, LLM tasks and model passes that a metric reads."""

    columns: tuple[str, ...]
    tasks: tuple[TaskRequirement, ...] = ()
    passes: tuple[PassRequirement, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose failure leaves a record without a score, in the order they run."""
        return tuple(self.sides_of_stages)

    @property
    def sides_of_stages(self) -> dict[str, set[str]]:
        """The sides that each stage is about."""
        by_stage: dict[str, set[str]] = {}
        for stage, sides in (*self.tasks, *((need.kind, need.sides) for need in self.passes)):
            by_stage.setdefault(stage, set()).update(sides)
        for task, sides in self.tasks:
            if task == "decompose":  # `--dedupe entailed` asks a model about claims
                by_stage.setdefault("entailed_claims", set()).update(sides)
        for need in self.passes:
            if need.kind == "support":  # `--verifier llm` does a task in its place
                by_stage.setdefault("verify", set()).add(need.sides[-1])
        return by_stage


class ChunkTables:
    """The tables of one chunk of records, with the schemas of `claimscore.tables`.

    `tables["nli"]` reads that table once; `tables["claims"]` has the claims that count. `records`
    has `id` and the input's columns; its order is the order of the scores.
    """

    def __init__(self, read: Callable[[str], pl.DataFrame]) -> None:
        self._read = read
        self._frames: dict[str, pl.DataFrame] = {}

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in self._frames:
            rows = self._read(table)
            self._frames[table] = counted(rows) if table == CLAIMS.name else rows
        return self._frames[table]

    def no_claims(self, record: str, side: str) -> str:
        """Why a text has no claims that count."""
        n_ambiguous = self._ambiguous.get((record, side), 0)
        column = SIDE_COLUMNS.get(side, side)
        all_are = f"all claims of {column} are ambiguous: {n_ambiguous} of {n_ambiguous}"
        return all_are if n_ambiguous else f"no claims in {column}"

    @functools.cached_property
    def _ambiguous(self) -> dict[tuple[str, str], int]:
        rows = self._read(CLAIMS.name).filter(left_out=AMBIGUOUS).group_by("id", "side").len()
        return {(record, side): n for record, side, n in rows.iter_rows()}

    @property
    def records(self) -> pl.DataFrame:
        return self["records"]


class Score(NamedTuple):
    """One record's score; `reason` says why the value is None, `components` what it is made of."""

    id: str
    value: float | None
    reason: str | None
    components: dict[str, object]


def scored(record: str, value: float, components: dict[str, object]) -> Score:
    """The score of a record that has a value."""
    return Score(record, value, None, components)


def unscored(record: str, reason: str, components: dict[str, object] | None = None) -> Score:
    """The score of a record that has none, with the reason for people."""
    return Score(record, None, reason, components or {})


def nothing_to_check() -> None:
    """The check of a metric that needs nothing but its package."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric and everything that commands and reports show of it.

    `score` returns or yields one `Score` a record, in the order of the records. `signature_keys`
    are the facts of a run that the values depend on, `facts` those that the metric itself fixes.
    `check` raises `ConfigError` where this machine lacks what `score` reads (WordNet, a spaCy
    model); it is called before a run spends anything. `verdict` says what a mean says, with
    `{mean}` or, as a share of the range, `{share}` in it; without one the level says little by
    itself. `weak_verdict` says less where the embedded NLI model judged.
    The records at the `worst` end are to be looked at first.
    """

    name: str
    requires: Requirements
    score: Callable[[ChunkTables], Iterable[Score]]
    signature_keys: tuple[str, ...]
    higher_is: str
    range: tuple[float, float]
    description: str
    reference: str
    version: str = "v1"
    facts: tuple[tuple[str, str], ...] = ()
    check: Callable[[], None] = nothing_to_check
    verdict: str = ""
    weak_verdict: str = ""
    worst: Literal["lowest", "highest"] = "lowest"


def option(
    default: Any,
    help: str,
    choices: Iterable[Any] = (),
    *,
    also: tuple[str, Callable[[str], bool]] | None = None,
) -> Any:
    """A field of a metric's options: its default, one sentence of help, and its values.

    `choices` are all values, texts, whole numbers or booleans, but for those that `also` describes
    in words and tells from others; without `choices` any text is a value.
    """
    metadata = {"help": help, "choices": tuple(choices), "also": also}
    return dataclasses.field(default=default, metadata=metadata)


class MetricOption(NamedTuple):
    """An option as it is spelled: `values`, the default first, or None for any text.

    `also` are the words for other values, or nothing.
    """

    name: str
    default: str
    values: tuple[str, ...] | None
    help: str
    also: str

    def described(self, separator: str, form: str = "{}") -> str:
        """The values, each in that form, and the words for others; `any text` where all are."""
        named = [form.format(value) for value in self.values or ()]
        return separator.join([*named, *filter(None, [self.also])]) or "any text"


def spelled(value: object) -> str:
    """The value of an option in a metric's name: `yes` and `no` for booleans."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


@dataclasses.dataclass(frozen=True)
class MetricFamily:
    """A metric with options, spelled `name:option=value`.

    `options` is a frozen dataclass with a default for each field, made by `option`. `make` gets the
    name that the scores will have, and the options.
    """

    name: str
    options: type[Any]
    make: Callable[[str, Any], Metric]

    def known_options(self) -> tuple[MetricOption, ...]:
        """The options in the order in which names and signatures spell them."""
        options = []
        for field in dataclasses.fields(self.options):
            default, choices = spelled(field.default), map(spelled, field.metadata["choices"])
            values = tuple(dict.fromkeys((default, *choices)))
            known = values if field.metadata["choices"] else None
            help, also = field.metadata["help"], field.metadata["also"]
            options.append(MetricOption(field.name, default, known, help, also[0] if also else ""))
        return tuple(options)

    def metric(self, given: Sequence[str] = ()) -> Metric:
        """The metric with `key=value` options; the name has those that are not the default.

        `ConfigError` for an unknown option or value.
        """
        fields = {field.name: field for field in dataclasses.fields(self.options)}
        chosen: dict[str, Any] = {}
        for item in given:
            key, equals, text = item.partition("=")
            if not equals or key not in fields or key in chosen:
                known = ", ".join(fields)
                raise ConfigError(f"metric {self.name}: {item!r} is no option; options: {known}")
            values = {spelled(value): value for value in fields[key].metadata["choices"]}
            also = fields[key].metadata["also"]
            if values and text not in values and not (also and also[1](text)):
                known = next(one for one in self.known_options() if one.name == key).described(", ")
                raise ConfigError(f"metric {self.name}: {key} is one of {known}")
            chosen[key] = values.get(text, text)
        options = self.options(**chosen)
        other = [
            f"{name}={spelled(getattr(options, name))}"
            for name, field in fields.items()
            if getattr(options, name) != field.default
        ]
        name = ":".join((self.name, *other))
        metric = self.make(name, options)
        if not isinstance(metric, Metric) or metric.name != name:
            raise ConfigError(f"metric {self.name}: make(name, options) gave no Metric {name}")
        return metric


def option_facts(options: Any, *names: str) -> tuple[tuple[str, str], ...]:
    """These options (all without names) as facts of a signature."""
    chosen = names or tuple(field.name for field in dataclasses.fields(options))
    return tuple((name, spelled(getattr(options, name))) for name in chosen)


def signature(metric: Metric, facts: Mapping[str, str]) -> str:
    """Everything that changes the values, in one line: `caspr|v1|llm:builtin-parser-9|nli:...`.

    A fact that the run does not have (no LLM where claims are sentences) is left out.
    """
    run_facts = [(key, facts[key]) for key in metric.signature_keys if key in facts]
    parts = [f"{key}:{value}" for key, value in (*metric.facts, *run_facts)]
    return "|".join([metric.name, metric.version, *parts])


def failure_reasons(tables: ChunkTables, requires: Requirements) -> dict[str, str]:
    """Why records cannot be scored: the first failure of a stage that the metric requires, by id.

    A failure without a side counts for every metric that requires its stage.
    """
    sides, stages = requires.sides_of_stages, requires.stages
    if not stages:
        return {}
    concerned = tables["failures"].filter(pl.col("stage").is_in(stages))
    columns = concerned.select("id", "stage", "side", "index", "message").rows()
    rows = sorted(columns, key=lambda row: (stages.index(row[1]), row[2] or "", row[3] or 0))
    reasons: dict[str, str] = {}
    for record, stage, side, _, message in rows:
        if side is not None and side not in sides[stage]:
            continue
        place = f" for {SIDE_COLUMNS.get(side, side)}" if side else ""
        reasons.setdefault(record, f"{stage} failed{place}: {message}")
    return reasons


def blank_reason(row: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The first of these columns without a text, as a reason; None where all have one.

    `row` is a record; `source` stands for the columns `source` and `sources`. Columns that are on
    no side do not count.
    """
    for column in columns:
        if column in SIDES and not any(text.strip() for text in texts_on_side(row, SIDES[column])):
            return f"no text in {column}"
    return None


def score_records(
    tables: ChunkTables, requires: Requirements, score: Callable[[dict[str, Any]], Score]
) -> list[Score]:
    """One score a record, in order.

    `score` gets the required columns of records whose stages did not fail and whose texts are
    there; the others are null with that reason.
    """
    failed = failure_reasons(tables, requires)
    read = {"id", *requires.columns} | ({"sources"} if "source" in requires.columns else set())
    records = tables.records.select(name for name in tables.records.columns if name in read)
    scores = []
    for row in records.iter_rows(named=True):
        reason = failed.get(row["id"]) or blank_reason(row, requires.columns)
        scores.append(score(row) if reason is None else unscored(row["id"], reason))
    return scores


#: Of the table `text_scores`: values by id, by index of the given text (None without), by name.
TextNumbers = dict[str, dict[int | None, dict[str, float | None]]]


def text_numbers(
    tables: ChunkTables, measures: Sequence[str], side: str, given_side: str | None = None
) -> TextNumbers:
    """The numbers of these measures about the texts of a side, given those of another or of any."""
    wanted = pl.col("measure").is_in(measures) & (pl.col("side") == side)
    if given_side is not None:
        wanted &= pl.col("given_side") == given_side
    rows = tables["text_scores"].filter(wanted).select("id", "given_index", "name", "value")
    numbers: TextNumbers = {}
    for record, index, name, value in rows.iter_rows():
        numbers.setdefault(record, {}).setdefault(index, {})[name] = value
    return numbers
