"""The content of `run.toml`: the settings that determine results; and the steps of a run.

The settings are compared when a run is taken up again. A run directory may come from a stranger:
of what stands in it, `as_made` takes over what names no server, file, model or code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

from claimscore import __version__
from claimscore.calibration import judge_role, threshold_in, verifiers_in
from claimscore.config import LLM_VERIFIER, TASK_NAMES, DType, EncoderConfig, RunConfig
from claimscore.metrics.support import members_of, threshold_of
from claimscore.pipeline.encoders import ROLES, Models, resolve_auto
from claimscore.pipeline.encoders.protocols import TokenEncoder
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.llm.providers.base import provider_settings
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.pipeline.plan import Plan
from claimscore.pipeline.tasks.verify import VERIFY
from claimscore.runs import RunDirectory
from claimscore.types import JSON

#: What users call the settings that can differ.
CALLED = {
    "records.digest": "the content of the input",
    "records.count": "the number of its records",
    "seed": "--seed",
    "additive.support.verifier": "--verifier",
    "additive.support.second_opinion": "--second-opinion",
    "additive.support.verify_samples": "--verify-samples",
    "additive.verifier.labels": "--verifier-labels",
    "additive.support.window_tokens": "--window-tokens",
    "additive.support.evidence": "evidence of the metrics",
    "additive.support.calibration": "--calibration",
    "additive.texts.granularity": "--granularity",
    "additive.texts.units": "--units",
    **{f"additive.llm.{task}.provider": f"--llm of {task}" for task in TASK_NAMES},
    **{f"additive.llm.{task}.model": f"--llm of {task}" for task in TASK_NAMES},
    **{f"additive.llm.{task}.namespace": f"server (--base-url) of {task}" for task in TASK_NAMES},
    **{f"additive.llm.{task}.params": f"--llm-param of {task}" for task in TASK_NAMES},
    **{f"additive.{role}.name": f"--{role.replace('_', '-')}" for role in ROLES},
    **{f"additive.{role}.dtype": "--dtype" for role in ROLES},
    **{f"additive.{role}.model": f"model of --{role.replace('_', '-')}" for role in ROLES},
    **{f"additive.{role}.limit": f"token limit of --{role.replace('_', '-')}" for role in ROLES},
    **{f"additive.{role}.revision": f"revision of --{role.replace('_', '-')}" for role in ROLES},
    "additive.token_encoder.layer": "--token-layer",
    "additive.token_encoder.rescale_with_baseline": "rescaling (--no-baseline)",
    **{f"additive.prompts.{task}.digest": f"--prompt {task}" for task in TASK_NAMES},
    **{f"additive.prompts.{task}.version": f"version of --prompt {task}" for task in TASK_NAMES},
}


def result_settings(plan: Plan, records: Mapping[str, object]) -> JSON:
    """Everything that determines a score, as far as this plan needs it. `llm` has what answers
    each task.
    What stands under `additive` may be joined by more (another metric, the model that it
    needs) and is compared where both runs name it.
    """
    config = plan.config
    additive: JSON = {
        "tasks": [planned.task.name for planned in plan.tasks],
    }
    if plan.tasks:
        additive["texts"] = {"granularity": config.granularity, "units": config.units}
    if plan.providers:
        additive["llm"] = {
            task: provider_settings(provider) for task, provider in plan.providers.items()
        }
        additive["prompts"] = {
            task: {
                "name": prompt.name,
                "version": prompt.version,
                "digest": prompt.digest,
            }
            for task, prompt in plan.asked.items()
        }
    if config.dedupe != "none":
        additive.setdefault("texts", {})["dedupe"] = config.dedupe
    for role in plan.roles:
        additive[role] = role_settings(role, config.encoders)
    verify = [planned for planned in plan.tasks if planned.task.name == VERIFY.name]
    passes = {planned.need.kind for planned in plan.passes}
    if verify or any(PASSES[kind].role == SUPPORT_PASS.role for kind in passes):
        additive["support"] = {"verifier": _names(config.encoders.verifiers), "calibration": "none"}
        if (file := plan.calibration) is not None:
            additive["support"] |= {"calibration": file.digest, "threshold": file.threshold}
    if len(config.encoders.verifiers) > 1 and "support" in additive:
        additive["support"]["second_opinion"] = config.encoders.second_opinion
    for planned in verify:
        how = {"window_tokens": planned.window_tokens, "evidence": planned.evidence}
        additive["support"] |= {"verify_samples": config.verify_samples, **how}
    return {
        "records": dict(records),
        "chunk_records": config.chunk_records,
        "seed": config.seed,
        "additive": additive,
    }


def with_dtype(plan: Plan, stored: Mapping[str, Any]) -> Plan:
    """Return the plan with a number format in place of ``auto``: that of its folder.

    A new run asks this machine (`resolve_auto`); one on a cluster, whose machines may differ, is
    in float32.
    """
    config = plan.config
    if config.encoders.dtype != "auto":
        return plan
    models = [stored.get("additive", {}).get(role, {}) for role in ROLES]
    earlier = [one["dtype"] for one in models if one and not one["name"].endswith(":")]
    if earlier or config.engine == "ray":
        dtype: DType = earlier[0] if earlier else "float32"
        encoders = dataclasses.replace(config.encoders, dtype=dtype)
    else:
        encoders = resolve_auto(config.encoders, plan.roles)
    return dataclasses.replace(plan, config=dataclasses.replace(config, encoders=encoders))


def role_settings(role: str, encoders: EncoderConfig) -> JSON:
    """The user's settings of a model in this role.

    Of a served one that is what serves it, not where: model and arithmetic are the server's to
    say (`model_settings`), and another address with the same model gives the same results.
    """
    names = encoders.judges if role == "verifier" else (getattr(encoders, role) or "",)
    settings: JSON = {"name": _names(names), "dtype": encoders.dtype}
    if all(map(is_served, names)):
        return {"name": settings["name"]}
    if role == "verifier":
        settings["labels"] = ",".join(encoders.verifier_labels)
    if role == "token_encoder":
        settings["rescale_with_baseline"] = encoders.rescale_with_baseline
    return settings


def _names(models: Iterable[str]) -> str:
    """Models as settings name them: of a served one what serves it."""
    return ",".join(f"{name.partition(':')[0]}:" if is_served(name) else name for name in models)


def unused_settings(directory: RunDirectory) -> list[str]:
    """The stored settings that nothing was made with yet, so that others may take their place.

    A run that was refused (a wrong model, a wrong URL) can be corrected in the same folder.
    """
    steps = directory.manifest.all_steps()
    works = {step.partition("-")[0] for step in steps}
    if not works:
        return list(directory.settings)
    tasks = [task for task in TASK_NAMES if task not in works]
    unused = [f"additive.{table}.{task}" for table in ("llm", "prompts") for task in tasks]
    if not works.intersection(TASK_NAMES):
        unused += ["additive.llm", "additive.prompts", "additive.tasks", "additive.texts"]
    used = {PASSES[kind].role for kind in works if kind in PASSES}
    if SUPPORT_PASS.kind in works:
        used.add(judge_role(verifiers_in(directory.settings["additive"])))
    if VERIFY.name in works:
        used.add(SUPPORT_PASS.kind)
    unused += [f"additive.{role}" for role in (*ROLES, "support") if role not in used | works]
    return unused


def model_settings(models: Models) -> JSON:
    """The facts of loaded models, for `additive`: revisions, the layer."""
    settings: JSON = {}
    for role, model in models.items():
        settings[role] = {"revision": model.info.revision}
        if getattr(model, "limit", None) is not None:
            settings[role]["limit"] = model.limit  # type: ignore[attr-defined] # of some
        if len(members_of(model)) > 1 or getattr(model, "threshold", None) is not None:
            settings[role]["threshold"] = threshold_of(model)
        if is_served(model.info.model):
            settings[role] |= {"model": model.info.model, "dtype": model.info.dtype}
        if role == "token_encoder":
            encoder = cast(TokenEncoder, model)
            settings[role] |= {"layer": encoder.layer, "baseline": encoder.baseline is not None}
    return settings


def add_settings(directory: RunDirectory, additive: JSON) -> None:
    """Store facts that are known later: of loaded models, and which metrics have scores.

    `ConfigError` where the folder was made with others.
    """
    directory.check_settings({**directory.settings, "additive": additive}, CALLED)


def signature_facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings as the short texts that signatures are made of."""
    additive = settings["additive"]
    facts = {
        **additive.get("texts", {}),
        "seed": str(settings["seed"]),
        "claimscore": __version__,
    }
    for task, prompt in additive.get("prompts", {}).items():
        llm = additive["llm"][task]
        named = f"{llm['provider']}:{llm['model']}@{llm['namespace']}"
        named += "" if llm.get("params", "{}") == "{}" else llm["params"]
        named = named if "params" in llm else llm["model"]  # where no server was asked
        facts[task] = f"{prompt['name']}={prompt['version']}@{prompt['digest']} by {named}"
    for role in ROLES:
        if role in additive:
            model = additive[role]
            facts[role] = f"{model.get('model', model['name'])}@{model['revision']}"
            facts[role] += f" ({model['labels']})" if model.get("labels") else ""
            facts.setdefault("dtype", model["dtype"])
    if "dedupe" in facts:
        facts["dedupe"] += f" by {facts['nli']}"
    facts |= _verifier_facts(additive, facts)
    if "token_encoder" in additive:
        encoder = additive["token_encoder"]
        facts["layer"] = str(encoder["layer"])
        rescaled = encoder["rescale_with_baseline"] and encoder["baseline"]
        facts["baseline"] = "rescaled" if rescaled else "none"
    return facts


