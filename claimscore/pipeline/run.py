"""A run from input to scores. Running again is resuming."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from claimscore import __version__
from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import catalogue
from claimscore.metrics.base import Metric
from claimscore.metrics.catalogue import Catalogue
from claimscore.pipeline.estimate import Estimate, estimate_left
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, read_ledger
from claimscore.pipeline.llm.providers.base import is_local, provider_class
from claimscore.pipeline.llm.session import why_not_asked
from claimscore.pipeline.model_stage import ModelPool, local_models, remember_paces
from claimscore.pipeline.notices import notices
from claimscore.pipeline.plan import (
    ChunkTodo,
    Plan,
    check_models,
    find_todo,
    in_turn,
    missing,
    open_plan,
    plan_steps,
    refuse_unused,
    with_chunk_size,
)
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.ray import check_ray
from claimscore.pipeline.reading import (
    check_columns,
    copy_records,
    read_records,
    with_metrics,
)
from claimscore.pipeline.repair import repair
from claimscore.pipeline.scoring import (
    count_claim_checks,
    failed,
    gates,
    limits_of,
    score_run,
    truncations,
)
from claimscore.pipeline.settings import (
    CALLED,
    add_settings,
    as_made,
    input_name,
    result_settings,
    signature_facts,
    stored_plan,
    unused_settings,
    with_dtype,
)
from claimscore.pipeline.stages import missing_roles, run_stages
from claimscore.pipeline.supervision import run_blocking, signals_held
from claimscore.records.dataset import open_input
from claimscore.records.text_checks import check_texts
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.stats.gates import Gate
from claimscore.types import JSON

#: With more stored results than this share of the computed ones a run tells no model's pace.
STORED_SHARE = 0.1

OnProgress = Callable[[Progress], None]
OnEstimate = Callable[[Plan, Estimate], None]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a finished run: the content of `summary.json`."""

    out: Path | str
    summary: JSON

    @property
    def failed_records(self) -> int:
        failed: int = self.summary["records"]["failed"]
        return failed

    @property
    def gates(self) -> list[Gate]:
        """The limits of `fail_under` and `fail_over`, judged."""
        return [Gate(**gate) for gate in self.summary.get("gates", ())]


def run(
    config: RunConfig,
    *,
    stdin: BinaryIO | None = None,
    on_estimate: OnEstimate | None = None,
    on_progress: OnProgress | None = None,
) -> RunResult:
    """Score the records of `config.input` into the folder `config.out`.

    Finished parts are kept: after an interrupt, a crash or a kill, the same call goes on
    where it was and asks no LLM for what it already answered. `on_estimate` hears, before
    anything is sent, what will be asked and what it may cost, answers in the cache taken off;
    it is not called where no LLM is needed or nothing is missing. Raises `ConfigError` for
    wrong input or settings (before anything is spent) and `StoppedEarly` when stopped.
    """
    if config.metrics == () and not config.tasks:
        raise ConfigError("nothing to do: name --metrics or --tasks")
    check_ray(config)
    provider_class(config.llm.model)  # before the input is read
    known = catalogue(config.metric_files)
    known.load_all(config.metrics or ())  # an unknown name is refused before a folder is made
    reporter = ProgressReporter(Progress(), on_progress)
    with RunDirectory(config.out, reporter.notice) as directory:
        repair(directory, reporter)
        reporter.phase("reading", directory)
        files = open_input(config.input, spool=directory.state, stdin=stdin)
        config, chosen = with_metrics(config, files)
        if chosen:
            reporter.notice(chosen)
        config, metrics = _with_earlier_metrics(config, known, directory)
        done = directory.settings.get("additive", {})
        dataset = read_records(config, metrics, files)
        config = with_chunk_size(config, dataset.n_records, directory.settings)
        plan = plan_steps(config, metrics, list(dataset.columns))
        words = {name: n for name, n in dataset.null_words.items() if name in plan.text_columns}
        if words:
            said = (f"{n.total():,} in {name} ({', '.join(n)})" for name, n in words.items())
            reporter.notice(f"words for a missing text, read as none: {', '.join(said)}")
        check_models(plan, done)
        plan = open_plan(plan)
        refuse_unused(plan)
        records: JSON = {"digest": dataset.digest, "count": dataset.n_records}
        directory.forget_settings(unused_settings(directory))
        work = _Work.begin(plan, directory, records, reporter)
        directory.write_plan(stored_plan(plan, input_name(config.input)))
        copy_records(dataset, config.chunk_records, directory)
        todo = work.todo()
        if todo and not all(is_local(provider.family) for provider in plan.providers.values()):
            for check in work.text_checks:  # before they are paid for
                reporter.notice(f"texts {check['text']}")
        work.estimate(todo, on_estimate)
        return work.finish(todo)


