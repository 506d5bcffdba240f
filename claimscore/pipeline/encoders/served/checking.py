"""What can be said of a served model without its weights: that it answers, and how."""

from __future__ import annotations

import dataclasses
from typing import Any

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.protocols import NLI_LABELS
from claimscore.pipeline.encoders.served import ServedModel, connect, load, parse
from claimscore.pipeline.encoders.served.tei import TeiClassifier, TeiEmbedder, impatient
from claimscore.pipeline.encoders.served.tei_server import PROBE, TeiServer


@dataclasses.dataclass(frozen=True)
class ServedCheck:
    """What `claimscore models check` prints of a model behind a server.

    ``probe`` are the probabilities that it gives ``texts``, by label (nli); ``labels`` are the
    server's own names in its own order (nli); ``dimensions`` is the length of a vector (embedder).
    """

    model: str
    revision: str
    role: str
    server: str
    labels: tuple[str, ...] | None
    token_limit: int | None
    batch: int | None
    in_flight: int | None
    dtype: str
    pooling: str | None
    dimensions: int | None
    texts: tuple[str, ...]
    probe: dict[str, float] | None
    stored: bool


def check_served(spec: str, config: EncoderConfig, role: str | None = None) -> ServedCheck:
    """Ask the server for what it is and for one probe; `ConfigError` where a run would be refused.

    Without a ``role``, a classifier is an NLI model and all else a sentence encoder.
    """
    if role not in (None, "nli", "embedder"):
        raise ConfigError(f"a server's model is for --nli or --embedder, not for --{role}")
    served = parse(spec, role or ("embedder" if spec.startswith("openai:") else "nli"))
    if role is None:
        role = "embedder" if served.kind == "openai" else _find_role(served, config)
    named: dict[str, Any] = {role: spec}
    model = load(role, dataclasses.replace(config, **named))
    plain = ServedCheck(
        model=model.info.model,
        revision=model.info.revision,
        role=role,
        server=served.address,
        labels=None,
        token_limit=None,
        batch=None,
        in_flight=None,
        dtype=model.info.dtype,
        pooling=None,
        dimensions=getattr(model, "dimensions", None),
        texts=PROBE if role == "nli" else PROBE[:1],
        probe=None,
        stored=hasattr(model, "facts"),
    )
    if not isinstance(model, TeiClassifier | TeiEmbedder):
        return plain
    info = model.server.info
    told = dataclasses.replace(
        plain,
        server=f"text-embeddings-inference {info.version} at {plain.server}",
        token_limit=info.limit,
        batch=info.batch,
        in_flight=info.in_flight,
        pooling=info.pooling or None,
    )
    if isinstance(model, TeiEmbedder):
        return told
    order = tuple(info.labels[key] for key in sorted(info.labels, key=int))
    probe = {name: round(float(p), 4) for name, p in zip(NLI_LABELS, model.probe, strict=True)}
    return dataclasses.replace(told, labels=order, probe=probe)


def _find_role(served: ServedModel, config: EncoderConfig) -> str:
    """What the server says that its model is; asked with the key for --nli."""
    client = connect(served, "nli", config)
    with impatient(client):
        return "nli" if TeiServer(client).info.labels else "embedder"
