"""Frozen settings of a run, and the options of the command line that they are named by.

This module is also the only reader of TOML settings and of the environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from claimscore.errors import ConfigError
from claimscore.option import (
    argument,
    check_above_zero,
    check_least,
    check_types,
    essential_option,
    fits,
    like,
    limit_option,
    llm_option,
    machine_option,
    metric_option,
    model_option,
    take_texts,
    types_of,
)

Granularity = Literal["sentence", "summary"]
Units = Literal["claims", "sentences"]
Dedupe = Literal["none", "entailed"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
Runner = Literal["local", "ray"]

TASK_NAMES = (
    *("decompose", "paraphrase", "negate", "facts", "judge", "questions", "answers", "verify"),
)


class FailureLimit(NamedTuple):
    """How many rows, or which share of them, may fail before a run stops."""

    rows: int | None = None
    share: float | None = None


#: The language model where none is named.
DEFAULT_LLM = "builtin"

#: After a family's name: its batch jobs.
BATCH = "-batch"

#: The verifier that is the language model of `--llm`.
LLM_VERIFIER = "llm"

#: Fields of `LLMConfig` that are of one server: another one has none of the run's.
OF_A_SERVER = (
    *("base_url", "key_variable", "params", "headers", "cache_namespace"),
    *("rpm", "tpm", "max_concurrency"),
)
#: Fields that may be given by task, `{"verify": 600}`; under "" is what holds for the others.
BY_TASK = (
    *("model", "key_variable", "cache_namespace", "rpm", "tpm", "max_concurrency"),
    *("input_price", "output_price"),
)

#: The options of `EncoderConfig` for commands that ask an NLI model only.
NLI_OPTIONS = ("nli", "device", "dtype", "offline")


@dataclasses.dataclass(frozen=True, slots=True)
class LLMConfig:
    """Where the language model is and how it may be used.

    `base_url` is an address, or several of servers of the same model; then `rpm`, `tpm` and
    `max_concurrency` are those of each. `params` are JSON values by name that every request gets
    besides; `headers` are environment variables by the name of the header that has their value.
    `max_attempts` are those at one request, `max_samples` the answers to a question until one can
    be used. Prices are dollars a million tokens, for models that the price table does not know;
    `max_failures` is a count ("50") or a share of the rows asked ("5%"). `offline` takes the
    weights of `builtin` from disk only.

    `by_task` has what a task asks in place of it: a model, also at a server of its own
    (`{"verify": "openai:NAME@http://gpu:8000/v1"}`), or those of the fields `BY_TASK` that differ
    (`{"verify": {"model": ..., "rpm": 600}}`). `of` puts them together. `key_variable` is the
    environment variable with the key: None is the vendor's own, "" is none.
    """

    model: str = essential_option(
        DEFAULT_LLM,
        name="llm",
        short="l",
        metavar="[TASK=]MODEL",
        by_task=True,
        help="Language model, as openai:NAME (see models list); for one task TASK=MODEL or "
        "TASK=MODEL@URL.",
    )
    by_task: Mapping[str, str | Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    key_variable: str | None = llm_option(
        None,
        name="key",
        metavar="[TASK=]VARIABLE",
        by_task=True,
        help="Environment variable with the server's key.",
    )
    params: Mapping[str, Any] = llm_option(
        dict,
        name="llm-param",
        kind="json",
        metavar="KEY=JSON",
        help="Parameter sent to the server as it stands, as seed=1. May be repeated.",
    )
    headers: Mapping[str, str] = llm_option(
        dict,
        name="header",
        metavar="NAME=VARIABLE",
        help="HTTP header whose value is in an environment variable. May be repeated.",
    )
    base_url: str | Sequence[str] | None = llm_option(
        None,
        repeated=True,
        metavar="URL",
        help="Server, not the vendor's. May be repeated.",
    )
    rpm: float | None = limit_option(
        None,
        metavar="[TASK=]N",
        by_task=True,
        help="Most requests a minute to a model at a server.",
    )
    tpm: float | None = limit_option(
        None, metavar="[TASK=]N", by_task=True, help="Most tokens a minute to a model at a server."
    )
    max_concurrency: int = limit_option(
        64, metavar="[TASK=]N", by_task=True, help="Most in flight to a model at a server."
    )
    timeout_s: float = limit_option(120.0, kind="duration", help="Time to wait for an answer.")
    max_attempts: int = 8
    max_samples: int = 3
    max_outage_s: float = limit_option(
        3600.0, kind="duration", help="Time to wait for a server that is down."
    )
    max_cost: float | None = essential_option(
        None, metavar="USD", help="Stop before the run spends more dollars."
    )
    max_requests: int | None = limit_option(None, help="Stop before the run sends more requests.")
    max_failures: str | None = limit_option(
        None, metavar="N|P%", help="Stop when more rows, or a larger share, fail."
    )
    input_price: float | None = llm_option(
        None,
        metavar="[TASK=]USD",
        by_task=True,
        hidden=True,
        help="Price of a million prompt tokens, where it is not known.",
    )
    output_price: float | None = llm_option(
        None,
        metavar="[TASK=]USD",
        by_task=True,
        hidden=True,
        help="Price of a million answer tokens, where it is not known.",
    )
    allow_http_key: bool = llm_option(
        False, hidden=True, help="Send keys over plain http to other machines too."
    )
    cache_namespace: str | None = llm_option(
        None,
        metavar="[TASK=]NAME",
        by_task=True,
        hidden=True,
        help="Name for the server in the cache, in place of its address.",
    )
    offline: bool = False

    @property
    def family(self) -> str:
        """The vendor, as `PROVIDERS` names it."""
        return self.model.partition(":")[0].removesuffix(BATCH)

    @property
    def is_batch(self) -> bool:
        """Whether answers come in batch jobs."""
        return self.model.partition(":")[0].endswith(BATCH)

    @property
    def model_name(self) -> str:
        """The model's name at its server."""
        return self.model.partition(":")[2]

    def of(self, task: str) -> LLMConfig:
        """The settings of the model that a task asks: those of the run, or its own.

        Another model of the same family is asked at the run's server, as the run's model is but
        for its price. Another server has none of the fields `OF_A_SERVER`, so no key of the run's.
        """
        given = _given(self.by_task.get(task, {}))
        asked = dataclasses.replace(self, by_task={})
        model, url = _address(given.pop("model", self.model))
        fields: dict[str, Any] = {}
        if model != self.model:
            fields = dict.fromkeys(("input_price", "output_price"))
        if url or model.partition(":")[0].removesuffix(BATCH) != self.family:
            plain = LLMConfig()
            fields |= {name: getattr(plain, name) for name in OF_A_SERVER}
            fields |= {"base_url": url, "key_variable": "" if url else None}
        return dataclasses.replace(asked, model=model, **{**fields, **given})

    def key(self, variable: str | None) -> str | None:
        """The key for the server, which the environment has; `variable` is its vendor's own.

        None where the server gets none; `ConfigError` where the one that is named is not set.
        """
        name = variable if self.key_variable is None else self.key_variable
        key = environment(name or "")
        if self.key_variable and key is None:
            raise ConfigError(f"--key: the environment variable {_shown(name or '')} is not set")
        return key

    def key_name(self, variable: str | None) -> str | None:
        """Where people look for the key; `variable` is its vendor's own."""
        named = {None: variable, "": "--key TASK=VARIABLE"}
        return named.get(self.key_variable, self.key_variable)

    def _check_tasks(self) -> None:
        """`ConfigError` for a task that there is not, and for what a task cannot have."""
        _refuse_unknown_tasks(self.by_task)
        for task, given in self.by_task.items():
            unknown = _given(given).keys() - set(BY_TASK)
            if unknown:
                raise ConfigError(
                    f"by_task: {task} can have {', '.join(BY_TASK)}, not {', '.join(unknown)}"
                )
            asked = self.of(task)
            if re.search(r"@[\w.-]+:\d+(/|$)", asked.model):
                raise ConfigError(f"--llm {task}={asked.model}: write http:// or https:// after @")
            if asked.is_batch and "model" in _given(given):
                raise ConfigError(f"--llm {task}={asked.model}: batch jobs are for a whole run")

    def __post_init__(self) -> None:
        _gather_tasks(self)
        check_types(self)
        if _address(self.model)[1]:
            raise ConfigError("--llm: name the run's server with --base-url, not after @")
        if self.key_variable and not re.fullmatch(r"[A-Za-z_]\w*", self.key_variable):
            raise ConfigError("--key: write the name of an environment variable, not the key")
        urls = self.base_urls
        object.__setattr__(self, "base_url", urls[0] if len(urls) == 1 else urls or None)
        for name, value in self.params.items():
            if problem := extra_problem(name, value):
                raise ConfigError(f"--llm-param {name}: {problem}")
        for name, variable in self.headers.items():
            _check_header(name, variable)
        check_above_zero(self, "rpm", "tpm", "timeout_s")
        check_least(self, max_concurrency=1, max_attempts=1, max_samples=1, max_outage_s=0)
        check_least(self, max_cost=0, max_requests=0, input_price=0, output_price=0)
        if (self.input_price is None) != (self.output_price is None):
            raise ConfigError("--input-price and --output-price go together")
        self.failure_limit()
        self._check_tasks()

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The addresses that were given, each once; none where the environment decides."""
        given = (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()
        return tuple(dict.fromkeys(filter(str.strip, given)))

    def failure_limit(self) -> FailureLimit | None:
        """`max_failures` ("50" or "5%") as numbers; None where nothing bounds them."""
        if self.max_failures is None:
            return None
        text = self.max_failures.strip()
        number = text.removesuffix("%")
        if not re.fullmatch(r"\d+(\.\d+)?" if text.endswith("%") else r"\d+", number):
            raise ConfigError(f"--max-failures {text}: a count such as 50, or a share such as 5%")
        if text.endswith("%"):
            if float(number) > 100:
                raise ConfigError(f"--max-failures {text}: a share is at most 100%")
            return FailureLimit(share=float(number) / 100)
        return FailureLimit(rows=int(number))


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Which models judge, and where they run."""

    nli: str = model_option(
        "embedded",
        metavar="MODEL",
        help="NLI model: embedded, HF_ID[@REV], a folder, tei:URL.",
    )
    verifier: str = model_option(
        "nli",
        metavar="MODEL,...",
        help="As --nli, or llm; several vote.",
    )
    second_opinion: Literal["all", "unsure"] = model_option(
        "all", hidden=True, help="Claims that the second verifier is asked about."
    )
    verifier_labels: tuple[str, ...] = model_option(
        (),
        hidden=True,
        help="Meaning of the verifier's outputs, in order, as unsupported,supported.",
    )
    embedder: str = model_option(
        "embedded",
        metavar="MODEL",
        help="Sentence encoder: as --nli, or openai:NAME@URL.",
    )
    token_encoder: str = model_option(
        "embedded",
        metavar="MODEL",
        help="Encoder of token metrics: embedded, HF_ID[@REV], a folder.",
    )
    ls_model: str | None = model_option(
        None, metavar="DIR", help="Model of ls-score, made by train ls-score."
    )
    causal_lm: str | None = model_option(
        None, metavar="MODEL", help="Model of perplexity: HF_ID[@REV], a folder."
    )
    seq2seq_lm: str | None = model_option(
        None, metavar="MODEL", help="Model of bart-score: HF_ID[@REV], a folder."
    )
    masked_lm: str | None = model_option(
        None, metavar="MODEL", help="Model of blanc: HF_ID[@REV], a folder."
    )
    token_layer: int | None = model_option(
        None, hidden=True, help="Layer of the token encoder to use."
    )
    rescale_with_baseline: bool = model_option(
        True, name="baseline", hidden=True, help="Rescale BERTScore with the model's baseline."
    )
    device: str = model_option(
        "auto",
        metavar="DEVICE",
        help="Device: auto, cpu, cuda (all GPUs), cuda:N, or a list of them.",
    )
    dtype: DType = model_option(
        "auto",
        help="Number format of the models you name; auto: bfloat16 where faster.",
    )
    batch_tokens: int | None = model_option(
        None, hidden=True, help="Tokens that a model gets at once; default: by device."
    )
    offline: bool = model_option(False, help="Take models from disk only.")
    max_outage_s: float = like(LLMConfig, "max_outage_s")  # of a model's server
    allow_http_key: bool = like(LLMConfig, "allow_http_key")

    def __post_init__(self) -> None:
        take_texts(self)
        check_least(self, batch_tokens=1, max_outage_s=0)
        if self.second_opinion == "unsure" and len(self.verifiers) != 2:
            raise ConfigError("--second-opinion unsure: name two verifiers, as nli,llm")
        models = ("nli", "verifier", "embedder", "token_encoder")
        for role in (*models, "ls_model", "causal_lm", "seq2seq_lm", "masked_lm"):
            for name in (getattr(self, role) or "").split(","):
                refuse_secrets(name, role)

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The verifiers in the order of their names, each once; the model of `nli` is "nli"."""
        names = (name.strip() for name in self.verifier.split(","))
        return tuple(dict.fromkeys("nli" if name == self.nli else name for name in names))

    @property
    def judges(self) -> tuple[str, ...]:
        """The verifiers that are models of the model stage."""
        return tuple(name for name in self.verifiers if name != LLM_VERIFIER)

    @property
    def llm_is_second(self) -> bool:
        """Whether the language model is asked about what another verifier is unsure of."""
        return self.second_opinion == "unsure" and self.verifiers[1] == LLM_VERIFIER

    def role_of(self, role: str) -> str:
        """The role whose model does the work of this one: that of `verifier` is done by `nli`
        where `--verifier` names no other model."""
        return "nli" if role == "verifier" and self.judges == ("nli",) else role


@dataclasses.dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that one `claimscore run` was asked for.

    `input` is a path, a pattern, an address, "-" (JSONL on standard input), or rows in memory: a
    polars or pandas DataFrame, a Dataset of Hugging Face, an Arrow table, a list of dicts. One name
    may stand for several, and a text for a path: `metrics="ds"`, `llm="openai:gpt-4o-mini"`.
    Without `metrics` the columns of the first record choose them. `out` is a folder, or the address
    of one in an object store (`s3://bucket/runs/a`). `address` is that of a Ray cluster; None
    starts Ray on this machine. `chunk_records` are worked on together; 0 is 64, or fewer where a
    server answers about few records. With `keep_models` they stay loaded for the next run of this
    process.
    """

    input: str | Any = argument(
        help="Records: JSONL, Parquet or CSV; - is JSONL on standard input.", repr=False
    )
    out: Path | str = essential_option(
        kind="run",
        short="o",
        metavar="DIR",
        help="Run directory to write: a folder, or s3://bucket/runs/a.",
    )
    metrics: tuple[str, ...] | None = essential_option(
        None,
        short="m",
        kind="metrics",
        help="Metrics, as faithfulness,ds; default: by columns.",
    )
    tasks: tuple[str, ...] = metric_option(
        (), help=f"Tables to write in any case: {', '.join(TASK_NAMES[:4])}."
    )
    prompts: Mapping[str, str] = essential_option(
        dict,
        name="prompt",
        short="p",
        metavar="TASK=PROMPT",
        help="Prompt of a task: a version or a file.",
    )
    prompts_dir: Path | None = llm_option(
        None, kind="folder", help="Folder with prompts of your own."
    )
    granularity: Granularity = llm_option("sentence", help="Text of one request.")
    calibration: Path | None = model_option(
        None,
        kind="file",
        hidden=True,
        help="Calibration of the verifier, made by claimscore calibrate.",
    )
    verify_samples: int = llm_option(
        1, metavar="N", hidden=True, help="Answers of --verifier llm to each question, which vote."
    )
    units: Units = metric_option("claims", help="Texts that caspr compares.")
    dedupe: Dedupe = metric_option("none", help="Leave out entailed claims.")
    window_tokens: int = llm_option(
        3000,
        metavar="N",
        hidden=True,
        help="Most tokens of a source (4 bytes each) in a question of --verifier llm.",
    )
    columns: Mapping[str, str] = essential_option(
        dict,
        metavar="NAME=COLUMN,...",
        help="Columns to read, as source=article,summary=text.",
    )
    limit: int | None = essential_option(None, help="Read only the first N records.")
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    encoders: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    cache_dir: Path | None = llm_option(
        None,
        kind="folder",
        help="Folder of paid answers; default: CLAIMSCORE_CACHE_DIR, else ~/.cache/claimscore.",
    )
    model_store: bool = model_option(
        True, hidden=True, help="Take earlier results of the models from the cache."
    )
    chunk_records: int = 0
    keep_models: bool = False
    fail_under: Mapping[str, float] = metric_option(
        dict, kind="limit", help="Exit with 4 where a mean is surely below X."
    )
    fail_over: Mapping[str, float] = metric_option(
        dict, kind="limit", hidden=True, help="Exit with 4 where a mean is surely above X."
    )
    seed: int = metric_option(0, hidden=True, help="Seed of the bootstrap intervals.")
    retry_failed: bool = essential_option(False, help="Try records again that failed before.")
    metric_files: tuple[Path, ...] = metric_option(
        (),
        name="metric-file",
        repeated=True,
        kind="file",
        help="Python file with metrics of your own; repeatable.",
    )
    engine: Runner = machine_option("local", help="Run models in this process, or on Ray.")
    address: str | None = machine_option(
        None, metavar="auto|HOST:PORT", help="Ray cluster; default: Ray is started here."
    )

    def __post_init__(self) -> None:
        if isinstance(self.input, Path):
            object.__setattr__(self, "input", str(self.input))
        take_texts(self)
        _refuse_unknown_tasks((*self.tasks, *self.prompts))
        object.__setattr__(self, "out", path_or_address(self.out))
        check_least(self, seed=0, chunk_records=0, window_tokens=100, limit=1, verify_samples=1)
        asks_llm = LLM_VERIFIER in self.encoders.verifiers
        if "verify" in self.tasks and not asks_llm:
            raise ConfigError("--tasks verify: name --verifier llm too, so that metrics read it")
        if self.verify_samples > 1 and not asks_llm:
            raise ConfigError("--verify-samples is of --verifier llm")
        if self.calibration is not None and len(self.encoders.verifiers) > 1:
            raise ConfigError("--calibration is of one verifier; name no others with --verifier")
        if self.prompts_dir is not None and not self.prompts_dir.is_dir():
            raise ConfigError(f"--prompts-dir {self.prompts_dir}: there is no such folder")
        if self.encoders.verifier_labels and self.encoders.role_of("verifier") == "nli":
            raise ConfigError("--verifier-labels is of a model that --verifier names")
        if self.dedupe != "none" and self.units == "sentences":
            raise ConfigError("--dedupe leaves out claims, and --units sentences has none")
        if self.address is not None and self.engine != "ray":
            raise ConfigError("--address is of a Ray cluster: it goes with --engine ray")


