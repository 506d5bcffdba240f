"""What does the missing steps of a run: one process, or a cluster; and what both need for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.encoders.devices import Models
from claimscore.pipeline.encoders.store import StoreStats, open_store
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.plan import Plan
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.watchdog import Watchdog, engine_watchdog
from claimscore.types import JSON


class Runner(Protocol):
    """Does what is missing of the chunks that it was made for."""

    def load_models(self) -> JSON:
        """Have the models that a missing step needs at hand, and say what is known of them only
        then, as `model_settings` does. Before the LLM stage, so that a wrong name costs nothing.
        """

    async def run(self) -> None:
        """Do the missing steps, until they are done or something stops them; it raises then."""


def missing_roles(plan: Plan, todo: Sequence[ChunkTodo]) -> list[str]:
    """The models that missing passes ask; `ConfigError` where a pass cannot be done here."""
    passes = {planned.model_pass for item in todo for planned in item.passes}
    for model_pass in passes:
        model_pass.check()
    roles = {model_pass.role for model_pass in passes}
    return [role for role in plan.roles if role in roles]


def with_store(
    copies: Sequence[Models], cache_dir: Path | None, on_notice: Callable[[str], None]
) -> tuple[list[Models], StoreStats]:
    """The models, on each device, with what they said in other runs at hand."""
    store = open_store(cache_dir, on_notice=on_notice)
    around: list[Models] = [
        {role: store.around(model) for role, model in models.items()} for models in copies
    ]
    return around, store.stats


def watch(
    llm: LLMConfig,
    progress: Progress,
    *,
    waiting_for: Callable[[], str],
    tell: Callable[..., None],
    fail: Callable[[StoppedEarly], None],
    background: TaskGroup,
) -> Watchdog:
    """Notices a run in which nothing happens any more, says what it waits for, ends it."""
    return engine_watchdog(
        llm,
        progress_mark=progress.mark,
        waiting_for=waiting_for,
        tell=lambda message: tell("hung", notice=message),
        fail=fail,
        background=background,
    )


def refuse_all_too_long(stats: EngineStats) -> None:
    """`ConfigError` where no request at all fitted the model."""
    if stats.all_too_long:
        raise ConfigError("every request is too long for the model; see failures/")
