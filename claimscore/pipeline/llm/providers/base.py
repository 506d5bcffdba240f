"""The protocol of providers, what a vendor can, and how a provider is found by its name.

Nothing outside this folder names a vendor: what differs between them is an attribute of `Vendor`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

from claimscore.config import BATCH, LLMConfig, read_toml
from claimscore.errors import ConfigError
from claimscore.types import JSON, Completion, Request

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from claimscore.cache.store import Cache
    from claimscore.pipeline.llm.batch_jobs.server import BatchServer

#: Family name -> where its class is. Imported when asked for: SDKs are slow to import.
PROVIDERS: dict[str, str] = {
    "builtin": "claimscore.baseline.provider:BuiltinProvider",
    "openai": "claimscore.pipeline.llm.providers.openai:OpenAIProvider",
    "azure": "claimscore.pipeline.llm.providers.azure:AzureProvider",
    "anthropic": "claimscore.pipeline.llm.providers.anthropic:AnthropicProvider",
}

#: How each vendor and server is asked that the documentation names.
VENDORS = Path(__file__).with_name("vendors.toml")

#: What asks through the batch jobs of any vendor.
_BATCH_PROVIDER = "claimscore.pipeline.llm.batch_jobs.provider:BatchProvider"


class Provider(Protocol):
    """Answers one request at a time, many at once; raises only `claimscore.errors`.

    It has a time limit of its own, and neither retries nor waits nor remembers answers: that is the
    engine's work.
    """

    family: str
    namespace: str
    model: str

    async def complete(self, request: Request) -> Completion:
        """Ask; the answer may be empty, cut off (`finish_reason` "length") or off the schema."""

    async def aclose(self) -> None:
        """Close connections; may be called twice."""


class Vendor:
    """What the providers of a family can: the class in `PROVIDERS` says what is otherwise here.

    `usage` is what people write after `--llm`, and what answers then.
    """

    usage: ClassVar[tuple[str, str]]
    #: The environment variable with the key.
    key_variable: ClassVar[str | None] = None
    #: It answers on this machine: nothing is sent, limited or billed, and it has one model.
    is_local: ClassVar[bool] = False
    #: One model may be asked at several addresses.
    several_servers: ClassVar[bool] = False
    #: It can tell the log-probabilities of tokens.
    has_logprobs: ClassVar[bool] = False
    #: Its servers embed texts too, by `send("/embeddings", ...)` of OpenAI's protocol.
    has_embeddings: ClassVar[bool] = False
    #: What makes its batch jobs; None where it has none.
    batches: ClassVar[type[BatchServer] | None] = None
    #: The only tasks that it can do, whatever their prompts; None where any prompt may be asked.
    tasks: ClassVar[tuple[str, ...] | None] = None
    #: The versions of prompts by task that it is asked with where none is chosen, instead of ours.
    prompts: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def check_tasks(cls, names: Sequence[str]) -> None:
        """`ConfigError` where it cannot do all of these tasks on this machine."""


@runtime_checkable
class Collecting(Protocol):
    """A provider that answers in batch jobs, after minutes or hours, and after a restart too.

    `batch_size` is how many requests should wait at once; it keeps its own limits and time.
    """

    batch_size: int

    def start(self, tasks: TaskGroup) -> None:
        """Take the task group in which the work for the requests that wait may run."""

    def open(self, folder: Path, cache: Cache, on_write: Callable[[Path], None]) -> None:
        """Take the folder in which jobs are noted, and the cache that gets each answer first;
        `on_write` gets the file of each note before its job is made, and when it has gone."""

    def is_sent(self, key: str) -> bool:
        """Whether a request is in a job, perhaps of an earlier run, that may cost money."""

    def under_way(self) -> tuple[str, float]:
        """The jobs that are waited for, which a stop does not end, in words, and for how many
        seconds already; or ""."""


class SeveralServers:
    """One model at several servers, as one provider.

    An engine asks each of `servers` within its own limits. The namespace is the set of them, so
    neither order nor repetition matters.
    """

    def __init__(self, servers: Sequence[Provider], namespace: str) -> None:
        self.servers = tuple(servers)
        self.family = servers[0].family
        self.model = servers[0].model
        self.params = getattr(servers[0], "params", {})
        self.namespace = namespace

    async def complete(self, request: Request) -> Completion:
        """Ask the first."""
        return await self.servers[0].complete(request)

    async def aclose(self) -> None:
        for server in self.servers:
            await server.aclose()


def servers_of(provider: Provider) -> tuple[Provider, ...]:
    """The servers of a provider that has several; else the provider itself."""
    return provider.servers if isinstance(provider, SeveralServers) else (provider,)


def extra_params(provider: Provider, prompt: Mapping[str, Any]) -> dict[str, Any]:
    """What a request carries besides its own fields: the run's parameters go before a prompt's."""
    return {**prompt, **getattr(provider, "params", {})}


def provider_settings(provider: Provider) -> JSON:
    """What determines the answers of a language model; the run's parameters, as the text of their
    JSON, only of one at a server."""
    settings = {"provider": provider.family, "namespace": provider.namespace}
    settings["model"] = provider.model
    if not is_local(provider.family):
        settings["params"] = json.dumps(extra_params(provider, {}), sort_keys=True)
    return settings


def base_urls(provider: Provider) -> tuple[str, ...]:
    """Where a provider's servers are; nothing for one that answers on this machine."""
    urls = (getattr(server, "base_url", None) for server in servers_of(provider))
    return tuple(url for url in urls if url is not None)


