"""Models behind an HTTP server: another value of the same options, asked over the same protocols.

``tei:http://host:8080`` is a text-embeddings-inference server (NLI or embeddings), and
``openai:MODEL@https://host/v1`` a server of the embeddings protocol of OpenAI. Importing this, and
using what it loads, needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from claimscore.addresses import server_address
from claimscore.config import EncoderConfig, model_api_key, model_key_name
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.protocols import Model

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.served.client import ServerClient

#: The beginnings of a served model's name, and the roles that such a server can have.
KINDS = {"tei": ("nli", "embedder"), "openai": ("embedder",)}


class ServedModel(NamedTuple):
    """A served model's name in its parts; ``model`` is empty where the server says what it has."""

    kind: str
    address: str
    model: str


def is_served(spec: str) -> bool:
    """Whether a model's name means one behind a server."""
    return spec.partition(":")[0] in KINDS


def parse(spec: str, role: str) -> ServedModel:
    """Return the parts of ``tei:URL`` or ``openai:MODEL@URL``; `ConfigError` for anything else."""
    option = f"--{role.replace('_', '-')}"
    kind, _, rest = spec.partition(":")
    if role not in KINDS[kind]:
        raise ConfigError(f"{option} cannot be {kind}:; that is for --{', --'.join(KINDS[kind])}")
    model, _, url = rest.rpartition("@") if kind == "openai" else ("", "", rest)
    like = {"tei": "tei:http://host:8080", "openai": "openai:MODEL@https://host/v1"}[kind]
    if kind == "openai" and not model:
        raise ConfigError(f"{option} {spec}: name the model and its server, as in {like}")
    address = server_address(url, key_name=model_key_name(role), what=option, like=like)
    return ServedModel(kind, address, model)


def load(role: str, config: EncoderConfig) -> Model:
    """Return the served model that the config names for a role, once it has answered a probe.

    Raises `ConfigError` where the server cannot be reached or its model is not one of that role.
    """
    from claimscore.pipeline.encoders.served import openai, tei

    served = parse(getattr(config, role), role)
    client = connect(served, role, config)
    if served.kind == "openai":
        return openai.load(client, served.model)
    return tei.load_classifier(client) if role == "nli" else tei.load_embedder(client)


def connect(served: ServedModel, role: str, config: EncoderConfig) -> ServerClient:
    """Return what asks a role's server; nothing is sent yet."""
    from claimscore.pipeline.encoders.served.client import ServerClient

    return ServerClient(
        served.address,
        key=model_api_key(role),
        key_name=model_key_name(role),
        allow_http_key=config.allow_http_key,
        max_outage_s=config.max_outage_s,
        alive="/health" if served.kind == "tei" else "/models",
    )
