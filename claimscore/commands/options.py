"""Options that several commands take, and what they are as settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from claimscore.config import EncoderConfig, LLMConfig, RunConfig, path_or_address, read_toml
from claimscore.errors import ConfigError
from claimscore.storage import is_remote

#: Exit statuses, as the README has them.
EXIT_OK, EXIT_BUG, EXIT_USAGE, EXIT_FAILED_RECORDS, EXIT_STOPPED = 0, 1, 2, 3, 75


def complete_file(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shell's own files and folders."""
    return [CompletionItem(incomplete, type="file")]


def read_config(ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
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
    if option.multiple or option.callback is names:
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


def names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A comma-separated list of names."""
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def complete_metrics(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """Lists whose last name is one of a metric that begins so, for the user's shell."""
    from claimscore.metrics import METRICS

    before, comma, last = typed.rpartition(",")
    return [f"{before}{comma}{name}" for name in METRICS if name.startswith(last)]


def prompt_choices(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """`TASK=VERSION|FILE`, each task once."""
    chosen: dict[str, str] = {}
    for value in values:
        task, equals, version = value.partition("=")
        if not (task and equals and version):
            raise click.BadParameter(f"{value!r} is not TASK=VERSION or TASK=FILE.toml")
        if chosen.get(task, version) != version:
            raise click.BadParameter(f"{task} is given twice: {chosen[task]} and {version}")
        chosen[task] = version
    return chosen


def _options(*options: Callable[..., Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class FileOrAddress(click.Path):
    """A file as a path, or in an object store or on a web server as the text of its address."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(exists=exists, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if is_remote(value) else super().convert(value, param, ctx)


class _Folder(click.Path):
    """A folder on a disk."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "://" in value:
            self.fail("an address; name a local folder", param, ctx)
        return super().convert(value, param, ctx)


class _RunFolder(click.Path):
    """A run directory: a folder on a disk, or an address as `s3://bucket/runs/a`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = path_or_address(value)
        return found if isinstance(found, str) else super().convert(value, param, ctx)


FOLDER = _Folder(path_type=Path, file_okay=False)
RUN_FOLDER = _RunFolder(path_type=Path, file_okay=False)
RUN_PATH = _RunFolder(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)

config_option = click.option(
    "--config",
    type=FILE,
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="TOML with options of this command.",
)

llm_options = _options(
    click.option(
        "--llm",
        default="builtin",
        show_default=True,
        help="builtin, openai:MODEL or openai-batch:MODEL.",
    ),
    click.option(
        "--base-url",
        multiple=True,
        metavar="URL",
        help="An OpenAI-compatible server; else OPENAI_BASE_URL. Several of the same model by one "
        "--base-url each: --rpm, --tpm, --max-concurrency are those of each.",
    ),
    click.option("--rpm", type=float, help="Requests a minute."),
    click.option("--tpm", type=float, help="Tokens a minute."),
    click.option(
        "--max-concurrency",
        type=int,
        default=64,
        show_default=True,
        help="The most requests in flight at a time.",
    ),
    click.option(
        "--timeout-s",
        type=float,
        default=120.0,
        show_default=True,
        help="How long to wait for an answer before the request counts as failed and is repeated.",
    ),
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
    click.option("--cache-dir", type=FOLDER, help="Where paid answers are kept."),
    click.option("--cache-namespace", help="Instead of the base URLs in cache keys."),
)

encoder_options = _options(
    click.option(
        "--nli", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH, tei:URL."
    ),
    click.option(
        "--embedder",
        default="embedded",
        show_default=True,
        help="Sentence encoder; or HF_ID[@REV], PATH, tei:URL, openai:MODEL@URL.",
    ),
    click.option(
        "--token-encoder",
        default="embedded",
        show_default=True,
        help="For BERTScore and metrics of tokens; or HF_ID[@REV], PATH.",
    ),
    click.option("--ls-model", help="For ls-score: a folder made by train ls-score."),
    click.option("--causal-lm", help="For perplexity: HF_ID[@REV] or PATH."),
    click.option("--seq2seq-lm", help="For bart-score: HF_ID[@REV] or PATH."),
    click.option("--token-layer", type=int, help="Layer of the token encoder."),
    click.option("--no-baseline", is_flag=True, help="Do not rescale BERTScore with its baseline."),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        help="auto (every GPU, else the CPU), cpu, cuda (every GPU), cuda:N, or several: "
        "cuda:0,cuda:2.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        default="float32",
        show_default=True,
        help="What models compute in; float16 needs a GPU.",
    ),
    click.option("--offline", is_flag=True, help="Take models from disk only."),
    click.option("--no-model-store", is_flag=True, help="Compute what models said before again."),
)

metric_file_option = click.option(
    "--metric-file",
    "metric_files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Python with metrics of your own; it is run.",
)

engine_options = _options(
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Work in this process, or on Ray: claimscore[ray].",
    ),
    click.option(
        "--address",
        metavar="auto|HOST:PORT",
        help="The Ray cluster; else Ray is started on this machine for this call.",
    ),
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output."
)

output_options = _options(
    click.option("--quiet", is_flag=True, help="No progress."),
    json_option,
)


def run_config(**options: Any) -> RunConfig:
    """The command's options as settings."""
    llm = llm_config(options)
    encoders = EncoderConfig(
        rescale_with_baseline=not options["no_baseline"],
        **{
            name: options[name]
            for name in (
                *("nli", "embedder", "token_encoder", "token_layer"),
                *("ls_model", "causal_lm", "seq2seq_lm", "device", "dtype", "offline"),
                *("max_outage_s", "allow_http_key"),
            )
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
        "metric_files",
    )
    return RunConfig(
        llm=llm,
        encoders=encoders,
        model_store=not options["no_model_store"],
        engine=options.get("engine", "local"),
        address=options.get("address"),
        **{name: options[name] for name in names},
    )


def llm_config(options: Mapping[str, Any]) -> LLMConfig:
    """The options of `llm_options` as settings."""
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