def score(
    config: RunConfig,
    *,
    on_estimate: OnEstimate | None = None,
    on_progress: OnProgress | None = None,
) -> RunResult:
    """Add the metrics of `config` to the run in `config.out`: only the stages that are missing are
    done, the rest is read.

    Records and the fields `OF_THE_RUN` are those of the folder. Models, servers and files are those
    of `config` alone; where work that is missing needs others than the run was made with, the
    `ConfigError` names their options. `on_estimate` hears what will be asked. Raises as `run`
    does.
    """
    if not config.metrics:
        raise ConfigError("nothing to do: name --metrics")
    check_ray(config)
    known = catalogue(config.metric_files)
    known.load_all(config.metrics)
    RunDirectory.reader(config.out)  # a folder that is none of a run is not made one
    reporter = ProgressReporter(Progress(), on_progress)
    with RunDirectory(config.out, reporter.notice) as directory:
        directory.check_read()
        with damage_as_error(directory.name):
            config = as_made(config, directory.settings)
            records, stored = directory.settings["records"], directory.plan()
            config = dataclasses.replace(config, input=str(stored["input"]))
        config, metrics = _with_earlier_metrics(config, known, directory)
        plan = plan_steps(config, metrics, directory.read("records", 0).columns)
        with damage_as_error(directory.name):
            check_columns(directory, metrics)
        plan = open_plan(missing(plan, directory))
        settings, steps = directory.settings, directory.manifest.all_steps()
        try:
            work = _Work.begin(plan, directory, records, reporter)
            with damage_as_error(directory.name):
                directory.write_plan(stored_plan(plan, config.input, stored))
            todo = work.todo()
            work.estimate(todo, on_estimate)
            return work.finish(todo)
        except ConfigError:
            if directory.manifest.all_steps() == steps:  # refused, as for a wrong model
                directory.replace_settings(settings)
                directory.write_plan(stored)
            raise


def _with_earlier_metrics(
    config: RunConfig, known: Catalogue, directory: RunDirectory
) -> tuple[RunConfig, tuple[Metric, ...]]:
    """The metrics that the folder has scores of, and those asked for now: none is dropped, and
    claims that `--dedupe` left out once stay so.

    `ConfigError` where one is in a file that is not named now, or has an option whose value is any
    text, such as a file of weights: a run directory names neither.
    """
    earlier = directory.settings.get("additive", {}).get("metrics", ())
    for name in earlier:
        if not known.has(name):
            raise ConfigError(
                f"{directory.name} has scores of the metric {name}, which is in a file of your "
                "own: name it with --metric-file"
            )
        texts = [option.name for option in known.options(name) if option.values is None]
        named = [text for text in texts if f":{text}=" in name]
        if named and name not in (config.metrics or ()):
            raise ConfigError(
                f"{directory.name} has scores of the metric {name}: name it with --metrics too, "
                f"since its {named[0]} may be a file"
            )
    wanted = tuple(dict.fromkeys((*earlier, *(config.metrics or ()))))
    metrics = known.load_all(wanted)
    limits_of(config, metrics)
    dedupe = directory.settings.get("additive", {}).get("texts", {}).get("dedupe", config.dedupe)
    return dataclasses.replace(config, metrics=wanted, dedupe=dedupe), metrics


