"""The plan of a run: what its configuration comes to for its records.

`plan_steps` says which tasks and passes the metrics need, `missing` which of them a folder lacks,
and `open_plan` gives the tasks their prompts and providers. From then on the plan is all that a
stage gets of the configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from types import MappingProxyType
from typing import Any

from claimscore.calibration import Calibration
from claimscore.config import (
    LLM_VERIFIER,
    EncoderConfig,
    Granularity,
    LLMConfig,
    RunConfig,
)
from claimscore.errors import ConfigError
from claimscore.metrics import catalogue
from claimscore.metrics.base import SIDES, Metric, PassRequirement, TaskRequirement
from claimscore.metrics.support import BEST, MODEL
from claimscore.pipeline.encoders import check_named
from claimscore.pipeline.llm.providers.base import (
    Provider,
    check_logprobs,
    is_local,
    load_providers,
    provider_class,
)
from claimscore.pipeline.passes import PASSES, ModelPass
from claimscore.pipeline.passes.pair_nli import CLAIM_ENTAILMENT_PASS, ENTAILED_CLAIMS_PASS
from claimscore.pipeline.passes.support import SUPPORT_PASS, calibrated_pass, pass_of
from claimscore.pipeline.passes.text_scores import FACTCC_PASS
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import CONTEXT_FIELDS, WINDOW_TOKENS, Task
from claimscore.pipeline.tasks.verify import VERIFY, calibrated_task, verify_task
from claimscore.prompts import DEFAULT_VERSION, Prompt, load_prompt
from claimscore.prompts.prompt import TEXT_FIELD, TEXTS_FIELD
from claimscore.runs import RunDirectory
from claimscore.tables import REFERENCES_SIDE, SIDE_COLUMNS, SOURCE_SIDE

#: Records that are worked on together, where the user does not say.
CHUNK_RECORDS = 64

#: A short run has so many chunks at least, so that the models begin while answers still come.
LEAST_CHUNKS = 16

#: A long run has so many at most, since each step writes a file for each.
MOST_FILES = 4096


@dataclasses.dataclass(frozen=True)
class PlannedTask:
    """One task with the sides it is done for, its prompt, and how long the texts of a request are.

    `prompt` is None before the plan is open, and for `--units sentences`: the claims are the
    sentences. `window_tokens` and `evidence` are for tasks that ask about long texts.
    """

    task: Task
    sides: tuple[str, ...]
    prompt: Prompt | None = None
    granularity: Granularity = "sentence"
    window_tokens: int = WINDOW_TOKENS
    evidence: str = BEST

    @property
    def step(self) -> str:
        """The name of this work on one chunk in the run directory's manifest."""
        return "-".join((self.task.name, *self.sides))


@dataclasses.dataclass(frozen=True)
class PlannedPass:
    """One model pass over what a metric needs it for."""

    model_pass: ModelPass
    need: PassRequirement

    @property
    def step(self) -> str:
        """The name of this work on one chunk in the run directory's manifest."""
        return self.need.step


@dataclasses.dataclass(frozen=True)
class Plan:
    """The union of what the metrics and tasks of `config` need, each once.

    `providers` are by the tasks that ask one: none before the plan is open, nor a
    calibration.
    """

    config: RunConfig
    metrics: tuple[Metric, ...]
    tasks: tuple[PlannedTask, ...]
    passes: tuple[PlannedPass, ...]
    providers: Mapping[str, Provider] = dataclasses.field(default_factory=dict)
    calibration: Calibration | None = None

    @property
    def asked(self) -> dict[str, Prompt]:
        """The prompts of the tasks that ask a language model."""
        return {p.task.name: p.prompt for p in self.tasks if p.prompt is not None}

    @property
    def text_columns(self) -> list[str]:
        """The columns whose texts the metrics and tasks read."""
        sides = {SIDES.get(name) for metric in self.metrics for name in metric.requires.columns}
        sides |= {side for planned in self.tasks for side in planned.sides}
        return [name for name, side in SIDES.items() if side in sides]

    @property
    def roles(self) -> tuple[str, ...]:
        """The models that the passes ask, each once."""
        return tuple(dict.fromkeys(planned.model_pass.role for planned in self.passes))


@dataclasses.dataclass(frozen=True)
class ChunkTodo:
    """The missing steps of one chunk."""

    chunk: int
    tasks: tuple[PlannedTask, ...] = ()
    passes: tuple[PlannedPass, ...] = ()


def load_metrics(names: Sequence[str], files: Iterable[Path] = ()) -> tuple[Metric, ...]:
    """The metrics by name, each once, in the order given; metric files are run."""
    return catalogue(files).load_all(names)


