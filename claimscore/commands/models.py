"""The models that judge."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from claimscore.commands.options import (
    EXIT_BUG,
    EXIT_OK,
    FILE,
    NEW_FILE,
    Group,
    SettingsSource,
    json_option,
    own_option,
)
from claimscore.config import EncoderConfig

#: The models that can be named without looking anything up.
MODEL_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("--llm", "builtin", "a small parser in place of a language model, no key (extra: offline)"),
    ("--llm", "builtin-rules", "rules alone in its place: a weaker baseline"),
    ("--llm", "openai:MODEL", "any OpenAI-compatible server (--base-url, OPENAI_API_KEY)"),
    ("--nli", "embedded", "all-MiniLM-L6-v2 with an adapter trained here (extra: offline)"),
    ("--nli", "ORG/NAME[@REVISION]", "a sequence classifier from the model hub, e.g. one for MNLI"),
    ("--nli", "PATH", "the same from a folder on disk"),
    ("--nli", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--verifier", "nli", "the model of --nli judges whether texts support claims"),
    ("--verifier", "ORG/NAME or PATH", "another NLI model, or MiniCheck, FactCC and their kin"),
    ("--verifier", "openai:MODEL@URL", "Bespoke-MiniCheck or Granite Guardian behind a server"),
    ("--verifier", "tei:URL", "an NLI model behind a text-embeddings-inference server"),
    ("--verifier", "llm", "the language model of --llm, which quotes the text"),
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

    header = ("option", "value", "description")
    if as_json:
        found = [dict(zip(header, row, strict=True)) for row in MODEL_CHOICES]
        print(json.dumps({"models": found}))
    else:
        print_rows(header, MODEL_CHOICES)


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
    """Check how a model runs here, and whether its numbers are right.

    The model is loaded as in a run and compared with the stock model, one text at a time; exit
    status 1 means that they disagree. Of a model behind a server (tei:URL, openai:MODEL@URL) it
    checks that the server answers, and how.
    """
    from claimscore.pipeline.encoders.served import is_served

    if is_served(model):
        return _check_served(model, role, config, as_json)
    from claimscore.pipeline.encoders.model_check import check_model

    found = check_model(model, config, role)
    facts = dataclasses.asdict(found) | {"agrees": found.agrees}
    if as_json:
        print(json.dumps(facts))
    else:
        _print_facts(facts)
    if found.agrees:
        return EXIT_OK
    print(
        f"claimscore: error: {model} differs from the stock model by {found.difference:.1e} in "
        f"{found.compared} (at most {found.bound:.0e} is agreement), labels differing: "
        f"{found.labels_differ or 0}; do not use it, and please report it",
        file=sys.stderr,
    )
    return EXIT_BUG


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
        "agreement": "not checked: the stock model is not here, only on the server",
    }
    print_facts([(name, text) for name, text in shown.items() if text])
    return EXIT_OK


def _print_facts(facts: dict[str, Any]) -> None:
    """One fact a line; those that do not apply are left out."""
    from claimscore.console.table import print_facts

    shown = {
        "model": f"{facts['model']} ({facts['revision']})",
        "role": facts["role"],
        "family": facts["family"],
        "runs": f"{facts['runs']}: {facts['why']}",
        "label order": ", ".join(facts["labels"] or ()),
        "token limit": f"{facts['token_limit']:,} tokens; longer inputs are cut",
        "budget": f"{facts['budget_tokens']:,} tokens a forward pass ({facts['budget_origin']})",
        "pairs": {
            None: "",
            True: "put together from the ids of single texts",
            False: "tokenised pair by pair: this tokenizer joins texts in a way of its own",
        }[facts["pairs_from_ids"]],
        "device": f"{facts['device']}, {facts['dtype']}",
        "--dtype auto": facts["auto"] and f"{facts['auto']} on this machine",
        "products": facts["products"],
        "agreement": f"{facts['difference']:.1e} at most in {facts['compared']} on "
        f"{facts['probes']} probes; the bound is {facts['bound']:.0e}",
    }
    print_facts([(name, text) for name, text in shown.items() if text])


@models.command("convert-summac")
@click.argument("file", type=FILE, help="Published weights: a torch checkpoint.")
@own_option("-o", "--out", type=NEW_FILE, required=True, metavar="FILE", help="File to write.")
@own_option("--bins", default="percentile", help="Bins of the histograms: percentile or evenN.")
@own_option("--nli-labels", "labels", default="e", help="NLI labels: e, c, n, ec, en, cn or ecn.")
@own_option("--granularity", default="sentence", help="Blocks of the texts that were compared.")
@own_option("--nli", metavar="MODEL", help="NLI model of their training, for the record.")
@json_option
def models_convert_summac(file: Path, out: Path, as_json: bool, **settings: str | None) -> None:
    """Convert published SummaC-Conv weights to safetensors, with their settings.

    Only tensors are read from a checkpoint; code in it is not run.
    """
    from claimscore.metrics.summac.convolution import convert_weights

    convert_weights(file, out, {name: value for name, value in settings.items() if value})
    print(json.dumps({"weights": str(out)}) if as_json else out)