def _refuse_unknown_tasks(names: Iterable[str]) -> None:
    if unknown := [name for name in names if name not in TASK_NAMES]:
        raise ConfigError(
            f"unknown task {', '.join(unknown)}; known tasks: {', '.join(TASK_NAMES)}"
        )


def _given(of_task: str | Mapping[str, Any]) -> dict[str, Any]:
    """What a task has of its own, by field; a text is its model."""
    return {"model": of_task} if isinstance(of_task, str) else dict(of_task)


def _gather_tasks(llm: LLMConfig) -> None:
    """Put the values of fields that were given by task into `by_task`."""
    if not fits(llm.by_task, types_of(LLMConfig)["by_task"]):
        raise ConfigError("by_task must be a dict of models, or of settings, by task")
    by_task = {task: _given(given) for task, given in llm.by_task.items()}
    for field in dataclasses.fields(llm):
        value = getattr(llm, field.name)
        if field.name in BY_TASK and isinstance(value, Mapping):
            object.__setattr__(llm, field.name, value.get("", field.default))
            for task in filter(None, value):
                by_task.setdefault(task, {})[field.name] = value[task]
    object.__setattr__(llm, "by_task", by_task)


def _address(model: str) -> tuple[str, str | None]:
    """A model, and the address that stands after its last `@` before a scheme."""
    at = re.fullmatch(r"(.*)@([A-Za-z][A-Za-z0-9+.-]*://.*)", model, re.DOTALL)
    return (at[1], at[2]) if at else (model, None)