def plan_steps(config: RunConfig, metrics: Sequence[Metric], columns: Sequence[str]) -> Plan:
    """What the metrics, and the tasks of `config`, need of records that have `columns`.

    Pure: no prompt is read and no model looked for. `ConfigError` where a metric needs what there
    is not, or a task has no column to read.
    """
    how = config.granularity, config.window_tokens, _evidence(metrics, config.encoders)
    metrics = [_deduped(with_verifier(metric, config.encoders), config) for metric in metrics]
    for metric in metrics:
        _refuse_unknown_needs(metric)
    if config.dedupe != "none" and not any("dedupe" in metric.signature_keys for metric in metrics):
        raise ConfigError(f"--dedupe {config.dedupe}: no metric of this run reads claims")
    sides = _task_sides(config, metrics, columns)
    known = TASKS | {VERIFY.name: verify_task(config.encoders)}
    tasks = tuple(
        PlannedTask(known[name], sides[name], None, *how) for name in TASKS if name in sides
    )
    claim_sides = sides.get("decompose", ()) if config.units == "claims" else ()
    return Plan(config, tuple(metrics), tasks, _passes(config.encoders, metrics, claim_sides))


def missing(plan: Plan, directory: RunDirectory) -> Plan:
    """The part of a plan whose steps are not finished in all chunks of a folder.

    What was done with a prompt or a model stays done when these are named no more.
    """
    todo = find_todo(plan, directory, directory.n_chunks, retry_failed=False)
    steps = {planned.step for item in todo for planned in item.passes}
    return only(
        dataclasses.replace(plan, passes=tuple(p for p in plan.passes if p.step in steps)),
        {planned.task.name for item in todo for planned in item.tasks},
    )


def only(plan: Plan, tasks: Collection[str]) -> Plan:
    """The plan with these tasks alone."""
    return dataclasses.replace(plan, tasks=tuple(p for p in plan.tasks if p.task.name in tasks))


def open_plan(plan: Plan, *, asks: bool = True) -> Plan:
    """The plan with the prompts of its tasks and, unless it `asks` nothing, their providers.

    `ConfigError`, before the work makes anything, for a package, a prompt, a task that a language
    model cannot do, and a key.
    """
    config = plan.config
    calibration = Calibration.read(config.calibration) if config.calibration else None
    for metric in plan.metrics:
        metric.check()
    asked = [planned.task.name for planned in plan.tasks]
    if config.units == "sentences" and "decompose" in asked:
        asked.remove("decompose")
    prompts = {name: task_prompt(config, name) for name in asked}
    _refuse_tasks(config.llm, plan.metrics, asked)
    tasks = (dataclasses.replace(p, prompt=prompts.get(p.task.name)) for p in plan.tasks)
    llm = dataclasses.replace(config.llm, offline=config.encoders.offline)
    providers = load_providers(llm, asked) if asks else {}
    plan = dataclasses.replace(plan, tasks=tuple(tasks), providers=providers)
    return plan if calibration is None else _calibrated(plan, calibration)


def _calibrated(plan: Plan, calibration: Calibration) -> Plan:
    """The plan with rows of `support` by a calibration."""
    change, tasks, passes = dataclasses.replace, list(plan.tasks), list(plan.passes)
    for at, task in enumerate(tasks):
        if task.task.name == VERIFY.name:
            tasks[at] = change(task, task=calibrated_task(calibration))
    for at, one in enumerate(passes):
        if one.need.kind == SUPPORT_PASS.kind:
            passes[at] = change(one, model_pass=calibrated_pass(one.model_pass, calibration))
    return change(plan, tasks=tuple(tasks), passes=tuple(passes), calibration=calibration)


def check_models(plan: Plan, done: Container[str]) -> None:
    """`ConfigError` where no option names a model of a plan, but for the roles in `done`."""
    for role in plan.roles:
        if role not in done:
            check_named(role, plan.config.encoders)


