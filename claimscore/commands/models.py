"""The models that judge."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from claimscore.commands.options import (
    EXIT_OK,
    Group,
    SettingsSource,
    json_option,
    own_option,
)
from claimscore.config import EncoderConfig

#: The models that can be named without looking anything up, besides the vendors of `--llm`.
MODEL_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("--nli", "embedded", "all-MiniLM-L6-v2 with an adapter trained here (extra: offline)"),
    ("--nli", "ORG/NAME[@REVISION]", "a sequence classifier from the model hub, e.g. one for MNLI"),
    ("--nli", "PATH", "the same from a folder on disk"),
    ("--nli", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--verifier", "nli", "the model of --nli judges whether texts support claims"),
    ("--verifier", "ORG/NAME or PATH", "another NLI model, or MiniCheck, FactCC and their kin"),
    ("--verifier", "tei:URL", "an NLI model behind a text-embeddings-inference server"),
    ("--verifier", "llm", "a language model that quotes the text, MiniCheck or Granite Guardian"),
    ("--embedder", "embedded", "all-MiniLM-L6-v2: sentence embeddings (extra: offline)"),
    ("--embedder", "ORG/NAME or PATH", "a sentence-transformers model, or any encoder"),
    ("--embedder", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--embedder", "openai:MODEL@URL", "one behind a server with OpenAI's /embeddings"),
    ("--token-encoder", "embedded", "all-MiniLM-L6-v2, with its own baseline (extra: offline)"),
    ("--token-encoder", "ORG/NAME or PATH", "any encoder; published baselines where there are any"),
    ("--causal-lm", "ORG/NAME or PATH", "any causal language model, for perplexity"),
    ("--seq2seq-lm", "ORG/NAME or PATH", "any sequence-to-sequence model, for bart-score"),
    ("--masked-lm", "ORG/NAME or PATH", "any masked language model, for blanc"),
    ("--ls-model", "PATH", "a folder made by `claimscore train ls-score`"),
)


@click.group(cls=Group)
def models() -> None:
    """The models that compute scores."""


@models.command("list")
@json_option
def models_list(as_json: bool) -> None:
    """List the models that can be named, and how to name others."""
    from claimscore.console.table import print_rows
    from claimscore.pipeline.llm.providers.base import PROVIDERS, provider_class

    header = ("option", "value", "description")
    rows = [("--llm", *provider_class(family).usage) for family in PROVIDERS]
    rows += MODEL_CHOICES
    if as_json:
        print(json.dumps({"models": [dict(zip(header, row, strict=True)) for row in rows]}))
    else:
        print_rows(header, rows)


@models.command(
    "check",
    settings={
        "config": SettingsSource(
            EncoderConfig,
            only=(
                *("token_layer", "verifier_labels", "device", "dtype", "offline"),
                "allow_http_key",
            ),
        )
    },
)
@click.argument("model", help="embedded, HF_ID[@REV], a folder, tei:URL or openai:MODEL@URL.")
@own_option(
    "--role",
    type=click.Choice(["nli", "verifier", "embedder", "token-encoder"]),
    help="Use of the model; default: as its configuration says.",
)
@json_option
def models_check(config: EncoderConfig, model: str, role: Any, as_json: bool) -> int:
    """Say what a model is and how it runs here, as a run would load it.

    Of a model behind a server (tei:URL, openai:MODEL@URL): whether the server answers, and how.
    """
    from claimscore.pipeline.encoders.served import is_served

    if is_served(model):
        return _check_served(model, role, config, as_json)
    facts = _facts(model, role, config)
    if as_json:
        print(json.dumps(facts))
    else:
        _print_facts(facts)
    return EXIT_OK


def _facts(model: str, role: str | None, config: EncoderConfig) -> dict[str, Any]:
    """What a model is: its settings by its own configuration, its numbers as it is loaded."""
    from claimscore.pipeline.encoders import load_model
    from claimscore.pipeline.encoders.devices import resolve_device
    from claimscore.pipeline.encoders.loading import ModelLoader, load_config
    from claimscore.pipeline.encoders.protocols import NLI_LABELS

    settings = load_config(ModelLoader(config).find(model))
    if role is None and model == "embedded":
        role = "nli"
    elif role is None:
        named = getattr(settings, "architectures", None) or ()
        is_classifier = any("SequenceClassification" in name for name in named)
        of_labels = "nli" if settings.num_labels == len(NLI_LABELS) else "verifier"
        role = of_labels if is_classifier else "embedder"
    field = role.replace("-", "_")
    asked: dict[str, Any] = {field: model, "rescale_with_baseline": False}
    loaded: Any = load_model(field, dataclasses.replace(config, **asked))
    labels = None
    if role in ("nli", "verifier"):
        names = NLI_LABELS if loaded.kind == "nli" else ("supported", "not supported")
        places = sorted(range(len(names)), key=loaded.columns.__getitem__)
        labels = [names[place] for place in places]
    return {
        **loaded.info._asdict(),
        "role": role,
        "family": str(settings.model_type),
        "runs": "packed" if loaded.packed else "padded",
        "labels": labels,
        "token_limit": loaded.limit,
        "batch_tokens": loaded.budget,
        "device": str(resolve_device(config.device)),
    }


def _check_served(model: str, role: str | None, config: EncoderConfig, as_json: bool) -> int:
    """Whether a server answers as a run needs it; its numbers have nothing to be compared with."""
    from claimscore.console.table import print_facts
    from claimscore.pipeline.encoders.served import check_served

    found = check_served(model, config, role)
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))
        return EXIT_OK
    probe = ", ".join(f"{name} {p:.4f}" for name, p in (found.probe or {}).items())
    shown = {
        "model": f"{found.model} ({found.revision}), {found.dtype}",
        "role": found.role,
        "server": found.server,
        "label order": ", ".join(found.labels or ()),
        "token limit": f"{found.token_limit:,} tokens; longer inputs are "
        f"{'read in windows' if found.role == 'verifier' else 'cut'}"
        if found.token_limit
        else "not told: nor is what it cuts",
        "requests": f"{found.batch} items each, {found.in_flight} at a time" if found.batch else "",
        "vectors": " ".join(
            f"{found.dimensions} numbers {f'({found.pooling})' if found.pooling else ''}".split()
        )
        if found.dimensions
        else "",
        "probe": f"{' / '.join(found.texts)} -> {probe}" if probe else "answered",
        "results": "stored across runs"
        if found.stored
        else "not stored across runs: the server does not tell its model's version",
    }
    print_facts([(name, text) for name, text in shown.items() if text])
    return EXIT_OK


def _print_facts(facts: dict[str, Any]) -> None:
    """One fact a line; those that do not apply are left out."""
    from claimscore.console.table import print_facts

    shown = {
        "model": f"{facts['model']} ({facts['revision']})",
        "role": facts["role"],
        "runs": f"{facts['runs']}: {facts['family']}",
        "label order": ", ".join(facts["labels"] or ()),
        "token limit": f"{facts['token_limit']:,} tokens; longer inputs are cut",
        "batches": f"{facts['batch_tokens']:,} tokens a forward pass",
        "device": f"{facts['device']}, {facts['dtype']}",
    }
    print_facts([(name, text) for name, text in shown.items() if text])
