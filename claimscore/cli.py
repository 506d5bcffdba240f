"""The command line: arguments -> settings -> one call -> print. One function a command."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from claimscore import __version__
from claimscore.config import EncoderConfig, LLMConfig, RunConfig, read_toml, user_cache_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly

EXIT_OK, EXIT_BUG, EXIT_USAGE, EXIT_FAILED_RECORDS, EXIT_STOPPED = 0, 1, 2, 3, 75


def main() -> None:
    """The console script: every error of ours is one clear line and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop in good order
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: Sequence[str]) -> int:
    try:
        code = cli.main(args=list(arguments), prog_name="claimscore", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return EXIT_USAGE
    except StoppedEarly as exc:
        return _complain(f"stopped: {exc}; run the same command to go on", EXIT_STOPPED)
    except (KeyboardInterrupt, click.Abort):
        return _complain("stopped: interrupted; run the same command to go on", EXIT_STOPPED)
    except ConfigError as exc:
        return _complain(f"error: {exc}", EXIT_USAGE)
    except ClaimscoreError as exc:
        return _complain(f"error: {exc}", EXIT_BUG)
    except BrokenPipeError:  # `| head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    return code if isinstance(code, int) else EXIT_OK


def _complain(message: str, code: int) -> int:
    print(f"claimscore: {message}", file=sys.stderr)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="claimscore")
def cli() -> None:
    """Claim-level scores for text summaries.

    \b
    claimscore run pairs.jsonl --out runs/first      score pairs of summaries
    claimscore run pairs.jsonl --out runs/first      again: goes on where it stopped
    claimscore report runs/first                     look at the scores and the claims
    """