def with_verifier(metric: Metric, encoders: EncoderConfig) -> Metric:
    """The metric as this run does it: with `--verifier llm` the task `verify` is asked in the place
    of the pass `support`, or beside it. `ConfigError` where the metric wants texts read in another
    way."""
    needs = [need for need in metric.requires.passes if need.kind == SUPPORT_PASS.kind]
    whole = any(need.kind == FACTCC_PASS.kind for need in metric.requires.passes)
    asks_llm = LLM_VERIFIER in encoders.verifiers
    if whole and (asks_llm or len(encoders.verifiers) > 1):
        raise ConfigError(
            f"metric {metric.name}: --verifier {encoders.verifier} judges claims; name one model "
            "of two labels, as in --verifier manueldeprada/FactCC"
        )
    if not (asks_llm and needs):
        return metric
    for text, _ in (need.over for need in needs):
        if text.split(".")[1] != MODEL:
            raise ConfigError(
                f"metric {metric.name}: read says how other verifiers read; leave it out with "
                "--verifier llm, which reads windows of --window-tokens"
            )
    requires = dataclasses.replace(
        metric.requires,
        tasks=(
            *metric.requires.tasks,
            TaskRequirement(VERIFY.name, tuple(need.sides[-1] for need in needs)),
        ),
        passes=tuple(
            need for need in metric.requires.passes if encoders.judges or need not in needs
        ),
    )
    return dataclasses.replace(metric, requires=requires)


def _evidence(metrics: Sequence[Metric], encoders: EncoderConfig) -> str:
    """What of long texts the task `verify` asks about, as the metrics say; `ConfigError` where they
    differ, since it asks once."""
    needs = [need for metric in metrics for need in metric.requires.passes]
    overs = [need.over[0] for need in needs if need.kind == SUPPORT_PASS.kind]
    asked = {f"{over}.{BEST}".split(".")[2] for over in overs}
    if len(asked) > 1 and LLM_VERIFIER in encoders.verifiers:
        raise ConfigError("--verifier llm: name metrics of one evidence, best or all")
    return max(asked, default=BEST)


def _deduped(metric: Metric, config: RunConfig) -> Metric:
    """The metric as `--dedupe` has it: one that reads claims waits for the pass over them."""
    sides = {
        side for need in metric.requires.tasks if need.task == "decompose" for side in need.sides
    }
    if config.dedupe == "none" or not sides:
        return metric
    passes = (PassRequirement(ENTAILED_CLAIMS_PASS.kind, (side,)) for side in sorted(sides))
    requires = dataclasses.replace(metric.requires, passes=(*metric.requires.passes, *passes))
    keys = (*metric.signature_keys, "dedupe")
    return dataclasses.replace(metric, requires=requires, signature_keys=keys)


def needs_of(metric: Metric) -> list[str]:
    """What a metric still needs on this machine without any option: an LLM, models, packages."""
    needs = []
    tasks = list(sides_of_tasks(metric.requires.tasks))
    default = provider_class(LLMConfig().family)
    beyond = [name for name in tasks if name not in (default.tasks or tasks)]
    if beyond:
        needs.append(f"a language model (--llm) for {', '.join(beyond)}")
    roles = [PASSES[need.kind].role for need in metric.requires.passes]
    checks: list[Callable[[], object]] = [
        *(PASSES[need.kind].check for need in metric.requires.passes),
        *(functools.partial(check_named, role, EncoderConfig()) for role in roles),
        metric.check,
    ]
    if able := [name for name in tasks if name not in beyond]:
        checks.append(functools.partial(default.check_tasks, able))
    for check in checks:
        try:
            check()
        except ConfigError as exc:
            needs.append(str(exc).removeprefix(f"metric {metric.name} needs "))
    return list(dict.fromkeys(needs))


def refuse_unused(plan: Plan) -> None:
    """`ConfigError` where a prompt or a model was chosen for a task that the run never asks."""
    config = plan.config
    chosen = [(task, f"--prompt {task}={prompt}") for task, prompt in config.prompts.items()]
    chosen += [(task, f"--llm {task}={config.llm.of(task).model}") for task in config.llm.by_task]
    kinds = (*(planned.need.kind for planned in plan.passes), *plan.asked)
    if plan.calibration and not {SUPPORT_PASS.kind, VERIFY.name}.intersection(kinds):
        raise ConfigError("--calibration: no metric of this run judges claims")
    for task, option in chosen:
        if task not in plan.asked:
            raise ConfigError(
                f"{option}: this run has no task {task}; its tasks, by --metrics, --tasks and "
                f"--units: {', '.join(plan.asked) or 'none'}"
            )


def _refuse_unknown_needs(metric: Metric) -> None:
    """`ConfigError` where a metric asks for a task, a pass or a side that there is not."""
    sides = dict.fromkeys((*SIDE_COLUMNS, *SIDES.values()))
    asked: list[tuple[str, str, Iterable[str]]] = [
        *(("task", need.task, TASKS) for need in metric.requires.tasks),
        *(("pass", need.kind, PASSES) for need in metric.requires.passes),
        *(("side", side, sides) for need in metric.requires.tasks for side in need.sides),
        *(("side", side, sides) for need in metric.requires.passes for side in need.sides),
    ]
    for what, name, known in asked:
        if name not in known:
            raise ConfigError(
                f"metric {metric.name} needs the {what} {name}, which there is not; "
                f"known: {', '.join(known)}"
            )