def _verifier_facts(additive: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, str]:
    """Who judged claims, and from which probability on they are supported: the verifiers' mean."""
    names, support = verifiers_in(additive), additive.get("support", {})
    judge, asks_llm = judge_role(names), LLM_VERIFIER in names and VERIFY.name in facts
    who = [facts[judge]] if judge in additive else []
    if asks_llm:
        who.append(f"{facts[VERIFY.name]},window_tokens={support['window_tokens']}")
    if support.get("second_opinion") == "unsure":
        who.append(f"second_opinion=unsure of {names[0]}")
    known = {"verifier": "+".join(who)} if who else {}
    if judge in additive:
        known["threshold"] = str(threshold_in(additive))
    if support.get("calibration", "none") != "none":
        known["verifier"] += f",calibration={support['calibration']}"
        known["threshold"] = str(support["threshold"])
    return known


def input_name(given: Any) -> str:
    """An input for people: its path, pattern or address, or that it was rows in memory."""
    return given if isinstance(given, str) else "rows in memory"


def as_made(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The call with those fields `OF_THE_RUN` that the folder's settings have.

    All else of the call is the user's own: models, servers, headers, prompts, files.
    """
    additive = settings["additive"]
    stored = {**settings, **additive.get("texts", {}), **additive.get("support", {})}
    names = ("seed", "chunk_records", "granularity", "units", "window_tokens")
    return dataclasses.replace(config, **{name: stored[name] for name in names if name in stored})


def stored_plan(plan: Plan, name: str, earlier: Mapping[str, Any] | None = None) -> JSON:
    """What a run of the input of that name is to do, for `status`: the sides of each task, the
    steps of models, the calibration; with those of an `earlier` plan that it goes on beside."""
    tasks = {planned.task.name: list(planned.sides) for planned in plan.tasks}
    passes = [planned.step for planned in plan.passes]
    for task, sides in (earlier or {}).get("tasks", {}).items():
        tasks[task] = [*dict.fromkeys((*tasks.get(task, ()), *sides))]
    passes = [*dict.fromkeys((*passes, *(earlier or {}).get("passes", ())))]
    of_plan = plan.calibration and dataclasses.asdict(plan.calibration)
    calibration = of_plan or (earlier or {}).get("calibration")
    return {"input": name, "tasks": tasks, "passes": passes, "calibration": calibration}