#: Fields of `RunConfig` that a run has once and for all: `score` takes them from its folder.
OF_THE_RUN = (
    *("input", "out", "columns", "limit", "tasks", "chunk_records", "retry_failed"),
    *("granularity", "units", "window_tokens", "seed"),
)


def path_or_address(where: Path | str) -> Path | str:
    """A path, or the address of an object store (`s3://bucket/folder`) as it is."""
    return where if isinstance(where, str) and "://" in where else Path(where)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict; `ConfigError` with file and line where it is broken."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as exc:
        raise ConfigError(f"{path}: it cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: it is not UTF-8 text") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    except RecursionError:
        raise ConfigError(f"{path}: lists or tables are nested too deeply") from None


#: Fields of a request that a prompt's settings have, and those that claimscore decides.
_PROMPT_FIELDS = ("temperature", "top_p", "max_tokens", "max_completion_tokens")
_OWN_FIELDS = (
    *("n", "stream", "stream_options", "messages", "system", "model", "response_format"),
    *("cache_control", "logprobs", "top_logprobs"),
)


def extra_problem(name: str, value: object) -> str | None:
    """Why a server cannot get this parameter besides a request's own; None where it can."""
    if name in _PROMPT_FIELDS:
        return "it cannot be set here: it is one of the prompt's [settings]"
    if name in _OWN_FIELDS:
        return "it cannot be set here: claimscore sets it"
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return f"{value!r} is no JSON"
    return None


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HTTP_HEADERS = {"host", "connection", "content-length", "content-type", "transfer-encoding"}