def _read_config(ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """`--config`: a TOML file whose keys are this command's options."""
    if value is not None:
        options = {
            str(param.name): param
            for param in ctx.command.params
            if isinstance(param, click.Option)
        }
        known = {opt.lstrip("-"): name for name, param in options.items() for opt in param.opts}
        defaults: dict[str, Any] = {}
        for key, setting in read_toml(value).items():
            name = known.get(key) or known.get(key.replace("_", "-"))
            if name is None:
                raise ConfigError(f"{value}: unknown option {key!r}; known: {', '.join(known)}")
            defaults[name] = _config_value(setting, options[name], f"{value}: {key}")
        ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return value


def _config_value(value: Any, option: click.Option, where: str) -> Any:
    """A setting as its option takes it; `ConfigError` for another type."""
    if option.multiple or option.callback is _names:
        items = [value] if isinstance(value, str) else value
        if not (isinstance(items, list) and all(isinstance(item, str) for item in items)):
            raise ConfigError(f"{where} must be a list of texts, not {value!r}")
        return items if option.multiple else ",".join(items)
    wanted: tuple[type, ...] = (str,)
    if option.is_flag:
        wanted = (bool,)
    elif option.type is click.INT:
        wanted = (int,)
    elif option.type is click.FLOAT:
        wanted = (int, float)
    if not isinstance(value, wanted) or (isinstance(value, bool) and not option.is_flag):
        raise ConfigError(f"{where} must be of type {wanted[-1].__name__}, not {value!r}")
    return value


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A comma-separated list of names."""
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def _prompt_choices(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """`TASK=VERSION|FILE`, each task once."""
    chosen = {}
    for value in values:
        task, equals, version = value.partition("=")
        if not (task and equals and version):
            raise click.BadParameter(f"{value!r} is not TASK=VERSION or TASK=FILE.toml")
        chosen[task] = version
    return chosen


def _options(*options: Callable[..., Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_DIR = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)

_llm_options = _options(
    click.option("--llm", default="builtin", show_default=True, help="builtin, openai:MODEL or openai-batch:MODEL."),
    click.option("--base-url", help="An OpenAI-compatible server; else OPENAI_BASE_URL."),
    click.option("--rpm", type=float, help="Requests a minute."),
    click.option("--tpm", type=float, help="Tokens a minute."),
    click.option("--max-concurrency", type=int, default=64, show_default=True),
    click.option("--timeout-s", type=float, default=120.0, show_default=True),
    click.option(
        "--max-outage-s",
        type=float,
        default=3600.0,
        show_default=True,
        help="How long to keep trying a server that does not answer.",
    ),
    click.option("--max-cost", type=float, metavar="USD", help="Stop before spending more."),
    click.option("--max-requests", type=int, help="Stop before sending more."),
    click.option("--max-failures", metavar="N|P%", help="Stop when more rows than this failed."),
    click.option("--input-price", type=float, help="Dollars a million prompt tokens."),
    click.option("--output-price", type=float, help="Dollars a million completion tokens."),
    click.option("--allow-http-key", is_flag=True, help="Send the key over plain http."),
    click.option("--cache-dir", type=_DIR, help="Where paid answers are kept."),
    click.option("--cache-namespace", help="Instead of the base URL in cache keys."),
)

_encoder_options = _options(
    click.option("--nli", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH."),
    click.option("--token-encoder", default="embedded", show_default=True),
    click.option("--token-layer", type=int, help="Layer of the token encoder."),
    click.option("--no-baseline", is_flag=True, help="Do not rescale BERTScore with its baseline."),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N."),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        default="float32",
        show_default=True,
    ),
    click.option("--offline", is_flag=True, help="Take models from disk only."),
)

_output_options = _options(
    click.option("--quiet", is_flag=True, help="No progress."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output."),
)


@cli.command()
@click.argument("input")
@click.option("--out", type=_DIR, required=True, help="The run directory.")
@click.option("--metrics", default="caspr,ds,bs-inverse", show_default=True, callback=_names)
@click.option("--tasks", callback=_names, help="decompose,paraphrase,negate,facts: write tables.")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    callback=_prompt_choices,
    metavar="TASK=VERSION|FILE",
    help="Another prompt for a task.",
)
@click.option("--prompts-dir", type=_DIR, help="Your own folder of prompts.")
@click.option(
    "--granularity",
    type=click.Choice(["sentence", "summary"]),
    default="sentence",
    show_default=True,
    help="One request a sentence, or one a summary.",
)
@click.option(
    "--units",
    type=click.Choice(["claims", "sentences"]),
    default="claims",
    show_default=True,
    help="What CASPR compares: decomposed claims, or sentences (no LLM asked).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option("--retry-failed", is_flag=True, help="Try failed rows again.")
@click.option("--config", type=_FILE, is_eager=True, expose_value=False, callback=_read_config)
@_llm_options
@_encoder_options
@_output_options
def run(quiet: bool, as_json: bool, **options: Any) -> int:
    """Score the records of INPUT (JSONL, Parquet, CSV, or - for JSONL on standard input).

    Run again after anything: it goes on where it stopped.
    """
    from claimscore.console import progress_display
    from claimscore.pipeline.run import run as run_pipeline

    config = run_config(**options)
    with progress_display(quiet or as_json) as show:
        result = run_pipeline(config, stdin=sys.stdin.buffer, on_progress=show)
    return _finish(result, as_json)


def run_config(**options: Any) -> RunConfig:
    """The command's options as settings."""
    llm = llm_config(options)
    encoders = EncoderConfig(
        rescale_with_baseline=not options["no_baseline"],
        **{
            name: options[name]
            for name in ("nli", "token_encoder", "token_layer", "device", "dtype", "offline")
        },
    )
    names = (
        "input",
        "out",
        "metrics",
        "tasks",
        "prompts",
        "prompts_dir",
        "granularity",
        "units",
        "cache_dir",
        "seed",
        "retry_failed",
    )
    return RunConfig(llm=llm, encoders=encoders, **{name: options[name] for name in names})


def llm_config(options: Mapping[str, Any]) -> LLMConfig:
    """The options of `_llm_options` as settings."""
    names = (
        "base_url",
        "rpm",
        "tpm",
        "max_concurrency",
        "timeout_s",
        "max_outage_s",
        "max_cost",
        "max_requests",
        "max_failures",
        "input_price",
        "output_price",
        "allow_http_key",
        "cache_namespace",
    )
    return LLMConfig(model=options["llm"], **{name: options[name] for name in names})


def _finish(result: Any, as_json: bool) -> int:
    """The report, the table (or JSON), and the exit code."""
    from claimscore.console import print_result
    from claimscore.report.run import write_run_report

    write_run_report(result.out)
    if as_json:
        print(json.dumps(result.summary, ensure_ascii=False))
    else:
        print_result(result.summary, str(result.out))
    return EXIT_FAILED_RECORDS if result.failed_records else EXIT_OK


@cli.command()
@click.argument("directory", type=_DIR)
@click.option("--metrics", required=True, callback=_names)
@_output_options
def score(directory: Path, metrics: tuple[str, ...], quiet: bool, as_json: bool) -> int:
    """Add metrics to a run: only the stages that are missing are done."""
    from claimscore.console import print_plan, progress_display
    from claimscore.pipeline.run import score as score_pipeline

    silent = quiet or as_json
    with progress_display(silent) as show:
        result = score_pipeline(
            directory, metrics, on_plan=None if silent else print_plan, on_progress=show
        )
    return _finish(result, as_json)


@cli.command()
@click.argument("directory", type=_DIR)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def status(directory: Path, as_json: bool) -> None:
    """What is done, failed and left of a run."""
    from claimscore.console import print_status
    from claimscore.pipeline.status import run_status

    state = run_status(directory)
    if as_json:
        print(json.dumps(state, ensure_ascii=False))
    else:
        print_status(state)


@cli.command()
@click.argument("directory", type=_DIR)
def report(directory: Path) -> None:
    """Write DIRECTORY/report.html: one file, no network needed."""
    from claimscore.report.run import write_run_report

    print(write_run_report(directory))


@cli.group()
def prompts() -> None:
    """The prompts and their versions."""


@prompts.command("list")
@click.option("--prompts-dir", type=_DIR)
def prompts_list(prompts_dir: Path | None) -> None:
    """Every prompt, its versions, digests and what changed."""
    from claimscore.console import print_rows
    from claimscore.prompts import available_versions, load_prompt, prompt_names

    found = [
        load_prompt(name, version, prompts_dir)
        for name in prompt_names()
        for version in available_versions(name, prompts_dir)
    ]
    rows = [(p.name, p.version, p.digest, p.changes) for p in found]
    print_rows(("prompt", "version", "digest", "changes"), rows)


@prompts.command("show")
@click.argument("task")
@click.option("--prompts-dir", type=_DIR)
def prompts_show(task: str, prompts_dir: Path | None) -> None:
    """One prompt as it is sent: TASK or TASK=VERSION."""
    from claimscore.prompts import load_prompt

    name, _, version = task.partition("=")
    prompt = load_prompt(name, version or "v1", prompts_dir)
    print(f"{prompt.name} {prompt.version} @{prompt.digest}")
    print(f"temperature {prompt.settings.temperature}, max_tokens {prompt.settings.max_tokens}")
    for role, content in prompt.render(**{name: f"${name}" for name in prompt.fields}):
        print(f"\n[{role}]\n{content}")
    if prompt.schema:
        print(f"\n[output schema]\n{json.dumps(prompt.schema.schema, indent=2)}")


@cli.group()
def cache() -> None:
    """The cache of paid answers."""


@cache.command("stats")
@click.option("--cache-dir", type=_DIR)
def cache_stats(cache_dir: Path | None) -> None:
    """How many answers are kept, how large they are, and where."""
    from claimscore.cache.store import DiskCache

    folder = cache_dir or user_cache_dir()
    store = DiskCache(folder)
    try:
        print(json.dumps({"folder": str(folder), **dataclasses.asdict(store.stats())}, indent=2))
    finally:
        store.close()


@cli.group()
def models() -> None:
    """The models that judge."""


@models.command("list")
def models_list() -> None:
    """The built-in choices, and how to name others."""
    from claimscore.console import print_rows
    from claimscore.pipeline.models import MODEL_CHOICES

    print_rows(("option", "value", "what it is"), MODEL_CHOICES)


@cli.group()
def train() -> None:
    """Train what claimscore ships, or your own on your data."""


@train.command("nli")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    required=True,
    help="Parquet files of labelled pairs, or folders of train*.parquet and dev_*.parquet.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--backbone", type=_DIR, help="A folder with all-MiniLM-L6-v2.")
@click.option("--samples", type=int, help="Pairs in all; the default is the shipped adapter's.")
@click.option("--seed", type=int, default=0, show_default=True)
@_output_options
def train_nli(out: Path, quiet: bool, as_json: bool, **options: Any) -> None:
    """Train an adapter of the embedded NLI model; run again to go on from a checkpoint."""
    from claimscore.console import print_training, training_display
    from claimscore.training.evaluate_nli import train_nli as train_and_evaluate
    from claimscore.training.nli import NLITrainingConfig

    given = {name: value for name, value in options.items() if value is not None}
    config = NLITrainingConfig(out=out, **given)
    result = train_and_evaluate(config, training_display(quiet or as_json))
    print_training(result, as_json)
