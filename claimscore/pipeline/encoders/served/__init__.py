"""Models behind an HTTP server: another value of the same options, asked over the same protocols.

``tei:http://host:8080`` is a text-embeddings-inference server (NLI or embeddings), and
``FAMILY:MODEL@https://host/v1`` one of embeddings, of a family of language models that has them.
Importing this, and using what it loads, needs no torch.
"""

from __future__ import annotations

import functools
from typing import Any

from claimscore.config import EncoderConfig, model_api_key, model_key_name
from claimscore.errors import ConfigError
from claimscore.http_policy import server_address
from claimscore.pipeline.llm.providers.base import PROVIDERS, provider_class

TEI = "tei"
TEI_ROLES = ("nli", "verifier", "embedder")


def is_served(spec: str) -> bool:
    """Whether a model's name means one behind a server."""
    return spec.partition(":")[0] in (TEI, *PROVIDERS) and ":" in spec


def load(role: str, config: EncoderConfig) -> Any:
    """Return the served model that the config names for a role, once it has answered a probe.

    Raises `ConfigError` where the server cannot be reached or its model is not one of that role.
    """
    from claimscore.pipeline.encoders.served import client, models

    spec, option = getattr(config, role), f"--{role.replace('_', '-')}"
    kind, _, rest = spec.partition(":")
    roles = TEI_ROLES if kind == TEI else ("embedder",) * provider_class(kind).has_embeddings
    if role not in roles:
        others = f"; that is for --{', --'.join(roles)}" if roles else ""
        others += "; a language model judges by --verifier llm" if role == "verifier" else ""
        raise ConfigError(f"{option} cannot be {kind}:{others}")
    name, _, url = rest.rpartition("@") if kind != TEI else ("", "", rest)
    like = "tei:http://host:8080" if kind == TEI else f"{kind}:MODEL@https://host/v1"
    if kind != TEI and not name:
        raise ConfigError(f"{option} {spec}: name the model and its server, as in {like}")
    vendor: Any = None if kind == TEI else provider_class(kind)
    connect = functools.partial(
        client.HttpServer if kind == TEI else vendor,
        name,
        base_url=server_address(url, key_name=model_key_name(role), what=option, like=like),
        key=model_api_key(role),
        key_variable=model_key_name(role),
        allow_http_key=config.allow_http_key,
        timeout_s=client.TIMEOUT_S,
    )
    if kind != TEI:
        return models.EmbeddingsModel(f"{kind}:{name}", connect, config.max_outage_s)
    model = models.TeiEmbedder if role == "embedder" else models.TeiClassifier
    return model(connect, config.max_outage_s)