def _check_header(name: str, variable: str) -> None:
    """`ConfigError`, which does not quote what may be a secret, for a header that cannot be."""
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError("--header: write NAME=VARIABLE; this header cannot be set")
    if name.lower() in _HTTP_HEADERS:
        raise ConfigError(f"--header {name}: this header cannot be set")
    if not re.fullmatch(r"[A-Za-z_]\w*", variable):
        raise ConfigError(
            f"--header {name}: write the name of an environment variable after =, not the value"
        )


def _shown(variable: str) -> str:
    """The name of an environment variable, unless it may be a secret in its place."""
    return variable if variable == variable.upper() else "named after ="


def header_values(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with their values, which the environment has; `ConfigError` without one."""
    values = {}
    for name, variable in headers.items():
        value = os.environ.get(variable, "").strip()
        if not value:
            raise ConfigError(
                f"--header {name}: the environment variable {_shown(variable)} is not set"
            )
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(f"--header {name}: its value has characters that no header may have")
        values[name] = value
    return values


def environment(variable: str) -> str | None:
    """The value of an environment variable, or None where it is unset or empty."""
    return os.environ.get(variable) or None


def model_key_name(role: str) -> str:
    """The environment variable with the key of the server that serves the model of a role."""
    return f"CLAIMSCORE_{role.upper()}_API_KEY"


def model_api_key(role: str) -> str | None:
    """The key of that server, or None where it is unset or empty."""
    return environment(model_key_name(role))


def refuse_secrets(model: str, role: str) -> None:
    """Raise `ConfigError` where a model's address has what may be a secret; it is not shown.

    Why here: the names of models are written into run directories and signatures.
    """
    _, address, rest = model.partition("://")
    if address and re.search(r"^[^/]*@|[?#]", rest):
        raise ConfigError(
            f"--{role.replace('_', '-')}: an address is a server's alone, without user name, "
            f"password or query; a key belongs in {model_key_name(role)}"
        )


def names_aws_key() -> bool:
    """Whether the environment has the credentials of an S3 store."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    return any(os.environ.get(name) for name in names)


def store_allows_http(prefix: str) -> bool:
    """Whether AWS_ALLOW_HTTP (AZURE_, GOOGLE_) lets an object store be asked over plain http."""
    return os.environ.get(f"{prefix}_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")


def user_cache_dir() -> Path:
    """Where paid answers are kept: CLAIMSCORE_CACHE_DIR, else the XDG cache folder."""
    return _user_folder("CACHE", ".cache")


def user_state_dir() -> Path:
    """The folder of facts about this machine: CLAIMSCORE_STATE_DIR, else the XDG state folder."""
    return _user_folder("STATE", ".local/state")


def _user_folder(kind: str, default: str) -> Path:
    if named := environment(f"CLAIMSCORE_{kind}_DIR"):
        return Path(named)
    base = environment(f"XDG_{kind}_HOME")
    return (Path(base) if base else Path.home() / default) / "claimscore"


def missing_environment(names: Sequence[str]) -> tuple[str, ...]:
    """Which of the variables are unset or empty."""
    return tuple(name for name in names if not os.environ.get(name))


def set_environment(values: Mapping[str, str]) -> None:
    """Set the variables that are not set: for settings that a library reads in no other way."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
