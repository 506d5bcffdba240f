"""Frozen settings of a run. The only reader of TOML settings and of the environment."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from claimscore.errors import ConfigError

Granularity = Literal["sentence", "summary"]
Units = Literal["claims", "sentences"]
DType = Literal["float32", "bfloat16", "float16"]
Runner = Literal["local", "ray"]

TASK_NAMES = ("decompose", "paraphrase", "negate", "facts", "judge", "questions", "answers")


class FailureLimit(NamedTuple):
    """How many rows, or which share of them, may fail before a run stops."""

    rows: int | None = None
    share: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LLMConfig:
    """Where the language model is and how it may be used.

    `base_url` is an address, or several of servers of the same model; then `rpm`, `tpm` and
    `max_concurrency` are those of each. Prices are dollars a million tokens, for models that the
    price table does not know; `max_failures` is a count ("50") or a share of the rows asked ("5%").
    """

    model: str = "builtin"
    base_url: str | Sequence[str] | None = None
    rpm: float | None = None
    tpm: float | None = None
    max_concurrency: int = 64
    timeout_s: float = 120.0
    max_attempts: int = 8
    max_samples: int = 3
    max_outage_s: float = 3600.0
    max_cost: float | None = None
    max_requests: int | None = None
    max_failures: str | None = None
    input_price: float | None = None
    output_price: float | None = None
    allow_http_key: bool = False
    cache_namespace: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _one_or_several(self.base_url))
        for name in ("rpm", "tpm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"--{name} must be above zero, not {value}")
        for name in ("max_concurrency", "max_attempts", "max_samples"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must be at least 1, not {getattr(self, name)}")
        if not self.timeout_s > 0:
            raise ConfigError(f"--timeout-s must be above zero, not {self.timeout_s}")
        for name in ("max_outage_s", "max_cost", "max_requests", "input_price", "output_price"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must be a number from zero on, not {value}")
        if (self.input_price is None) != (self.output_price is None):
            raise ConfigError("--input-price and --output-price go together")
        self.failure_limit()

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The addresses that were given, each once; none where the environment decides."""
        given = (self.base_url,) if isinstance(self.base_url, str) else self.base_url or ()
        return tuple(given)

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

    nli: str = "embedded"
    embedder: str = "embedded"
    token_encoder: str = "embedded"
    ls_model: str | None = None
    causal_lm: str | None = None
    seq2seq_lm: str | None = None
    token_layer: int | None = None
    rescale_with_baseline: bool = True
    device: str = "auto"
    dtype: DType = "float32"
    batch_tokens: int | None = None  # None: what is good on the device
    offline: bool = False
    max_outage_s: float = 3600.0  # of a model's server
    allow_http_key: bool = False

    def __post_init__(self) -> None:
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1, not {self.batch_tokens}")
        if not 0 <= self.max_outage_s < math.inf:
            raise ConfigError(f"--max-outage-s must be a number from zero on: {self.max_outage_s}")
        for role in ("nli", "embedder", "token_encoder", "ls_model", "causal_lm", "seq2seq_lm"):
            refuse_secrets(getattr(self, role) or "", role)


@dataclasses.dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that one `claimscore run` was asked for."""

    input: str
    out: Path | str  # a path, or the address of an object store
    metrics: tuple[str, ...] = ("caspr", "ds", "bs-inverse")
    tasks: tuple[str, ...] = ()
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prompts_dir: Path | None = None
    granularity: Granularity = "sentence"
    units: Units = "claims"
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    encoders: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    cache_dir: Path | None = None
    model_store: bool = True
    chunk_records: int = 64
    seed: int = 0
    retry_failed: bool = False
    metric_files: tuple[Path, ...] = ()
    engine: Runner = "local"
    address: str | None = None  # of a Ray cluster; None: one of its own on this machine

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.tasks, *self.prompts) if name not in TASK_NAMES]
        if unknown:
            raise ConfigError(
                f"unknown task {', '.join(unknown)}; known tasks: {', '.join(TASK_NAMES)}"
            )
        object.__setattr__(self, "out", path_or_address(self.out))
        if self.prompts_dir is not None and not self.prompts_dir.is_dir():
            raise ConfigError(f"--prompts-dir {self.prompts_dir}: there is no such folder")
        if self.address is not None and self.engine != "ray":
            raise ConfigError("--address is of a Ray cluster: it goes with --engine ray")

    @property
    def folder(self) -> Path:
        """`out` on a disk, for work that keeps more there than a run; `ConfigError` where it is
        not on one."""
        if isinstance(self.out, Path):
            return self.out
        raise ConfigError(f"{self.out}: this command works in a local folder only; name one")


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


API_KEY = "OPENAI_API_KEY"


def api_key() -> str | None:
    """OPENAI_API_KEY, or None where it is unset or empty."""
    return os.environ.get(API_KEY) or None


def api_base_url() -> str | None:
    """OPENAI_BASE_URL, or None where it is unset or empty. It names one server."""
    return _one_address(os.environ.get("OPENAI_BASE_URL") or "", "OPENAI_BASE_URL") or None


def _one_or_several(given: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """An address as it is, several as a tuple without repetition; None for none."""
    if given is None or isinstance(given, str):
        urls = [given or ""]
    else:
        urls = list(dict.fromkeys(given)) or [""]
    for url in urls:
        _one_address(url, "--base-url")
    if len(urls) == 1:
        return urls[0] or None
    if not all(url.strip() for url in urls):
        raise ConfigError("--base-url: one of the addresses is empty")
    return tuple(urls)


def _one_address(url: str, name: str) -> str:
    """The address; `ConfigError`, which does not quote it, where it is a list of them."""
    if re.search(r"[,;\s]https?://", url.strip()):
        raise ConfigError(f"{name} is one address; name several servers by a --base-url each")
    return url


def model_key_name(role: str) -> str:
    """The environment variable with the key of the server that serves the model of a role."""
    return f"CLAIMSCORE_{role.upper()}_API_KEY"


def model_api_key(role: str) -> str | None:
    """The key of that server, or None where it is unset or empty."""
    return os.environ.get(model_key_name(role)) or None


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
    """Whether the environment says who asks an S3 store, so that nothing else has to."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    return any(os.environ.get(name) for name in names)


def names_azure_connection() -> bool:
    """Whether the environment has a connection string, which neither obstore nor polars reads."""
    return bool(os.environ.get("AZURE_STORAGE_CONNECTION_STRING"))


def store_allows_http(prefix: str) -> bool:
    """Whether AWS_ALLOW_HTTP (AZURE_, GOOGLE_) lets an object store be asked over plain http."""
    return os.environ.get(f"{prefix}_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")


def user_cache_dir() -> Path:
    """Where paid answers are kept: CLAIMSCORE_CACHE_DIR, else the XDG cache folder."""
    named = os.environ.get("CLAIMSCORE_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "claimscore"


def user_state_dir() -> Path:
    """The folder that a user's processes share: CLAIMSCORE_STATE_DIR, else the XDG state folder."""
    named = os.environ.get("CLAIMSCORE_STATE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "claimscore"


def missing_environment(names: Sequence[str]) -> tuple[str, ...]:
    """Which of the variables are unset or empty."""
    return tuple(name for name in names if not os.environ.get(name))


def set_environment(values: Mapping[str, str]) -> None:
    """Set the variables that are not set: for settings that a library reads in no other way."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