def _at_several(config: LLMConfig, load: Callable[[LLMConfig], Provider]) -> Provider:
    """The servers at all of the base URLs; one of them where they are the same in other words."""
    servers: dict[str, Provider] = {}
    for url in config.base_urls:
        server = load(dataclasses.replace(config, base_url=url))
        servers.setdefault(base_urls(server)[0], server)
    if len(servers) == 1:
        return server
    namespace = config.cache_namespace or " ".join(sorted(servers))
    return SeveralServers([servers[url] for url in sorted(servers)], namespace)


def load_providers(llm: LLMConfig, tasks: Iterable[str]) -> dict[str, Provider]:
    """The provider that each of these tasks asks; those with the same settings share one.

    Raises as `load_provider`, and where options of the run's server would go nowhere.
    """
    if is_local(llm.family):
        _refuse_server(llm)
    asked: dict[str, LLMConfig] = {}
    providers: dict[str, Provider] = {}
    for task in tasks:
        config = llm.of(task)
        like = next((other for other, known in asked.items() if known == config), None)
        providers[task] = load_provider(config) if like is None else providers[like]
        asked[task] = config
    return providers


def is_local(family: str) -> bool:
    """Whether a provider of this family, one of ours or not, answers on this machine."""
    return family in PROVIDERS and provider_class(family).is_local


def check_logprobs(family: str, what: str) -> None:
    """`ConfigError` where a family tells no log-probabilities, from which `what` is read."""
    if family in PROVIDERS and not provider_class(family).has_logprobs:
        raise ConfigError(f"{what} are read from log-probabilities, which {family} does not give")


def usages() -> list[tuple[str, str]]:
    """What people write after `--llm`, batch jobs included, and what answers then."""
    rows = []
    for family in PROVIDERS:
        vendor = provider_class(family)
        rows.append(vendor.usage)
        if vendor.batches:
            rows.append((f"{family}{BATCH}:MODEL", "the same in batch jobs, at half the price"))
    return rows


def provider_class(model: str) -> type[Vendor]:
    """What a vendor can, by its family or by `--llm`; `ConfigError` for one that there is not."""
    family = model.partition(":")[0].removesuffix(BATCH)
    if family not in PROVIDERS:
        if way := read_toml(VENDORS).get(family.lower()):
            options = (("--base-url", way.get("url")), ("--key", way.get("key")))
            asked = "".join(f" {name} {value}" for name, value in options if value)
            raise ConfigError(f"{way['name']} is asked as --llm {way['llm']}{asked}")
        known = ", ".join(name for name, _ in usages())
        meant = "" if ":" in model else f"is openai:{model} meant? "
        known += "; others: docs/how-to/other-vendors.md"
        raise ConfigError(f"unknown LLM {family!r}; {meant}known: {known}")
    return cast("type[Vendor]", _load(PROVIDERS[family]))


def load_provider(config: LLMConfig) -> Provider:
    """The provider that `config.model` names, as `builtin`, `openai:MODEL` or
    `openai-batch:MODEL`; `ConfigError` where it cannot be asked like that."""
    vendor: Any = provider_class(config.model)
    named = config.model.partition(":")[0]
    if vendor.is_local:
        _refuse_server(config)
    elif not config.model_name:
        raise ConfigError(f"--llm {config.model}: name a model, as in {named}:MODEL")
    several = len(config.base_urls) > 1
    if config.is_batch and vendor.batches is None:
        raise ConfigError(f"--llm {config.model}: there are no batch jobs of {config.family}")
    if several and (config.is_batch or not vendor.several_servers):
        what = "a batch is one server's" if config.is_batch else "it has one server"
        raise ConfigError(f"{config.model}: {what}; give --base-url once")
    made = _at_several(config, vendor.from_config) if several else vendor.from_config(config)
    if config.is_batch:
        made = _load(_BATCH_PROVIDER)(vendor.batches(made), config)
    return cast(Provider, made)


def _refuse_server(config: LLMConfig) -> None:
    """`ConfigError` for options of a server where none is asked."""
    given = {
        "--llm-param": config.params,
        "--header": config.headers,
        "--base-url": config.base_url,
        "--key": config.key_variable,
    }
    if option := next((option for option, value in given.items() if value), None):
        raise ConfigError(f"{option} is for a server; --llm {config.model} asks none")
    if config.model != config.family:
        raise ConfigError(f"--llm {config.model}: it is {config.family} alone")


def _load(place: str) -> Any:
    """What is at "module:name"."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
