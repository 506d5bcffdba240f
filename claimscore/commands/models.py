"""The models that judge: listed, checked, and trained on your own data."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.evaluate import finish
from claimscore.commands.options import (
    EXIT_OK,
    Group,
    SettingsSource,
    json_option,
    output_options,
    own_option,
)
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.training.recipes import LSTrainingConfig, SummaCTrainingConfig

#: The models that can be named without looking anything up, besides the vendors of `--llm`.
MODEL_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("--nli", "embedded", "all-MiniLM-L6-v2 with an adapter trained here (extra: offline)"),
    ("--nli", "ORG/NAME[@REVISION]", "a sequence classifier from the model hub, e.g. one for MNLI"),
    ("--nli", "PATH", "the same from a folder on disk"),
    ("--nli", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--verifier", "nli", "the model of --nli judges whether texts support claims"),
    ("--verifier", "ORG/NAME or PATH", "another NLI model, or MiniCheck, FactCC and their kin"),
    ("--verifier", "tei:URL", "an NLI model behind a text-embeddings-inference server"),
    ("--verifier", "nli,llm", "several, whose probabilities are averaged"),
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
    from claimscore.pipeline.llm.providers.base import usages

    header = ("option", "value", "description")
    rows = [("--llm", *usage) for usage in usages()]
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
    help="Use of the model; default: as its configuration says (tei:URL: nli).",
)
@json_option
def models_check(config: EncoderConfig, model: str, role: Any, as_json: bool) -> int:
    """Say what a model is and how it runs here, as a run would load it.

    Of a model behind a server (tei:URL, openai:MODEL@URL): whether the server answers, and how.
    """
    from claimscore.pipeline.encoders.served import is_served

    facts = (_served_facts if is_served(model) else _facts)(model, role, config)
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


def _served_facts(model: str, role: str | None, config: EncoderConfig) -> dict[str, Any]:
    """What a server says of its model, and its answer to a probe."""
    from claimscore.pipeline.encoders.protocols import NLI_LABELS
    from claimscore.pipeline.encoders.served import TEI, TEI_ROLES, load
    from claimscore.pipeline.encoders.served.models import PROBE

    is_tei = model.startswith(f"{TEI}:")
    role = role or ("nli" if is_tei else "embedder")
    if role not in TEI_ROLES:
        raise ConfigError(
            f"a server's model is for --nli, --verifier or --embedder, not for --{role}"
        )
    asked: dict[str, Any] = {role: model}
    loaded = load(role, dataclasses.replace(config, **asked))
    facts = {**loaded.info._asdict(), "role": role, "server": loaded.address}
    if is_tei:
        about = loaded.about
        facts["server"] = f"text-embeddings-inference {about.version} at {facts['server']}"
        facts |= {"token_limit": about.limit, "batch": loaded.size, "in_flight": loaded.in_flight}
        facts |= {
            "labels": [about.labels[key] for key in sorted(about.labels, key=int)],
            "pooling": about.pooling or None,
        }
    if role == "embedder":
        facts["dimensions"] = loaded.dimensions
    else:
        probe = zip(NLI_LABELS, map(float, loaded.probe), strict=True)
        facts |= {"texts": PROBE, "probe": {name: round(p, 4) for name, p in probe}}
    return {**facts, "stored": loaded.facts is not None}


def _print_facts(facts: dict[str, Any]) -> None:
    """One fact a line, as `--json` names it; those that do not apply are left out."""
    from claimscore.console.table import print_facts
    from claimscore.metrics.base import spelled

    shown = []
    for name, value in facts.items():
        if isinstance(value, dict):
            value = [f"{label} {number:.4f}" for label, number in value.items()]
        text = ", ".join(value) if isinstance(value, list | tuple) else spelled(value)
        if text not in ("None", "unknown"):
            shown.append((name.replace("_", " "), text))
    print_facts(shown)


# Trainings

_RECIPES = "claimscore.training.recipes"


@click.group(cls=Group)
def train() -> None:
    """Train the model of a metric on your own data."""


@train.command("ls-score", settings={"config": f"{_RECIPES}:LSTrainingConfig"})
@output_options
def train_ls_score(config: LSTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train LS_Score on documents and good summaries."""
    from claimscore.console.progress import counts_display
    from claimscore.training.ls_score import train_ls_score as train_model

    finish(train_model(config, counts_display(quiet or as_json, "steps")), as_json)


@train.command("summac-conv", settings={"config": f"{_RECIPES}:SummaCTrainingConfig"})
@output_options
def train_summac_conv(config: SummaCTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train SummaC-Conv on labelled summaries; a run takes it as `summac-conv:weights=FILE`."""
    from claimscore.console.progress import counts_display
    from claimscore.training.summac_conv import train_summac_conv as train_model

    finish(train_model(config, counts_display(quiet or as_json, "summaries judged")), as_json)
