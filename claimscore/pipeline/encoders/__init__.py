"""The model stage: models of each role, loaded onto devices, from names in the settings.

Importing this is cheap: torch and transformers are imported by the loaders when called.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.devices import (
    device_names,
    multiplies_faster,
    resolve_device,
    shared_device,
)
from claimscore.pipeline.encoders.protocols import Model, Verifiers
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.encoders.served import load as load_served

#: What a model is asked for -> "module:function" that loads the one `EncoderConfig` names.
ROLES: dict[str, str] = {
    "nli": "claimscore.pipeline.encoders.nli:load",
    "verifier": "claimscore.pipeline.encoders.nli:load_verifier",
    "embedder": "claimscore.pipeline.encoders.embedder:load",
    "token_encoder": "claimscore.pipeline.encoders.token_encoder:load",
    "ls_model": "claimscore.pipeline.encoders.ls_model:load",
    "causal_lm": "claimscore.pipeline.encoders.language_models:load_causal",
    "seq2seq_lm": "claimscore.pipeline.encoders.language_models:load_seq2seq",
    "masked_lm": "claimscore.pipeline.encoders.masked_lm:load",
}

#: Roles without a default model: what to say where no option names one.
UNNAMED = {
    "ls_model": "ls-score needs a trained model: name its folder with --ls-model, or make one with "
    "`claimscore train ls-score TABLE --out FOLDER`",
    "causal_lm": "perplexity needs a causal language model; name one with --causal-lm, as in "
    "--causal-lm openai-community/gpt2",
    "seq2seq_lm": "bart-score needs a sequence-to-sequence model; name one with --seq2seq-lm, as "
    "in --seq2seq-lm facebook/bart-large-cnn",
    "masked_lm": "blanc needs a masked language model; name one with --masked-lm, as in "
    "--masked-lm google-bert/bert-base-uncased",
}

#: Threads that share a device. A GPU waits while a thread tokenises, reads and writes, so another
#: one computes then; a CPU does both with the same cores, and a second chunk only takes memory.
THREADS = {"cpu": 1, "cuda": 2}

#: The roles whose models `--dtype auto` runs in bfloat16: likelihoods are sums of many numbers.
ROUNDED = ("nli", "verifier", "embedder", "token_encoder")

#: Models that stay loaded in a process of Python.
KEPT_MODELS = 4

#: The loaded models by role: those that a missing step needs.
Models = Mapping[str, Model]

#: Loads the model of a role onto the one device that the config names.
Load = Callable[[str, EncoderConfig], Model]


class Worker(NamedTuple):
    """A device's models, the threads that share them, and what people call the device."""

    models: Models
    name: str = "cpu"
    threads: int = 1


def check_named(role: str, config: EncoderConfig) -> None:
    """`ConfigError` where no option names the model of a role that has no default one."""
    if getattr(config, role) is None:
        raise ConfigError(UNNAMED[role])


def resolve_auto(config: EncoderConfig, roles: Iterable[str]) -> EncoderConfig:
    """The config with a number format in place of ``auto``, one for the models of all roles.

    bfloat16 where the device multiplies it faster and each model is here, named by the user and of
    a role in `ROUNDED`; models behind servers have their own. So the numbers of the embedded models
    do not depend on the machine.
    """
    if config.dtype != "auto":
        return config
    named = {role: getattr(config, role) for role in roles}
    here = {role for role, name in named.items() if not is_served(name or "")}
    may_round = here and all(role in ROUNDED and named[role] != "embedded" for role in here)
    is_faster = may_round and multiplies_faster(resolve_device(device_names(config.device)[0]))
    return dataclasses.replace(config, dtype="bfloat16" if is_faster else "float32")


def load_model(role: str, config: EncoderConfig) -> Model:
    """Load the model of a role, as `verifier` several; `ConfigError` where one cannot be had or
    used."""
    check_named(role, config)
    if role == "verifier" and config.verifier not in config.judges:
        alone = [
            dataclasses.replace(config, verifier=name, second_opinion="all")
            for name in config.judges
        ]
        members: list[Any] = [load_model(one.role_of(role), one) for one in alone]
        return Verifiers(tuple(members)) if len(members) > 1 else members[0]
    config = resolve_auto(config, [role])
    if is_served(getattr(config, role) or ""):
        return cast(Model, load_served(role, config))
    module, _, function = ROLES[role].partition(":")
    return cast(Model, getattr(importlib.import_module(module), function)(config))


def kept_model(role: str, config: EncoderConfig, load: Load) -> Model:
    """The model of a role, loaded once in this process: `KEPT_MODELS` stay, those used last."""
    with _loading:
        return _kept_model(role, config, load)


_loading = threading.Lock()


@functools.lru_cache(maxsize=KEPT_MODELS)
def _kept_model(role: str, config: EncoderConfig, load: Load) -> Model:
    return load(role, config)


def load_workers(roles: Iterable[str], config: EncoderConfig, load: Load) -> list[Worker]:
    """A copy of the models of these roles on each of `device_names`.

    Where all of them are behind servers, one worker asks them, and torch is not imported.
    `ConfigError` where a device is not there, or a model cannot be had or used.
    """
    wanted = list(roles)
    if not wanted:
        return []
    if config.device in ("auto", "cpu") and all(
        is_served(getattr(config, role) or "") for role in wanted
    ):
        return [Worker({role: load(role, config) for role in wanted}, "their servers")]
    workers = []
    for name in device_names(config.device):
        own = dataclasses.replace(config, device=name)
        with shared_device():
            models = {role: load(role, own) for role in wanted}
        workers.append(Worker(models, name, THREADS[resolve_device(name).type]))
    return workers