def _refuse_tasks(llm: LLMConfig, metrics: Sequence[Metric], names: Sequence[str]) -> None:
    """`ConfigError` where a language model would be asked for tasks that it cannot do."""
    by_family: dict[str, list[str]] = {}
    for name in names:
        by_family.setdefault(llm.of(name).family, []).append(name)
    for family, tasks in by_family.items():
        vendor = provider_class(family)
        beyond = [name for name in tasks if name not in (vendor.tasks or tasks)]
        asking = [m.name for m in metrics if any(need.task in beyond for need in m.requires.tasks)]
        try:
            vendor.check_tasks(tasks)
        except ConfigError as exc:
            where = f"{', '.join(asking) or '--tasks'}: " if beyond else ""
            raise ConfigError(f"{where}{exc}") from None


def task_prompt(config: RunConfig, name: str) -> Prompt:
    """The prompt that a task uses in this run, checked against what the task offers and reads."""
    defaults = provider_class(config.llm.of(name).model).prompts
    chosen = config.prompts.get(name) or defaults.get(name, DEFAULT_VERSION)
    prompt = load_prompt(name, chosen, config.prompts_dir)
    if name == VERIFY.name:
        prompt = prompt.sampled(config.verify_samples)
    where = f"--prompt {name}={chosen}"
    for problem in prompt_problems(TASKS[name], prompt):
        raise ConfigError(f"{where}: {problem}")
    family = config.llm.of(name).family
    if prompt.label_words and not is_local(family):
        check_logprobs(family, f"{where}: its [label_words]")
    return prompt


def _passes(
    encoders: EncoderConfig, metrics: Sequence[Metric], claim_sides: Sequence[str]
) -> tuple[PlannedPass, ...]:
    """The passes that the metrics need, each once, in the order of `PASSES`, with the model that
    does its role's work.

    Where one of them asks the NLI model, it is asked about the claims of each side too.
    """
    passes = {
        kind: dataclasses.replace(one, role=encoders.role_of(one.role))
        for kind, one in (PASSES | {SUPPORT_PASS.kind: pass_of(encoders)}).items()
    }
    needs = dict.fromkeys(need for metric in metrics for need in metric.requires.passes)
    check = CLAIM_ENTAILMENT_PASS
    if any(passes[need.kind].role == check.role for need in needs):
        needs |= dict.fromkeys(PassRequirement(check.kind, (side,)) for side in claim_sides)
    return tuple(
        PlannedPass(model_pass, need)
        for kind, model_pass in passes.items()
        for need in needs
        if need.kind == kind
    )


