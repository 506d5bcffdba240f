"""The command line: arguments -> settings -> one call -> print. One function a command."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore import __version__
from claimscore.config import EncoderConfig, LLMConfig, RunConfig, read_toml, user_cache_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly

if TYPE_CHECKING:
    from claimscore.cache.store import DiskCache
    from claimscore.cache.transfer import RefusedLine
    from claimscore.cache.verify import DamagedEntry

#: Why standard output cannot be written, beside a reader that has gone.
_NO_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}

EXIT_OK, EXIT_BUG, EXIT_USAGE, EXIT_FAILED_RECORDS, EXIT_STOPPED = 0, 1, 2, 3, 75

#: Seconds between two looks of `status --watch`.
WATCH_INTERVAL_S = 2.0


def main() -> None:
    """The console script: every error of ours is one clear line and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop in good order
    _open_streams()
    sys.exit(_main(sys.argv[1:]))


def _open_streams() -> None:
    """Streams that the caller closed read and write nothing; what a terminal cannot show is
    escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _main(arguments: Sequence[str]) -> int:
    try:
        _refuse_bytes(arguments)
        code = cli.main(args=list(arguments), prog_name="claimscore", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as exc:
        exc.show()
        return EXIT_USAGE
    except StoppedEarly as exc:
        how = "" if "the same command" in str(exc) else "; run the same command to go on"
        return _complain(f"stopped: {exc}{how}", EXIT_STOPPED)
    except (KeyboardInterrupt, click.Abort):
        return _complain("stopped: interrupted; run the same command to go on", EXIT_STOPPED)
    except ConfigError as exc:
        return _complain(f"error: {exc}", EXIT_USAGE)
    except ClaimscoreError as exc:
        return _complain(f"error: {exc}", EXIT_BUG)
    except (BrokenPipeError, SystemExit):  # `| head`: who reads has seen enough; click exits then
        _drop_output()
        return EXIT_OK
    except OSError as exc:
        if exc.filename is not None or exc.errno not in _NO_OUTPUT:
            raise
        _drop_output()
        return _complain(f"stopped: what was to be printed is lost: {exc.strerror}", EXIT_STOPPED)
    return code if isinstance(code, int) else EXIT_OK


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Arguments that are no text could be neither kept nor shown."""
    for number, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"argument {number} is not UTF-8 text") from None