@dataclasses.dataclass(frozen=True)
class _Work:
    """One invocation: what it is to do, and in which folder."""

    plan: Plan
    directory: RunDirectory
    n_records: int
    reporter: ProgressReporter[Progress]

    @classmethod
    def begin(
        cls,
        plan: Plan,
        directory: RunDirectory,
        records: Mapping[str, Any],
        reporter: ProgressReporter[Progress],
    ) -> _Work:
        """Compare the settings of an open plan with the folder's, and store them."""
        limits_of(plan.config, plan.metrics, records["count"])
        plan = with_dtype(plan, directory.settings)
        directory.check_settings(result_settings(plan, records), CALLED)
        return cls(plan, directory, records["count"], reporter)

    @property
    def config(self) -> RunConfig:
        return self.plan.config

    @functools.cached_property
    def text_checks(self) -> list[JSON]:
        """What is odd about the texts that are read."""
        return check_texts(self.directory.scan("records"), self.plan.text_columns)

    def todo(self) -> list[ChunkTodo]:
        """The chunks with missing steps."""
        directory = self.directory
        if "id" not in directory.read("records", 0).columns:
            raise ConfigError(f"{directory.name}: its records have no ids; name another --out")
        return find_todo(self.plan, directory, directory.n_chunks, self.config.retry_failed)

    def estimate(self, todo: list[ChunkTodo], on_estimate: OnEstimate | None) -> None:
        """Say what will be asked; `ConfigError`, before models are loaded, where none of it can be.

        Without a listener it is counted only where a key or a price is missing.
        """
        plan = self.plan
        if not (plan.providers and todo):
            return
        obstacle = why_not_asked(plan.config.llm, plan.providers)
        if on_estimate is None and obstacle is None:
            return
        self.reporter.phase("counting", self.directory)
        left = estimate_left(plan, self.directory, self.n_records, todo)
        if obstacle is not None and left.requests:
            raise obstacle
        if on_estimate is not None:
            on_estimate(plan, left)
        progress = self.reporter.progress
        progress.requests_expected, progress.model_s_expected = left.requests, left.model_s

    def finish(self, todo: list[ChunkTodo]) -> RunResult:
        """Do what is missing, then score everything."""
        directory, progress = self.directory, self.reporter.progress
        progress.records_total = self.n_records
        progress.chunk_records = self.config.chunk_records
        n_asked = sum(bool(item.tasks) for part in in_turn(todo) for item in part)
        progress.llm_chunks_todo = progress.llm_chunks_done + n_asked
        judged = {item.chunk for item in todo if item.passes}
        progress.model_chunks_todo = progress.model_chunks_done + len(judged)
        parts = [part for part in directory.manifest.parts("records") if part.chunk in judged]
        progress.weights = {part.chunk: part.checksum.size for part in parts}
        roles = missing_roles(self.plan, todo)
        open_models: Callable[..., AbstractContextManager[ModelPool]] = local_models
        if self.config.engine == "ray" and roles:
            from claimscore.pipeline.ray.model_workers import ray_models as open_models
        with open_models(self.config, directory, roles, self.reporter) as models:
            if self.plan.calibration is not None:
                self.plan.calibration.refuse_other(directory.settings["additive"])
            directory.event("started", records=self.n_records, chunks_todo=len(todo))
            if todo:
                self._run_stages(todo, models)
        self._remember_paces()
        self.reporter.phase("scoring", directory)
        with damage_as_error(directory.name):
            facts = signature_facts(directory.settings)
        scores = score_run(directory, self.plan.metrics, facts, self.config.seed)
        add_settings(directory, {"metrics": list(scores)})
        summary = self._summary(scores)
        if limits := limits_of(self.config, self.plan.metrics):
            summary["gates"] = [
                gate._asdict()
                for gate in gates(directory, limits, self.plan.metrics, self.config.seed)
            ]
        directory.write_summary(summary)
        directory.event("finished", **spent(progress))
        self.reporter.phase("done", directory)
        return RunResult(self.config.out, summary)

    def _remember_paces(self) -> None:
        """Not of Ray's machines, nor where stored results took the place of much work."""
        progress = self.reporter.progress
        store = progress.store
        is_stored = store is not None and store.found > STORED_SHARE * store.computed
        if self.config.engine == "local" and not is_stored:
            roles = {planned.step: planned.model_pass.role for planned in self.plan.passes}
            remember_paces(progress.passes, roles, self.config.encoders)

    def _run_stages(self, todo: list[ChunkTodo], models: ModelPool) -> None:
        progress = self.reporter.progress
        with self.reporter.running(self.directory, lambda: spent(progress)), signals_held():
            run_blocking(run_stages, self.plan, self.directory, todo, models, self.reporter)

    def _summary(self, scores: dict[str, JSON]) -> JSON:
        failing = failed(self.directory)
        progress = self.reporter.progress
        support, calibration = self.directory.settings["additive"].get("support", {}), {}
        if "threshold" in support:  # `score` goes on without the file
            name = getattr(self.config.calibration, "name", support["calibration"])
            calibration["calibration"] = f"{name}: supported from {support['threshold']:.2f} on"
        return {
            "claimscore": __version__,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "input": input_name(self.config.input),
            "records": {
                "total": self.n_records,
                "done": self.n_records - failing.records,
                "failed": failing.records,
            },
            "metrics": scores,
            "columns": self.plan.text_columns,
            "failures": failing.by_kind,
            "truncated": truncations(self.directory, self.plan.metrics),
            "text_checks": self.text_checks,
            "claim_checks": count_claim_checks(self.directory),
            "notices": list(notices(self.directory)),
            **calibration,
            "spent": read_ledger(self.directory.state / SPEND_FILE)[0].to_json(),
            "last_call": {
                "seconds": round(progress.elapsed_s, 3),
                **spent(progress),
                "passes": {
                    step: dataclasses.asdict(work) for step, work in progress.passes.items()
                },
            },
        }


def spent(progress: Progress) -> JSON:
    """The requests, tokens and model work of this call."""
    return {
        **progress.spent(),
        "nli_pairs": progress.pairs_done,
        "model_items": {
            "computed": progress.store.computed if progress.store else None,
            "stored": progress.store.found if progress.store else None,
        },
    }
