"""Models behind an HTTP server: another value of the same options, asked over the same protocols.

``tei:http://host:8080`` is a text-embeddings-inference server (NLI or embeddings), and
``openai:MODEL@https://host/v1`` one of embeddings by OpenAI's protocol. Importing this, and using
what it loads, needs no torch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from claimscore.addresses import server_address
from claimscore.config import EncoderConfig, model_api_key, model_key_name
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.protocols import NLI_LABELS, Model

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.served.client import ServerClient

#: The beginnings of a served model's name, and the roles that such a server can have.
KINDS = {"tei": ("nli", "verifier", "embedder"), "openai": ("embedder",)}


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
    from claimscore.pipeline.encoders.served.servers import load_openai, load_tei

    served = parse(getattr(config, role), role)
    client = connect(served, role, config)
    if served.kind == "openai":
        return load_openai(client, served.model)
    return load_tei(client, role)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedCheck:
    """The report of `claimscore models check` on a model behind a server.

    ``probe`` are the probabilities that it gives ``texts``, by label (nli, verifier); ``labels``
    are the server's own names in its own order (nli); ``dimensions`` is the length of a vector
    (embedder).
    """

    model: str
    revision: str
    role: str
    server: str
    labels: tuple[str, ...] | None = None
    token_limit: int | None = None
    batch: int | None = None
    in_flight: int | None = None
    dtype: str
    pooling: str | None = None
    dimensions: int | None
    texts: tuple[str, ...]
    probe: dict[str, float] | None = None
    stored: bool


def check_served(spec: str, config: EncoderConfig, role: str | None = None) -> ServedCheck:
    """Ask the server for what it is and for one probe; `ConfigError` where a run would be refused.

    Without a ``role``, a classifier is an NLI model and all else a sentence encoder.
    """
    from claimscore.pipeline.encoders.served.servers import PROBE, TeiClassifier, TeiEmbedder

    if role not in (None, "nli", "verifier", "embedder"):
        raise ConfigError(
            f"a server's model is for --nli, --verifier or --embedder, not for --{role}"
        )
    served = parse(spec, role or ("embedder" if spec.startswith("openai:") else "nli"))
    if role is None:
        role = "embedder" if served.kind == "openai" else _find_role(served, config)
    named: dict[str, Any] = {role: spec}
    model = load(role, dataclasses.replace(config, **named))
    told: dict[str, Any] = {"server": served.address}
    if isinstance(model, TeiClassifier | TeiEmbedder):
        info = model.server.info
        told = {
            "server": f"text-embeddings-inference {info.version} at {served.address}",
            "token_limit": info.limit,
            "batch": info.batch,
            "in_flight": info.in_flight,
            "pooling": info.pooling or None,
        }
    if isinstance(model, TeiClassifier):
        told["labels"] = tuple(info.labels[key] for key in sorted(info.labels, key=int))
        named_probe = zip(NLI_LABELS, model.probe, strict=True)
        told["probe"] = {name: round(float(p), 4) for name, p in named_probe}
    texts = PROBE[:1] if role == "embedder" else PROBE
    return ServedCheck(
        model=model.info.model,
        revision=model.info.revision,
        role=role,
        dtype=model.info.dtype,
        dimensions=getattr(model, "dimensions", None),
        texts=texts,
        stored=getattr(model, "facts", None) is not None,
        **told,
    )


def _find_role(served: ServedModel, config: EncoderConfig) -> str:
    """The server's own description of its model; asked with the key for --nli."""
    from claimscore.pipeline.encoders.served.servers import TeiServer, impatient

    client = connect(served, "nli", config)
    with impatient(client):
        return "nli" if TeiServer(client).info.labels else "embedder"