def _drop_output() -> None:
    """Let nothing more be written, also not when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
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
    click.option(
        "--llm",
        default="builtin",
        show_default=True,
        help="builtin, openai:MODEL or openai-batch:MODEL.",
    ),
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
        print(json.dumps(result.summary))
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
@click.argument("path", metavar="DIRECTORY|FILE", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Again every two seconds, until it is not at work.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def status(path: Path, watch: bool, as_json: bool) -> None:
    """What is done, failed, spent and left of a run or of a map, and when it will end.

    A run is named by its folder, a map by the file that it writes.
    """
    from claimscore.console import print_status, watch_status
    from claimscore.pipeline.mapping import map_place, map_status
    from claimscore.pipeline.status import run_status

    def look() -> dict[str, Any]:
        place = map_place(path)
        return run_status(path) if place is None else map_status(place)

    if watch:
        watch_status(look, WATCH_INTERVAL_S)
        return
    state = look()
    if as_json:
        print(json.dumps(state))
    else:
        print_status(state)


def _params_of_run() -> list[click.Parameter]:
    """The options of `run`, of which `--out` may be left out."""
    given = click.Option(["--out"], type=_DIR, help="A run directory: what is done there counts.")
    return [given if param.name == "out" else param for param in run.params]


@cli.command(params=_params_of_run())
def estimate(quiet: bool, as_json: bool, **options: Any) -> None:
    """Requests, tokens, dollars and hours of `run INPUT ...` with the same options.

    Minus what the cache has. Spends nothing, sends nothing.
    """
    from claimscore.console import print_estimate
    from claimscore.pipeline.estimate import estimate_run

    out = options["out"]
    config = run_config(**{**options, "out": out or Path()})
    found = estimate_run(config, out=out, stdin=sys.stdin.buffer).to_json()
    if as_json:
        print(json.dumps({"input": config.input, **found}))
    else:
        print_estimate(found)


@cli.command()
@click.argument("directory", type=_DIR)
def report(directory: Path) -> None:
    """Write DIRECTORY/report.html: one file, no network needed."""
    from claimscore.report.run import write_run_report

    print(write_run_report(directory))


@cli.command("map")
@click.argument("input")
@click.option(
    "--prompt",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="A prompt file; its $columns are those of INPUT.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The Parquet file to write.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed rows again.")
@click.option("--estimate", is_flag=True, help="Say what it would cost; ask and write nothing.")
@click.option("--config", type=_FILE, is_eager=True, expose_value=False, callback=_read_config)
@_llm_options
@_output_options
def map_table(quiet: bool, as_json: bool, estimate: bool, **options: Any) -> int:
    """Ask a prompt about every row of INPUT (JSONL, Parquet, CSV; -: JSONL on standard input).

    Run again after anything: it goes on where it stopped.
    """
    from claimscore.console import map_display, print_estimate, print_map_result
    from claimscore.pipeline.mapping import MapConfig, estimate_map, map

    names = ("input", "prompt", "out", "cache_dir", "retry_failed")
    config = MapConfig(llm=llm_config(options), **{name: options[name] for name in names})
    if estimate:
        found = estimate_map(config, stdin=sys.stdin.buffer).to_json()
        if as_json:
            print(json.dumps({"input": options["input"], **found}))
        else:
            print_estimate(found)
        return EXIT_OK
    with map_display(quiet or as_json) as show:
        result = map(config, stdin=sys.stdin.buffer, on_progress=show)
    if as_json:
        print(json.dumps(result.summary))
    else:
        print_map_result(result.summary)
    return EXIT_FAILED_RECORDS if result.failed else EXIT_OK


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
@click.option("--toml", is_flag=True, help="The prompt file, to be copied and changed.")
def prompts_show(task: str, prompts_dir: Path | None, toml: bool) -> None:
    """One prompt as it is sent: TASK or TASK=VERSION."""
    from claimscore.prompts import load_prompt, prompt_source

    name, _, version = task.partition("=")
    if toml:
        print(prompt_source(name, version or "v1", prompts_dir), end="")
        return
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


_cache_dir_option = click.option("--cache-dir", type=_DIR, help="Else the user's cache folder.")
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@contextlib.contextmanager
def _opened_cache(cache_dir: Path | None, *, new: bool = False) -> Iterator[DiskCache]:
    """The cache in the folder, which must have one unless it may be `new`."""
    from claimscore.cache.store import DiskCache

    folder = cache_dir or user_cache_dir()
    if not new and not DiskCache.is_in(folder):
        raise ConfigError(f"{folder}: no cache here; name its folder with --cache-dir")
    store = DiskCache(folder, on_notice=lambda text: print(f"claimscore: {text}", file=sys.stderr))
    try:
        yield store
    finally:
        store.close()


def _tell(as_json: bool, found: Mapping[str, Any], text: str) -> None:
    print(json.dumps(found) if as_json else text)


@cache.command("stats")
@_cache_dir_option
@_json_option
def cache_stats(cache_dir: Path | None, as_json: bool) -> None:
    """Where the answers are kept, how many, how large, of which models."""
    from claimscore.cache.store import DiskCache
    from claimscore.cache.upkeep import CacheDetails, details

    folder = cache_dir or user_cache_dir()
    found = CacheDetails()
    if DiskCache.is_in(folder):
        with _opened_cache(folder) as store:
            found = details(store)
    _tell(as_json, {"folder": str(folder), **found.to_json()}, f"{folder}\n{found.text()}")


@cache.command("verify")
@_cache_dir_option
@click.option("--repair", is_flag=True, help="Move what is damaged away, to be bought again.")
@_json_option
def cache_verify(cache_dir: Path | None, repair: bool, as_json: bool) -> int:
    """Hash every stored answer again and check the database (status 3: damage found)."""
    from claimscore.cache.verify import verify

    def show(damaged: DamagedEntry) -> None:
        if not as_json:
            print(f"damaged: {damaged.key}: {damaged.reason}")

    with _opened_cache(cache_dir) as store:
        found = verify(store, repair=repair, on_damage=show)
    _tell(as_json, found.to_json(), found.text())
    return EXIT_OK if found.is_clean else EXIT_FAILED_RECORDS


@cache.command("prune")
@_cache_dir_option
@click.option("--older-than", required=True, metavar="AGE", help="30d, 12h, 90m, 2w.")
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@_json_option
def cache_prune(cache_dir: Path | None, older_than: str, dry_run: bool, as_json: bool) -> None:
    """Remove the answers that were bought longer ago than AGE. Asks nothing."""
    from claimscore.cache.upkeep import age_s, prune

    age = age_s(older_than)
    with _opened_cache(cache_dir) as store:
        found = prune(store, age, dry_run=dry_run)
    _tell(as_json, {**found._asdict(), "dry_run": dry_run}, found.text(dry_run))


@cache.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_cache_dir_option
@_json_option
def cache_export(file: Path, cache_dir: Path | None, as_json: bool) -> int:
    """Write all answers into FILE for a colleague; FILE.gz is compressed."""
    from claimscore.cache.transfer import export_answers

    with _opened_cache(cache_dir) as store:
        found = export_answers(store, file)
    _tell(as_json, {"file": str(file), **found._asdict()}, f"{file}: {found.text()}")
    return EXIT_FAILED_RECORDS if found.damaged else EXIT_OK


@cache.command("import")
@click.argument("file", type=_FILE)
@_cache_dir_option
@_json_option
def cache_import(file: Path, cache_dir: Path | None, as_json: bool) -> int:
    """Add the answers of an exported FILE; those that are there already stay.

    Damaged lines are refused. That an answer belongs to its key is the word of whoever made
    the file: take files from people you trust.
    """
    from claimscore.cache.transfer import import_answers

    def show(line: RefusedLine) -> None:
        print(f"claimscore: {file}: line {line.number} refused: {line.reason}", file=sys.stderr)

    with _opened_cache(cache_dir, new=True) as store:
        found = import_answers(store, file, on_refused=show)
    _tell(as_json, {"file": str(file), **found._asdict()}, f"{file}: {found.text()}")
    return EXIT_OK if found.is_whole else EXIT_FAILED_RECORDS


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
