"""The plan of a run: its metrics, and so its tasks on their sides and its model passes."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from claimscore.config import (
    BATCH,
    LLM_VERIFIER,
    TASK_NAMES,
    EncoderConfig,
    LLMConfig,
    RunConfig,
)
from claimscore.errors import ConfigError, refuse_all
from claimscore.metrics import catalogue
from claimscore.metrics.base import SIDES, Metric, PassRequirement, TaskRequirement
from claimscore.metrics.support import MODEL
from claimscore.pipeline.encoders import check_named
from claimscore.pipeline.llm.providers.base import (
    PROVIDERS,
    Provider,
    check_logprobs,
    is_local,
    load_providers,
    provider_class,
)
from claimscore.pipeline.passes import PASSES, ModelPass
from claimscore.pipeline.passes.pair_nli import CLAIM_ENTAILMENT_PASS
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.pipeline.passes.text_scores import FACTCC_PASS
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import WINDOW_TOKENS, Task
from claimscore.pipeline.tasks.verify import VERIFY
from claimscore.prompts import DEFAULT_VERSION, Prompt, load_prompt
from claimscore.prompts.prompt import TEXT_FIELD, TEXTS_FIELD
from claimscore.records.columns import ALTERNATIVES, likely_columns
from claimscore.records.dataset import Dataset, MissingColumnsError, Required, Selection, prepare
from claimscore.tables import REFERENCES_SIDE, SIDE_COLUMNS, SOURCE_SIDE


@dataclasses.dataclass(frozen=True)
class PlannedTask:
    """One task with the prompt it uses and the sides it is done for.

    `prompt` is None for `--units sentences`: the claims are the sentences; and for a task
    that is finished. `window_tokens` is for tasks that ask about windows of long texts.
    """

    task: Task
    prompt: Prompt | None
    sides: tuple[str, ...]
    window_tokens: int = WINDOW_TOKENS

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
    """The union of what the chosen metrics and tasks need, each once."""

    metrics: tuple[Metric, ...]
    tasks: tuple[PlannedTask, ...]
    passes: tuple[PlannedPass, ...]

    @property
    def asked(self) -> dict[str, Prompt]:
        """The prompts of the tasks that ask a language model."""
        return {p.task.name: p.prompt for p in self.tasks if p.prompt is not None}

    @property
    def other_models(self) -> tuple[tuple[str, str], ...]:
        """Tasks with the language models that their prompts name in the place of theirs."""
        return tuple((task, m) for task, prompt in self.asked.items() for m in other_models(prompt))

    @property
    def roles(self) -> tuple[str, ...]:
        """The models that the passes ask, each once."""
        return tuple(dict.fromkeys(planned.model_pass.role for planned in self.passes))


def load_metrics(names: Sequence[str], files: Iterable[Path] = ()) -> tuple[Metric, ...]:
    """The metrics by name, each once, in the order given; metric files are run."""
    return catalogue(files).load_all(names)


def required_columns(metrics: Sequence[Metric]) -> dict[str, tuple[str, ...]]:
    """The columns of the records that each metric needs."""
    return {metric.name: metric.requires.columns for metric in metrics}


def selection_of(config: RunConfig) -> Selection:
    """Which records of the input a run reads, and under which names."""
    return Selection(config.columns, config.limit, config.strip_html)


def read_records(
    config: RunConfig, required: Required, spool: Path, stdin: BinaryIO | None
) -> Dataset:
    """Validate the input of a run; where it lacks columns, the error says which metrics fit."""
    selection = selection_of(config)
    try:
        return prepare(
            config.input, spool=spool, required=required, stdin=stdin, selection=selection
        )
    except MissingColumnsError as exc:
        if exc.is_slip:
            raise
        fitting = _fitting(config, exc.names)
        raise MissingColumnsError(f"{exc}{fitting}", exc.names, is_slip=False) from None


def _fitting(config: RunConfig, names: Sequence[str]) -> str:
    """The metrics that these columns are enough for, also under their likely other names."""
    likely = likely_columns(names)
    known = catalogue(config.metric_files)
    needed: dict[str, set[str]] = {}
    for name in known.names():
        taken: set[str] = set()
        for column in known.load(name).requires.columns:
            accepted = ALTERNATIVES.get(column, (column,))
            taken.update([c for c in accepted if c in names or c in likely][:1] or ["?"])
        if "?" not in taken:
            needed[name] = taken - set(names)
    if not needed:
        return "; no metric fits these columns (claimscore metrics list)"
    renamed = sorted({column for columns in needed.values() for column in columns})
    pairs = ",".join(f"{column}={likely[column]}" for column in renamed)
    how = f" with --columns {pairs} (Python: columns=)" if pairs else ""
    return f"; metrics that fit{how}: {', '.join(needed)}"


def make_plan(
    config: RunConfig,
    columns: Sequence[str],
    metrics: Sequence[Metric] | None = None,
    asked: Collection[str] = TASK_NAMES,
) -> Plan:
    """The plan for records that have `columns`; `ConfigError` where a metric lacks something.

    `metrics` are those of the run, where the caller has loaded them already. Tasks that are not
    `asked`, because all of their answers are there, need no prompt and get none.
    """
    if metrics is None:
        metrics = load_metrics(config.metrics, config.metric_files)
    metrics = [with_verifier(metric, config.encoders) for metric in metrics]
    refuse_all(functools.partial(_refuse_unknown_needs, metric) for metric in metrics)
    sides = _task_sides(config, metrics, columns)
    tasks: list[PlannedTask] = []

    def add(name: str) -> None:
        prompt = _prompt_or_none(config, name) if name in asked else None
        tasks.append(PlannedTask(TASKS[name], prompt, sides[name], config.window_tokens))

    names = [name for name in TASKS if sides.get(name)]
    claim_sides = sides.get("decompose", ()) if config.units == "claims" else ()
    passes = _passes(config.encoders, metrics, claim_sides)
    refuse_all(
        [
            *(metric.check for metric in metrics),
            *(functools.partial(add, name) for name in names),
            lambda: _refuse_tasks(config.llm, metrics, [p.task.name for p in tasks if p.prompt]),
        ]
    )
    return Plan(tuple(metrics), tuple(tasks), passes)


def with_verifier(metric: Metric, encoders: EncoderConfig) -> Metric:
    """The metric as this run does it: with `--verifier llm` the task `verify` is asked in the place
    of the pass `support`. `ConfigError` where the metric wants texts read in another way."""
    needs = [need for need in metric.requires.passes if need.kind == SUPPORT_PASS.kind]
    whole = any(need.kind == FACTCC_PASS.kind for need in metric.requires.passes)
    if encoders.verifier == LLM_VERIFIER and whole:
        raise ConfigError(
            f"metric {metric.name}: --verifier llm judges claims; name a model of two labels, as "
            "in --verifier manueldeprada/FactCC"
        )
    if encoders.verifier != LLM_VERIFIER or not needs:
        return metric
    for text, _ in (need.over for need in needs):
        if not text.endswith(f".{MODEL}"):
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
        passes=tuple(need for need in metric.requires.passes if need not in needs),
    )
    return dataclasses.replace(metric, requires=requires)


def plan_run(
    config: RunConfig,
    metrics: Sequence[Metric],
    columns: Sequence[str],
    has_model: Container[str] = (),
    lacking: ConfigError | None = None,
) -> tuple[Plan, dict[str, Provider]]:
    """The plan of a run of these metrics, and the providers of the tasks that ask one.

    `Obstacles` with all that keeps the run from beginning, before it makes anything: columns
    (`lacking`), packages, models that no option names, a key. `has_model` are the roles whose work
    may be done already.
    """
    planned: list[tuple[Plan, dict[str, Provider]]] = []

    def columns_there() -> None:
        if lacking is not None:
            raise lacking

    def plan() -> None:
        made = make_plan(config, columns, metrics)
        planned.append((made, load_providers(config.llm, made.asked)))

    roles = dict.fromkeys(
        config.encoders.role_of(PASSES[need.kind].role)
        for metric in metrics
        for need in with_verifier(metric, config.encoders).requires.passes
        if need.kind in PASSES
    )
    refuse_all(
        [
            columns_there,
            plan,
            *(
                functools.partial(check_named, role, config.encoders)
                for role in roles
                if role not in has_model
            ),
        ]
    )
    refuse_unused(config, planned[0][0])
    return planned[0]


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


def refuse_unused(config: RunConfig, plan: Plan) -> None:
    """`ConfigError` where a prompt or a model was chosen for a task that the run never asks."""
    chosen = [(task, f"--prompt {task}={prompt}") for task, prompt in config.prompts.items()]
    chosen += [(task, f"--llm {task}={config.llm.of(task).model}") for task in config.llm.by_task]
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


def _prompt_or_none(config: RunConfig, name: str) -> Prompt | None:
    if name == "decompose" and config.units == "sentences":
        return None
    return task_prompt(config, name)


def task_prompt(config: RunConfig, name: str) -> Prompt:
    """The prompt that a task uses in this run, checked against what the task offers and reads."""
    chosen = config.prompts.get(name, DEFAULT_VERSION)
    prompt = load_prompt(name, chosen, config.prompts_dir)
    check_prompt(TASKS[name], prompt, f"--prompt {name}={chosen}")
    check_model(prompt, config.llm.of(name), f"--prompt {name}={chosen}")
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
        for kind, one in PASSES.items()
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
        sides_here = TASKS[name].sides(columns)
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


def check_prompt(task: Task, prompt: Prompt, where: str) -> None:
    """`ConfigError` with the first reason why the task cannot use the prompt."""
    for problem in prompt_problems(task, prompt):
        raise ConfigError(f"{where}: {problem}")


def prompt_problems(task: Task, prompt: Prompt) -> Iterator[str]:
    """Every reason why the task cannot use the prompt."""
    text = TEXTS_FIELD if prompt.takes_several else TEXT_FIELD
    offered = [text if field == TEXT_FIELD else field for field in task.fields]
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
    elif prompt.output != task.output:
        shown = json.dumps(task.output), json.dumps(prompt.output)
        yield f"[output] must be {shown[0]}, not {shown[1]}"
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


def other_models(prompt: Prompt) -> tuple[str, ...]:
    """The models that the prompt names in the place of the run's, each once."""
    named = (prompt.settings.model, prompt.summary_settings.model)
    return tuple(dict.fromkeys(filter(None, named)))


def check_model(prompt: Prompt, llm: LLMConfig, where: str) -> None:
    """`ConfigError` where the run's provider cannot ask the prompt or the model that it names."""
    if prompt.label_words and not is_local(llm.family):
        check_logprobs(llm.family, f"{where}: its [label_words]")
    for model in other_models(prompt):
        if model.partition(":")[0].removesuffix(BATCH) in PROVIDERS:
            raise ConfigError(
                f"{where}: settings.model is the model's name at the server of --llm, "
                f"without {model.partition(':')[0]}:"
            )
        if is_local(llm.family) or llm.is_batch:
            raise ConfigError(
                f"{where}: the prompt names the model {model}, which --llm {llm.model} cannot "
                "ask; name a server's model with --llm, or leave settings.model out"
            )
