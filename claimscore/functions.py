"""Each stage of a run as a function of texts: claims, facts, NLI, verdicts, vectors; and maps.

A function blocks and needs no run directory. Answers and results of models are kept in the user's
cache folder, and loaded models stay in the process. A row that could not be made has nulls, and its
column `error` says why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.calibration import Calibration
from claimscore.config import (
    DEFAULT_LLM,
    LLM_VERIFIER,
    LLMConfig,
    RunConfig,
    user_cache_dir,
)
from claimscore.errors import ConfigError
from claimscore.metrics.base import PassRequirement
from claimscore.metrics.support import BEST, MODEL
from claimscore.notebook import refuse_unknown, run_config
from claimscore.pipeline.encoders import kept_model, load_model
from claimscore.pipeline.encoders.protocols import NLI_LABELS, RejectedItemsError
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm_stage import TaskResult, plan_engine, run_task
from claimscore.pipeline.map.job import MapProgress, MapResult, run_map
from claimscore.pipeline.map.settings import MapConfig, PromptSource
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.model_pass import without_rejected
from claimscore.pipeline.passes.support import SUPPORT_PASS, calibrated_pass, pass_of
from claimscore.pipeline.plan import only, open_plan, plan_steps
from claimscore.pipeline.settings import model_settings, result_settings, role_settings
from claimscore.pipeline.supervision import run_blocking
from claimscore.pipeline.tasks.verify import deciding
from claimscore.records.readers import rows_in_memory
from claimscore.tables import CLAIMS, FAILURES, SUPPORT

logger = logging.getLogger("claimscore")

#: Pairs whose results are computed and kept together; a verifier reads each source in many parts.
PAIRS_AT_ONCE, SOURCES_AT_ONCE = 8192, 128

#: The options of the functions that ask a language model, and of those that ask another model.
_LLM = {field.name for field in dataclasses.fields(LLMConfig)} - {"model"}
_LLM |= {"cache_dir", "prompts_dir", "retry_failed"}
_MODEL = {"device", "dtype", "batch_tokens", "offline", "max_outage_s", "allow_http_key"}
_MODEL |= {"cache_dir", "model_store"}

_PLACE = pl.col("id").cast(pl.Int64).alias("text")
_REASON = pl.format("{}: {}", "kind", "message").alias("error")
_NULL = pl.lit(None, pl.String)


def decompose(
    texts: Iterable[str],
    llm: str | LLMConfig = DEFAULT_LLM,
    prompt: str | Path | None = None,
    *,
    granularity: str = "sentence",
    **options: Any,
) -> pl.DataFrame:
    """Break texts into claims, each of which says one thing.

    `texts` is a list or a column of texts. `llm` and `prompt` (a version such as "v2", or a file)
    are those of `--llm` and `--prompt decompose=`; `granularity="summary"` asks about whole texts.
    `options` are fields of `LLMConfig`, such as `max_cost=5`, and `cache_dir`, `prompts_dir`,
    `retry_failed`.

    Returns a row a claim: `text` (place in `texts`, from 0), `sentence` (place in the text, from 0;
    null for whole texts), `claim`, `left_out` ("ambiguous", or null for a claim that counts),
    `error`. A sentence that failed has one row with a null claim; a text without claims has none.
    Raises `ConfigError` for texts or options of no use, before anything is spent, and
    `StoppedEarly` at a cap or after an outage: the same call then goes on.
    """
    made = _of_texts("decompose", texts, llm, prompt, {**options, "granularity": granularity})
    claims = made.rows.select(
        _PLACE, "left_out", sentence="sentence_index", claim="text", error=_NULL
    ).select("text", "sentence", "claim", "left_out", "error")
    failed = made.failures.select(_PLACE, _REASON, sentence="index", claim=_NULL, left_out=_NULL)
    return _in_order(claims, failed, "text", "sentence")


def extract_facts(
    texts: Iterable[str],
    llm: str | LLMConfig = DEFAULT_LLM,
    prompt: str | Path | None = None,
    **options: Any,
) -> pl.DataFrame:
    """Extract FactSim's facts from texts: a subject and a description of one word each.

    Arguments and errors as of `decompose`, without `granularity`. Returns a row a fact: `text`
    (place in `texts`, from 0), `index` (of the fact in the text), `subject`, `description`,
    `error`. A text that failed has one row with nulls; one without facts has none.
    """
    made = _of_texts("facts", texts, llm, prompt, options)
    facts = made.rows.select(_PLACE, "index", "subject", "description", error=_NULL)
    failed = made.failures.select(_PLACE, _REASON, "index", subject=_NULL, description=_NULL)
    return _in_order(facts, failed, "text")


def nli(pairs: Any, model: str = "embedded", **options: Any) -> pl.DataFrame:
    """The probabilities that an NLI model gives pairs of texts.

    `pairs` are tuples of premise and hypothesis, or a table (polars, pandas, Arrow, dicts) with the
    columns `premise` and `hypothesis`. `model` is that of `--nli`. `options` are `device`, `dtype`,
    `batch_tokens`, `offline`, `cache_dir`, `model_store` and, of a server, `max_outage_s` and
    `allow_http_key`.

    Returns a row a pair, in their order: `premise`, `hypothesis`, `entailment`, `neutral`,
    `contradiction` (32-bit floats whose sum is 1), `label` (the likeliest of these), `error`. A
    pair that the model cannot take has nulls. Raises `ConfigError` for pairs or options of no use,
    and where the model cannot be had.
    """
    columns = ("premise", "hypothesis")
    config = _settings(options, _MODEL, nli=model)
    rows = [_Pair(str(n), *texts) for n, texts in enumerate(_pairs(pairs, columns))]
    values = np.full((len(rows), 3), np.nan, dtype=np.float32)
    errors = list[str | None]([None]) * len(rows)

    def ask(left: list[_Pair]) -> NDArray[np.float32]:
        judged: NDArray[np.float32] = _loaded("nli", config).classify([pair[1:] for pair in left])
        return judged

    for start in range(0, len(rows), PAIRS_AT_ONCE):
        judged = without_rejected("nli", rows[start : start + PAIRS_AT_ONCE], ask)
        values[[int(pair.id) for pair in judged.items]] = judged.answer
        for row in judged.failures:
            errors[int(row["id"])] = f"{row['kind']}: {row['message']}"
    labels = [
        None if error else NLI_LABELS[n] for error, n in zip(errors, values.argmax(1), strict=True)
    ]
    texts = pl.DataFrame(
        [pair[1:] for pair in rows], dict.fromkeys(columns, pl.String), orient="row"
    )
    return texts.with_columns(
        *(pl.Series(name, values[:, n]).fill_nan(None) for n, name in enumerate(NLI_LABELS)),
        pl.Series("label", labels, pl.String),
        pl.Series("error", errors, pl.String),
    )


def verify(
    pairs: Any,
    verifier: str = "nli",
    llm: str | LLMConfig | None = None,
    prompt: str | Path | None = None,
    **options: Any,
) -> pl.DataFrame:
    """Judge whether sources support claims, as the metric `faithfulness` does.

    `pairs` are tuples of source and claim, or a table with the columns `source` and `claim`; a
    source is one text or a list of them (reviews). `verifier` is that of `--verifier`: "nli",
    "llm", an id of Hugging Face, a folder. `llm` and `prompt` go with "llm"; `options` are then
    those of `decompose` and `window_tokens`, else those of `nli` and `nli`, `verifier_labels`; with
    either also `calibration`, a file that `claimscore calibrate` wrote.

    Returns a row a pair, in their order: `source`, `claim`, `verdict` (supported, contradicted or
    unmentioned), `probability` of support, `uncertainty` (0 sure, 1 undecided), `evidence` (the
    passage behind the verdict), `error`. Of several texts the one that decides counts, and the
    largest probability. A pair of which any part failed, or whose source or claim is blank, has
    nulls. Raises as `decompose` and `nli` do.
    """
    given = _pairs(pairs, ("source", "claim"), several=True)
    sources = [[source] if isinstance(source, str) else list(source) for source, _ in given]
    records = pl.DataFrame(
        {
            "id": [str(n) for n in range(len(given))],
            "sources": sources,
            "summary": [c for _, c in given],
        },
        {"id": pl.String, "sources": pl.List(pl.String), "summary": pl.String},
    )
    asked = records.filter(pl.col("summary").str.strip_chars() != "")
    if verifier == LLM_VERIFIER:
        chosen = {"verifier": verifier, "llm": llm, **_chosen("verify", prompt)}
        known = _LLM | {"window_tokens", "calibration"}
        made = _ask("verify", asked, _settings(options, known, **chosen))
    elif LLM_VERIFIER in verifier.split(","):
        raise ConfigError("verifier: here the language model judges alone; a run takes nli,llm")
    elif llm is None and prompt is None:
        known = _MODEL | {"nli", "verifier_labels", "calibration"}
        made = _judged(asked, _settings(options, known, verifier=verifier))
    else:
        raise ConfigError('llm and prompt go with verifier="llm"')
    verdicts = {row["id"]: row for row in deciding(made.rows.to_dicts(), "id")}
    errors = dict(made.failures.select("id", _REASON).iter_rows())
    names = ("verdict", "probability", "uncertainty", "evidence")
    judged = {name: SUPPORT.schema[name] for name in names}
    rows = []
    for n, (source, (_, claim)) in enumerate(zip(sources, given, strict=True)):
        blank = f"no text in {'source' if claim.strip() else 'claim'}"
        error = errors.get(str(n), None if str(n) in verdicts else blank)
        verdict = {} if error else verdicts[str(n)]
        named = {name: verdict.get(name) for name in judged}
        rows.append({"source": source, "claim": claim, **named, "error": error})
    schema = {"source": pl.List(pl.String()), "claim": pl.String(), **judged, "error": pl.String()}
    frame = pl.DataFrame(rows, schema)
    if all(isinstance(source, str) for source, _ in given):
        frame = frame.with_columns(pl.col("source").list.first())
    return frame


def embed(texts: Iterable[str], model: str = "embedded", **options: Any) -> NDArray[np.float32]:
    """The vectors that a sentence encoder gives texts, ``[n texts, dimension]``.

    `model` is that of `--embedder`; `options` as of `nli`. Raises `ConfigError` for texts or
    options of no use, a blank text among them, where the model cannot be had, and for texts that
    it cannot take, whose places it names.
    """
    rows = _texts(texts)
    for place, text in enumerate(rows):
        if not text.strip():
            raise ConfigError(f"texts[{place}] is blank: it has no vector")
    embedder = _loaded("embedder", _settings(options, _MODEL, embedder=model))
    try:
        vectors: NDArray[np.float32] = embedder.embed(rows or ["text"])
    except RejectedItemsError as exc:
        places = ", ".join(f"texts[{place}]" for place in exc.indices)
        raise ConfigError(f"{places} cannot be embedded: {exc}") from exc
    return vectors[: len(rows)]


def map(
    data: Any,
    prompt: PromptSource | Sequence[PromptSource] = (),
    out: Path | str | None = None,
    llm: str | LLMConfig = DEFAULT_LLM,
    *,
    provider: Provider | None = None,
    on_progress: Callable[[MapProgress], None] | None = None,
    **options: Any,
) -> MapResult:
    """Ask prompts about every row of a table, one after the other, as `claimscore map` does.

    `data` is a frame, a list of dicts or a path; or a `MapConfig`, which says all else too.
    `prompt` is one or several: prompts, files, names. `out` is a Parquet file; without it the file
    goes with the result. `options` are those of `decompose`, and `limit`. `provider` takes the
    place of the one that `llm` names. Raises as `decompose` does: after any stop the same call goes
    on where it was.
    """
    if isinstance(data, MapConfig):
        return run_map(data, provider=provider, on_progress=on_progress)
    config = _settings(options, _LLM | {"limit"}, llm=llm)
    names = ("llm", "cache_dir", "prompts_dir", "retry_failed", "limit")
    with contextlib.ExitStack() as ends:
        folder = "" if out else tempfile.mkdtemp(prefix="claimscore-")
        if folder:
            ends.callback(shutil.rmtree, folder, ignore_errors=True)
        asked = {name: getattr(config, name) for name in names}
        job = MapConfig(data, prompt, out or Path(folder, "map.parquet"), **asked)
        result = run_map(job, provider=provider, on_progress=on_progress)
        result = dataclasses.replace(result, is_kept=not folder)
        weakref.finalize(result, ends.pop_all().close)
    return result


class _Pair(NamedTuple):
    id: str
    premise: str
    hypothesis: str


def _settings(options: Mapping[str, Any], known: Collection[str], **fixed: Any) -> RunConfig:
    """The settings of a run that does no more than this; `ConfigError` for an unknown option."""
    refuse_unknown(options, known)
    return run_config([], Path(), {"metrics": (), **options, **fixed})


def _chosen(task: str, prompt: str | Path | None) -> dict[str, Any]:
    return {"tasks": (task,), "prompts": {} if prompt is None else {task: str(prompt)}}


def _texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list; `ConfigError` names the first that is none."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise ConfigError(f"texts must be a list or a column of texts, not {_kind(texts)}")
    return [_text(f"texts[{place}]", text) for place, text in enumerate(texts)]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has half a character (a lone surrogate)") from None
    return value


def _kind(value: object) -> str:
    length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return "null" if value is None else f"{type(value).__name__}{length}"


def _pairs(pairs: Any, columns: tuple[str, str], *, several: bool = False) -> list[tuple[Any, str]]:
    """The pairs; with `several` the first of each may be a list of texts."""
    is_table = hasattr(pairs, "__arrow_c_stream__") or hasattr(pairs, "to_dict")
    if is_table or isinstance(pairs, pl.LazyFrame):
        pairs = rows_in_memory(pairs).records()
    if isinstance(pairs, str | bytes | Mapping) or not isinstance(pairs, Iterable):
        names = " and ".join(columns)
        raise ConfigError(
            f"pairs must be tuples of {names}, or a table with these columns, not {_kind(pairs)}"
        )
    return [_pair(f"pairs[{n}]", row, columns, several) for n, row in enumerate(pairs)]


def _pair(name: str, row: Any, columns: tuple[str, str], several: bool) -> tuple[Any, str]:
    if isinstance(row, Mapping):
        lacking = [column for column in columns if column not in row]
        if lacking:
            raise ConfigError(f"{name} has no column {lacking[0]}; it has {', '.join(row)}")
        row = tuple(row[column] for column in columns)
    if not isinstance(row, tuple | list) or len(row) != 2:
        raise ConfigError(f"{name} must be a tuple of {' and '.join(columns)}, not {_kind(row)}")
    first, second = (f"{name}: {column}" for column in columns)
    if several and isinstance(row[0], tuple | list):
        return [_text(first, text) for text in row[0]], _text(second, row[1])
    return _text(first, row[0]), _text(second, row[1])


def _of_texts(
    task: str,
    texts: Iterable[str],
    llm: str | LLMConfig,
    prompt: str | Path | None,
    options: Mapping[str, Any],
) -> TaskResult:
    rows = _texts(texts)
    config = _settings(options, _LLM | {"granularity"}, llm=llm, **_chosen(task, prompt))
    schema = {"id": pl.String(), "summary": pl.String()}
    ids = [str(n) for n in range(len(rows))]
    return _ask(task, pl.DataFrame({"id": ids, "summary": rows}, schema), config)


def _ask(task: str, records: pl.DataFrame, config: RunConfig) -> TaskResult:
    """What a language model answers about the records, as rows and failures of the task."""
    plan = open_plan(only(plan_steps(config, (), records.columns), [task]))
    (planned,) = plan.tasks
    if plan.calibration is not None:
        plan.calibration.refuse_other(result_settings(plan, {})["additive"])

    async def ask() -> TaskResult:
        async with plan_engine(plan, _warn) as engine:
            return await run_task(planned, records, {CLAIMS.name: _claims(records)}, engine)

    return run_blocking(ask)


def _warn(kind: str, **fields: Any) -> None:
    if "notice" in fields:
        logger.warning(fields["notice"])


def _claims(records: pl.DataFrame) -> pl.DataFrame:
    """Each summary as one claim."""
    rows = records.select("id", text="summary").iter_rows(named=True)
    return CLAIMS.frame([{**row, "side": "summary"} for row in rows])


def _judged(records: pl.DataFrame, config: RunConfig) -> TaskResult:
    """The verdicts of a model on each summary as one claim, and what it could not do."""
    need = PassRequirement(SUPPORT_PASS.kind, (f"source.{MODEL}.{BEST}", "summary"))
    rows, failures = [SUPPORT.empty()], [FAILURES.empty()]
    role, compute = config.encoders.role_of("verifier"), pass_of(config.encoders).compute
    if config.calibration is not None:
        calibration = Calibration.read(config.calibration)
        facts = role_settings(role, config.encoders)
        facts |= model_settings({role: _loaded(role, config)})[role]
        support = {"verifier": "nli" if role == "nli" else facts["name"]}
        calibration.refuse_other({role: facts, "support": support})
        compute = calibrated_pass(SUPPORT_PASS, calibration).compute
    for part in records.iter_slices(SOURCES_AT_ONCE):
        model = _loaded(role, config)
        tables = {CLAIMS.name: _claims(part)}
        given = PassInput(model, need, part, tables.__getitem__, frozenset(), lambda n: _unheard)
        made = compute(given)
        rows.append(made.rows[SUPPORT.name])
        failures.append(made.failures)
    return TaskResult(pl.concat(rows), pl.concat(failures))


def _unheard(done: int) -> None:
    """A batch is done."""


def _loaded(role: str, config: RunConfig) -> Any:
    """The model of a role with its kept results, loaded once in this process."""
    model = kept_model(role, config.encoders, load_model)
    if not config.model_store:
        return model
    return open_store(config.cache_dir or user_cache_dir()).around(model)


def _in_order(rows: pl.DataFrame, failed: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Rows and failures with the columns of the rows, by their places."""
    return pl.concat([rows, failed.select(rows.columns)]).sort(columns, maintain_order=True)
