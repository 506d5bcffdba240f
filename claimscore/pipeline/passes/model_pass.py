"""A model pass: a function of one chunk of records and one model.

Each pass is a function of the chunk alone, so a chunk that was interrupted is computed
again whole and gives the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import polars as pl

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import CLAIMS, FAILURES, SIDE_COLUMNS, Table, counted

#: The tables of a chunk that passes read.
TABLES_READ = ("records", "claims", "facts", "opinions", "failures")

#: Told how many items a model is about to judge; gives what to call after each batch.
Listen = Callable[[int], OnBatch]


@dataclasses.dataclass(frozen=True, slots=True)
class PassInput:
    """The input of a pass: one chunk.

    `read` gives one of `TABLES_READ`; `broken` are the records of which a task failed that
    the pass needs: their scores are null whatever a model says, so they are left out. A `threshold`
    stands for the model's own.
    """

    model: Any  # what the role's loader returns; the pass knows its type
    need: PassRequirement
    records: pl.DataFrame
    read: Callable[[str], pl.DataFrame]
    broken: frozenset[str]
    listen: Listen
    threshold: float | None = None

    @property
    def claims(self) -> pl.DataFrame:
        """The claims that count."""
        return counted(self.read(CLAIMS.name))


@dataclasses.dataclass(frozen=True, slots=True)
class PassResult:
    """The rows of the pass's tables, by table, and the records that it could not do."""

    rows: Mapping[str, pl.DataFrame]
    failures: pl.DataFrame


@dataclasses.dataclass(frozen=True, slots=True)
class ModelPass:
    """A pass of one kind: which model it asks (`role`), after which tasks, and how.

    `unit` is what `PassInput.listen` counts: pairs of texts, or texts. `check` raises
    `ConfigError`, before anything is spent, where something else is missing.
    """

    kind: str
    role: str
    compute: Callable[[PassInput], PassResult]
    after: tuple[str, ...] = ()
    check: Callable[[], None] = lambda: None
    unit: str = "pairs"


class OfRecord(Protocol):
    """Anything that belongs to one record."""

    @property
    def id(self) -> str: ...


ItemT = TypeVar("ItemT", bound=OfRecord)
AnswerT = TypeVar("AnswerT")


class PassAnswer(NamedTuple, Generic[ItemT, AnswerT]):
    """The items that a model takes, its answer for them, and `failures` rows of the others."""

    items: list[ItemT]
    answer: AnswerT
    failures: list[dict[str, Any]]


def without_rejected(
    stage: str,
    items: Sequence[ItemT],
    ask: Callable[[list[ItemT]], AnswerT],
    *,
    side: str | None = None,
) -> PassAnswer[ItemT, AnswerT]:
    """Ask a model about items of records; an item that it rejects costs its own record alone.

    The items of all other records are asked about again.
    """
    left, failures = list(items), list[dict[str, Any]]()
    while True:
        try:
            return PassAnswer(left, ask(left), failures)
        except RejectedItemsError as exc:
            rejected = {left[place].id for place in exc.indices}
            row = {"stage": stage, "kind": exc.kind, "message": str(exc), "attempts": 1}
            failures += [{"id": record, "side": side, **row} for record in sorted(rejected)]
            left = [item for item in left if item.id not in rejected]


def asked(
    given: PassInput,
    items: Sequence[ItemT],
    call: Callable[..., AnswerT],
    *texts: Callable[[ItemT], Any],
    side: str | None = None,
) -> PassAnswer[ItemT, AnswerT]:
    """`without_rejected`, where a method of the model takes lists of the items' `texts`."""

    def ask(left: list[ItemT]) -> AnswerT:
        columns = ([text(item) for item in left] for text in texts)
        return call(*columns, on_batch=given.listen(len(left)))

    return without_rejected(given.need.kind, items, ask, side=side)


def truncated(model: Any, items: Sequence[Any]) -> pl.Series:
    """Whether the model read an item in part only; null where it does not tell."""
    tell = getattr(model, "truncates", None)
    told = [None] * len(items) if tell is None else tell(items)
    return pl.Series("truncated", told, dtype=pl.Boolean())


def pass_result(
    table: Table,
    rows: pl.DataFrame,
    failures: list[dict[str, Any]],
    info: ModelInfo,
    **columns: pl.Expr | None,
) -> PassResult:
    """The rows of a pass as its table has them, with these columns and those of the model."""
    typed = typed_rows(table, rows, info, **columns)
    return PassResult({table.name: typed}, FAILURES.frame(failures))


def typed_rows(
    table: Table, rows: pl.DataFrame, info: ModelInfo, **columns: pl.Expr | None
) -> pl.DataFrame:
    """Rows as a table has them: its columns in its order and of its types."""
    model = {name: pl.lit(value) for name, value in info._asdict().items()}
    frame = rows.with_columns(**columns, **model)
    return frame.select(pl.col(name).cast(dtype) for name, dtype in table.schema.items())


class RecordTexts(NamedTuple):
    """Two texts of one record; an index is the text's place on a side that may have several."""

    id: str
    first: str
    second: str
    first_index: int | None
    second_index: int | None


def text_pairs(records: pl.DataFrame, *, first: str, second: str) -> list[RecordTexts]:
    """Every text of one side with every text of the other, record by record; none is blank."""
    firsts, seconds = texts_of(records, first), texts_of(records, second)
    return [
        RecordTexts(record, one, other, place, other_place)
        for record in records["id"]
        for place, one in firsts.get(record, ())
        for other_place, other in seconds.get(record, ())
    ]


def texts_of(records: pl.DataFrame, side: str) -> dict[str, list[tuple[int | None, str]]]:
    """The texts of a side that are not blank, by record, each with its place.

    Places count the blank ones too; there is none on a side that has one text a record.
    """
    all_texts: dict[str, list[str]] = {}
    for item in side_texts(records, (side,)):
        all_texts.setdefault(item.id, []).append(item.text)
    single = side in SIDE_COLUMNS
    return {
        record: [(None if single else i, text) for i, text in enumerate(texts) if text.strip()]
        for record, texts in all_texts.items()
    }


def failed_side(sides: Sequence[str]) -> str | None:
    """The side that a failure is told of, so that it concerns the metrics of that side alone.

    That is the one which may have several texts. None where there is none: a failure between two
    single texts concerns every metric that needs the pass.
    """
    return next((side for side in reversed(sides) if side not in SIDE_COLUMNS), None)


class _Counted(Exception):
    """Ends a pass that is counted; no failure of it."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n


class _NoModel:
    """In the place of a model, which is not asked; what passes look at before they ask."""

    limit = threshold = text_lengths = members = None
    told_of_parts = True
    kind = "nli"

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self._ask

    @staticmethod
    def _ask(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a pass says how many items it has before it asks")


def count_items(
    model_pass: ModelPass,
    need: PassRequirement,
    records: pl.DataFrame,
    read: Callable[[str], pl.DataFrame],
) -> int:
    """The items (`ModelPass.unit`) of a pass on a chunk, whose tasks are done, without a model.

    A pass says how many they are (`listen`) before it asks, so it is run up to that point.
    """

    def listen(n: int) -> NoReturn:
        raise _Counted(n)

    given = PassInput(_NoModel(), need, records, read, frozenset(), listen)
    try:
        model_pass.compute(given)
    except _Counted as counted:
        return counted.n
    return 0