def _task_sides(
    config: RunConfig, metrics: Sequence[Metric], columns: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """For each task that is needed, the sides it is needed for, in a fixed order."""
    needs = [need for metric in metrics for need in metric.requires.tasks]
    for name in config.tasks:
        sides_here = TASKS[name].sides_in(columns)
        if not sides_here:
            raise ConfigError(f"--tasks {name}: the records have no column it can read")
        needs.append(TaskRequirement(name, sides_here))
    order = (*SIDE_COLUMNS, SOURCE_SIDE, REFERENCES_SIDE)
    return {
        name: tuple(side for side in order if side in sides)
        for name, sides in sides_of_tasks(needs).items()
    }


def sides_of_tasks(needs: Iterable[TaskRequirement]) -> dict[str, dict[str, None]]:
    """The sides of each task that is needed, also by another one that waits for it."""
    sides: dict[str, dict[str, None]] = {}
    for need in needs:
        sides.setdefault(need.task, {}).update(dict.fromkeys(need.sides))
    for name in reversed(TASKS):
        for before in TASKS[name].after if name in sides else ():
            sides.setdefault(before, {}).update(sides[name])
    return sides


def prompt_problems(task: Task, prompt: Prompt) -> Iterator[str]:
    """Every reason why the task cannot use the prompt."""
    text = TEXTS_FIELD if prompt.takes_several else TEXT_FIELD
    offered = [
        text if field == TEXT_FIELD else field
        for field in task.fields
        if not (prompt.takes_several and field in CONTEXT_FIELDS)
    ]
    try:
        prompt.check_fields(offered, "")
    except ConfigError as exc:
        yield str(exc).removeprefix(": ")
    for field in offered[: task.n_required]:
        if field not in prompt.fields:
            yield f"the prompt never uses ${field}"
    if prompt.label_words and task.labels:
        if prompt.label_words.keys() != set(task.labels):
            named = " and ".join(task.labels), " and ".join(prompt.label_words)
            yield f"[label_words] must be of {named[0]}, not of {named[1]}"
    elif not task.takes(prompt.output):
        more = f", or with {json.dumps(task.optional)}" if task.optional else ""
        shown = json.dumps(task.output), json.dumps(prompt.output)
        yield f"[output] must be {shown[0]}{more}, not {shown[1]}"
    if prompt.explode:
        yield "explode: a task has no lists to ask about; claimscore map has"
    if prompt.takes_several and not task.several:
        yield (
            f"$texts: {task.name} asks about one text at a time; several may be asked about by "
            f"{_those('several')}"
        )
    if max(prompt.settings.samples, prompt.summary_settings.samples) > 1 and not task.samples:
        yield (
            f"settings.samples: {task.name} makes the one set of rows that metrics read; several "
            f"samples may have {_those('samples')}"
        )


def _those(ability: str) -> str:
    return ", ".join(name for name, task in TASKS.items() if getattr(task, ability))


# Chunks


def with_chunk_size(
    config: RunConfig, n_records: int, stored: Mapping[str, Any] = MappingProxyType({})
) -> RunConfig:
    """The settings with a number of records a chunk: that of the folder's `stored` settings, the
    user's, or one that suits so many records.

    A model on this machine answers at once, so nothing is gained there by small chunks.
    """
    if config.chunk_records:
        return config
    size = max(CHUNK_RECORDS, -(-n_records // MOST_FILES))
    llm = config.llm
    if not all(is_local(llm.of(task).family) for task in ("", *llm.by_task)):
        size = min(size, max(1, -(-n_records // LEAST_CHUNKS)))
    return dataclasses.replace(config, chunk_records=stored.get("chunk_records", size))


def find_todo(
    plan: Plan, directory: RunDirectory, n_chunks: int, retry_failed: bool
) -> list[ChunkTodo]:
    """The chunks with missing steps, in order.

    With `retry_failed`, the steps that left failures are forgotten first, and with them
    the steps that were made from their rows.
    """
    todo = []
    for chunk in range(n_chunks):
        if retry_failed:
            _forget_failed(plan, directory, chunk)
        item = _chunk_todo(plan, directory, chunk)
        if item.tasks or item.passes:
            todo.append(item)
    return todo


def _chunk_todo(plan: Plan, directory: RunDirectory, chunk: int) -> ChunkTodo:
    steps = directory.manifest.steps(chunk)
    return ChunkTodo(
        chunk,
        tuple(part for task in plan.tasks if (part := _missing_sides(task, steps))),
        tuple(planned for planned in plan.passes if planned.step not in steps),
    )


def in_turn(todo: Sequence[ChunkTodo]) -> Iterator[list[ChunkTodo]]:
    """The work in parts, each done for all chunks before the next one: at last the tasks that read
    what model passes made."""
    for is_last in (False, True):
        part = list[ChunkTodo]()
        for item in todo:
            tasks = tuple(p for p in item.tasks if bool(PASSES.keys() & p.task.after) == is_last)
            passes = () if is_last else item.passes
            part += [ChunkTodo(item.chunk, tasks, passes)] if tasks or passes else []
        if part:
            yield part


def waves(tasks: Sequence[PlannedTask]) -> Iterator[list[PlannedTask]]:
    """The tasks in groups, each after those whose rows it reads."""
    left = list(tasks)
    while left:
        names = {planned.task.name for planned in left}
        ready = [planned for planned in left if not names.intersection(planned.task.after)]
        yield ready
        left = [planned for planned in left if planned not in ready]


def sides_done(task: str, steps: Iterable[str]) -> set[str]:
    """The sides that finished steps of a task cover."""
    works = (step.split("-") for step in steps)
    return {side for work, *sides in works if work == task for side in sides}


def _missing_sides(planned: PlannedTask, steps: frozenset[str]) -> PlannedTask | None:
    """The task for the sides that no finished step covers; None where all are covered."""
    done = sides_done(planned.task.name, steps)
    sides = tuple(side for side in planned.sides if side not in done)
    return dataclasses.replace(planned, sides=sides) if sides else None


def _forget_failed(plan: Plan, directory: RunDirectory, chunk: int) -> None:
    stages = set(directory.read("failures", chunk)["stage"].unique())
    if not stages:
        return
    for planned in plan.tasks:
        if stages.intersection(planned.task.after):
            stages.add(planned.task.name)
    for planned_pass in plan.passes:
        if stages.intersection(planned_pass.model_pass.after):
            stages.add(planned_pass.model_pass.kind)
    for step in directory.manifest.steps(chunk):
        if step.partition("-")[0] in stages:
            directory.invalidate({step: [chunk]})
