"""One session of every command, in a folder of its own: what the contract is read from.

`play()` runs each command of the command line on small inputs (some seconds each, most of
them less) through `claimscore.cli`, as a shell would, and keeps what came of it. No network beside
the loopback server, no user's cache, no key but a made-up one.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.types import Completion
from tests.e2e.shapes import Shape, shape, tables
from tests.fake_server import AnswerFunction, Body, FakeServer, plain_answer, text_answer
from tests.support.language_model import judging_answer
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import (
    save_tiny_causal,
    save_tiny_masked,
    save_tiny_nli,
    save_tiny_seq2seq,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = "made-up-key"

#: Metrics whose values come from texts alone; their bytes are the same on every machine.
PLAIN_PAIR_METRICS = "ds,ds3"
PLAIN_SUMMARY_METRICS = "rouge-1,rouge-2,rouge-l,rouge-lsum,meteor:synonyms=none"
#: Metrics with a model's numbers in them.
MODEL_PAIR_METRICS = "caspr,bs-inverse"
MODEL_SUMMARY_METRICS = (
    "bertscore,faithfulness,claim-recall,claim-f1,claim-support-share,source-coverage,"
    "summac-zs,mnli-doc,ls-score,factsim,bert-cosine,wms,sms,moverscore,"
    "perplexity,bart-score,llm-judge,qa"
)


@dataclasses.dataclass
class Outcome:
    """What one command did, as far as others rely on it."""

    exit: int
    json: Shape | None = None
    files: Sequence[str] = ()
    tables: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(repr=False)
class Session:
    """Everything that was seen: outcomes by case, requests by run, tables of scores by run."""

    folder: Path
    outcomes: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    requests: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    scores: dict[str, Path] = dataclasses.field(default_factory=dict)
    errors: dict[str, str] = dataclasses.field(default_factory=dict)

    def call(self, case: str, *arguments: object, out: Path | None = None) -> None:
        """Run `claimscore ARGUMENTS` and keep its outcome under a name.

        With `--json` in the arguments standard output must be one JSON object. `out` is the
        folder or file that the command writes.
        """
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main([str(argument) for argument in arguments])
        assert case not in self.outcomes, f"two cases are called {case}"
        self.errors[case] = stderr.getvalue()
        outcome = self.outcomes[case] = Outcome(code)
        if "--json" in arguments and code not in (2, 75):
            outcome.json = shape(json.loads(stdout.getvalue()))
        if out is not None and out.exists():
            outcome.files = _names(out)
            outcome.tables = tables(out)


def _names(out: Path) -> Sequence[str]:
    """What lies in a folder, but for hidden files; of a file itself."""
    paths = out.iterdir() if out.is_dir() else [out]
    return sorted(path.name for path in paths if not path.name.startswith("."))


def _requests_of(server: FakeServer, *, in_order: bool) -> list[dict[str, Any]]:
    """The bodies of what was asked, batch jobs last; sorted unless the order is fixed."""
    jobs = server.batches.values()
    lines = [body for job in jobs for _, body in server.items_of(job)]
    bodies = [_short(body) for body in (*server.bodies, *lines)]
    return bodies if in_order else sorted(bodies, key=lambda one: json.dumps(one, sort_keys=True))


def _short(value: Any) -> Any:
    """The same with long texts as their beginning and digest."""
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, str) and len(value) > 80:
        return f"{value[:40]}... sha256:{hashlib.sha256(value.encode()).hexdigest()[:16]}"
    return value


async def every_answer(body: Body) -> Completion:
    """By the rules of `builtin`; judges, questions and answers by the stand-in for those."""
    asked = body.get("response_format", {}).get("json_schema", {}).get("name")
    if asked in ("judge", "questions", "answers", "verify"):
        return await judging_answer(body)
    return await plain_answer(body)


def play() -> Session:
    """Every command once, in the working folder, each after those whose results it needs."""
    session = Session(Path())
    for part in (_runs, _after_runs, _requests, _maps, _stops, _prompts, _models):
        part(session)
    for part in (_evaluations, _trainings, _caches):
        part(session)
    return session


# -- inputs


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _hotels(folder: Path, n: int | None = None) -> Path:
    """The example's pairs, or the first `n`, with a common summary for `ds3`."""
    rows = _rows("hotels.jsonl")[:n]
    path = folder / f"hotels-{len(rows)}.jsonl"
    return write_jsonl(path, [{**row, "summary_common": row["topic"]} for row in rows])


def _products(folder: Path) -> Path:
    return write_jsonl(folder / "products.jsonl", _rows("products.jsonl"))


# -- the parts of the session


def _runs(session: Session) -> None:
    """Whole runs of the examples: every metric that needs no network."""
    folder = session.folder
    pairs, products = _hotels(folder), _products(folder)
    texts = [{"source": " ".join(row.pop("sources")), **row} for row in _rows("products.jsonl")]
    documents = write_jsonl(folder / "documents.jsonl", texts)
    ls = folder / "ls-model"
    train = ("train", "ls-score", documents, "--out", ls, "--json", "--quiet")
    session.call("train ls-score", *train, out=ls)
    models = (
        *("--ls-model", ls),
        *("--causal-lm", save_tiny_causal(folder / "causal")),
        *("--seq2seq-lm", save_tiny_seq2seq(folder / "seq2seq")),
        *("--masked-lm", save_tiny_masked(folder / "masked")),
    )
    plain = (
        ("plain-pairs", pairs, PLAIN_PAIR_METRICS, ()),
        ("plain-summaries", products, PLAIN_SUMMARY_METRICS, ()),
        ("model-pairs", pairs, MODEL_PAIR_METRICS, ()),
    )
    for name, records, metrics, options in plain:
        out = folder / name
        arguments = ("run", records, "--out", out, "--metrics", metrics, *options, "--json")
        session.call(f"run {name}", *arguments, out=out)
        session.scores[name] = out / "scores.parquet"
    two = save_tiny_nli(folder / "MiniCheck", labels=("LABEL_0", "LABEL_1"))
    verifier, out = ("--verifier", two, "--units", "sentences"), folder / "verifier"
    arguments = ("run", products, "--out", out, "--metrics", "faithfulness", *verifier, "--json")
    session.call("run verifier", *arguments, out=out)
    checked = ("models", "check", two, "--role", "verifier", "--device", "cpu", "--json")
    session.call("models check verifier", *checked)
    out = folder / "model-summaries"
    metrics = f"{MODEL_SUMMARY_METRICS},summac-conv:weights={_summac_weights(session)}"
    with FakeServer(answer=every_answer) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--cache-namespace", "contract")
        arguments = ("run", products, "--out", out, "--metrics", metrics)
        session.call("run model-summaries", *arguments, *models, *llm, "--json", out=out)
    session.scores["model-summaries"] = out / "scores.parquet"


def _summac_weights(session: Session) -> Path:
    """Weights of SummaC-Conv as its authors publish them."""
    import torch

    folder = session.folder
    weights = {
        "mlp.weight": torch.linspace(0, 1, 50)[None],
        "mlp.bias": torch.zeros(1),
        "layer_final.weight": torch.linspace(-1, 1, 6).reshape(2, 3),
        "layer_final.bias": torch.zeros(2),
    }
    torch.save(weights, folder / "conv.bin")
    return folder / "conv.bin"


def _after_runs(session: Session) -> None:
    """Commands that look at finished runs."""
    folder = session.folder
    run = folder / "model-pairs"
    session.call("status", "status", run, "--json")
    session.call("score", "score", run, "--metrics", "ds", "--json", out=run)
    session.call("report", "report", run)
    other = folder / "other"
    options = ("--units", "sentences", "--quiet")
    records = _hotels(folder)
    session.call("run again", "run", records, "--out", run, "--metrics", "caspr,bs-inverse,ds")
    session.call("run other", "run", records, "--out", other, "--metrics", "ds,caspr", *options)
    few, page = ("--samples", 100), ("--html", folder / "compare.html")
    session.call("compare", "compare", run, other, "--quiet", *few, *page)
    with contextlib.redirect_stderr(io.StringIO()):
        session.call("compare json", "compare", run, other, *few, "--json")
    session.call("metrics list", "metrics", "list", "--json")
    session.call("metrics show", "metrics", "show", "summac-zs:op1=min", "--json")


def _requests(session: Session) -> None:
    """What the server is asked: one request at a time, so the order is fixed, and several."""
    folder = session.folder
    few, products = _hotels(folder, 2), _products(folder)
    every_task = ("--metrics", "", "--tasks", "decompose,paraphrase,negate,facts")
    cases: tuple[tuple[str, Path, tuple[object, ...], int], ...] = (
        ("run tasks", few, every_task, 4),
        ("run in order", few, ("--metrics", "", "--tasks", "decompose"), 1),
        ("run summary", few, (*every_task, "--granularity", "summary"), 4),
        ("run judge", products, ("--metrics", "llm-judge,qa"), 4),
        ("run llm verifier", products, ("--metrics", "faithfulness", "--verifier", "llm"), 4),
        ("run batch", few, ("--metrics", "", "--tasks", "decompose"), 64),
    )
    with environment(OPENAI_API_KEY=KEY):
        for case, records, what, n in cases:
            provider = "openai-batch:m" if case == "run batch" else "openai:m"
            with FakeServer(answer=every_answer) as server:
                arguments = (
                    *("run", records, "--out", folder / case, *what, "--llm", provider),
                    *("--base-url", server.base_url, "--max-concurrency", n, "--json"),
                    *("--cache-namespace", case),  # keys without the port
                )
                session.call(case, *arguments, out=folder / case)
            session.requests[case] = _requests_of(server, in_order=n == 1)


def _maps(session: Session) -> None:
    """`map` of the tutorial's table, in order, and with rows that fail."""
    folder = session.folder
    reviews, prompt = EXAMPLES / "reviews.csv", EXAMPLES / "tone.toml"
    tone = text_answer('{"tone": "mixed", "confidence": 0.5}')
    cases: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
        ("map", tone, {}),
        ("map failures", tone, {"on_content": {"lamp": "filter"}}),
        ("map stopped", tone, {"quota_after": 3}),
    )
    for case, answer, settings in cases:
        out = folder / f"{case}.parquet"
        with FakeServer(answer=answer, **settings) as server:
            base = ("map", reviews, "--prompt", prompt, "--out", out, "--llm", "openai:m")
            llm = ("--base-url", server.base_url, "--max-concurrency", 1)
            if case == "map":
                session.call("map --estimate", *base, *llm, "--estimate", "--json")
            session.call(case, *base, *llm, "--json", out=out)
        session.requests[case] = _requests_of(server, in_order=True)
        if case != "map failures":
            session.call(f"{case} status", "status", out, "--json")
        else:
            failures = out.with_suffix(".failures.parquet")
            session.outcomes["map failures"].tables |= tables(failures)


def _stops(session: Session) -> None:
    """Every exit code that is no success, each for each of its reasons."""
    folder, few = session.folder, _hotels(session.folder, 4)
    refused: tuple[tuple[str, tuple[object, ...], tuple[object, ...]], ...] = (
        ("no such file", (folder / "none.jsonl",), ()),
        ("unknown metric", (few,), ("--metrics", "nonesuch")),
        ("column lacks", (few,), ("--metrics", "summac-zs")),
        ("unknown option", (few,), ("--nonesuch",)),
        ("key over http", (few,), ("--llm", "openai:m", "--base-url", "http://example.com/v1")),
    )
    with environment(OPENAI_API_KEY=KEY):
        for case, records, options in refused:
            session.call(case, "run", *records, "--out", folder / "refused", *options)
    other = ("--units", "sentences", "--metrics", "caspr")
    session.call("other settings", "run", _hotels(folder), "--out", folder / "model-pairs", *other)
    priced = ("--max-cost", 0.000001, "--input-price", 1, "--output-price", 1)
    served: tuple[tuple[str, AnswerFunction, dict[str, Any], tuple[object, ...]], ...] = (
        ("refused key", plain_answer, {"key": "another"}, ()),
        ("unknown model", plain_answer, {"models": ("another",)}, ()),
        ("rubbish", text_answer("I am a teapot"), {}, ()),
        ("some rubbish", plain_answer, {"on_content": {"quiet": "empty"}}, ()),
        ("quota", plain_answer, {"quota_after": 3}, ()),
        ("max requests", plain_answer, {}, ("--max-requests", 3)),
        ("max cost", plain_answer, {}, priced),
        ("max failures", text_answer("no"), {}, ("--max-failures", 1)),
        (
            "outage",
            plain_answer,
            {"outages": ({"from_n": 4, "to_n": 9999},)},
            ("--max-outage-s", 0),
        ),
        ("faults", plain_answer, {"script": {"2": "500", "4": "429:0.01", "6": "reset"}}, ()),
    )
    for case, answer, settings, options in served:
        out = folder / case.replace(" ", "-")
        with FakeServer(answer=answer, **settings) as server:
            session.call(
                *(case, "run", few, "--out", out, "--metrics", "", "--tasks", "decompose"),
                *("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", 1),
                *("--cache-dir", folder / "caches" / case, *options, "--json"),
                out=out,
            )
            if case == "rubbish":
                session.outcomes["rubbish"].files = ()
        if case != "outage":  # how often a server that is down is asked depends on the clock
            session.requests[case] = [{"number of requests": server.n_requests}]


def _prompts(session: Session) -> None:
    folder = session.folder
    session.call("prompts list", "prompts", "list", "--json")
    session.call("prompts show", "prompts", "show", "decompose", "--json")
    session.call("prompts diff", "prompts", "diff", "decompose=v1", "decompose=v2")
    session.call("prompts check", "prompts", "check", EXAMPLES / "tone.toml", "--json")
    broken = folder / "broken.toml"
    broken.write_text('name = "a"\nversion = "v1"\nuser = "$"\n', encoding="utf-8")
    session.call("prompts check broken", "prompts", "check", broken, "--json")


def _models(session: Session) -> None:
    folder = session.folder
    session.call("models list", "models", "list")
    session.call("models check", "models", "check", "embedded", "--role", "nli", "--json")
    records = _hotels(folder)
    estimate = ("estimate", records, "--metrics", "caspr,ds", "--json")
    with pytest.MonkeyPatch.context() as patch:  # how fast models were is this machine's
        patch.setenv("CLAIMSCORE_CACHE_DIR", str(folder / "no-paces"))
        session.call("estimate", *estimate)
        session.call("estimate priced", *estimate, "--llm", "openai:gpt-4o-mini")
    session.call("models check none", "models", "check", folder / "none", "--role", "nli", "--json")


def _evaluations(session: Session) -> None:
    folder = session.folder
    few = ("--samples", 50, "--json")
    out = folder / "correlate"
    columns = ("--scores", "overlap,entailment", "--ratings", "coherence", "--case", "case")
    correlate = ("evaluate", "correlate", EXAMPLES / "rated.csv", *columns, "--compare")
    session.call("evaluate correlate", *correlate, *few, "--out", out, out=out)
    out = folder / "support"
    support = ("evaluate", "support", EXAMPLES / "labelled.csv", "--scores", "overlap,entailment")
    session.call("evaluate support", *support, *few, "--out", out, out=out)
    run = folder / "judged"
    judged = ("--metrics", "faithfulness", "--units", "sentences", "--out", run, "--quiet")
    session.call("run judged", "run", _products(folder), *judged)
    sheet = folder / "labels.csv"
    session.call("label", "label", run, "--n", 4, "--out", sheet, "--json")
    filled = re.sub(r'(?m),""$', ",s", sheet.read_text(encoding="utf-8"))
    sheet.write_text(filled, encoding="utf-8")
    out = folder / "labels"
    session.call("evaluate labels", "evaluate", "labels", run, sheet, *few, "--out", out, out=out)
    session.call("calibrate few", "calibrate", run, sheet, "--out", folder / "judge.toml")
    examples = ("from-labels", "verify", sheet, "--out", folder / "verify-mine.toml")
    session.call("prompts from-labels few", "prompts", *examples, "--llm", "openai:gpt-4o-mini")
    human = [{"id": "1", "summary": "Bo sat, and Al ran.", "claims": ["Bo sat.", "Al ran."]}]
    ours = [{"id": "1", "claims": ["Bo sat."]}]
    tables = (write_jsonl(folder / "human.jsonl", human), write_jsonl(folder / "ours.jsonl", ours))
    session.call("evaluate claims", "evaluate", "claims", *tables, *few, "--out", out, out=out)


def _trainings(session: Session) -> None:
    folder = session.folder
    out = folder / "trained.safetensors"
    labelled = [
        {
            **{"dataset": "d", "split": split, "label": i % 2, "id": f"{split}{i}"},
            "source": f"Room {i} is clean. Staff {i} is kind.",
            "summary": [f"Room {i} is clean.", f"Room {i} is dirty."][i % 2],
        }
        for split in ("val", "test")
        for i in range(4)
    ]
    labelled_table = write_jsonl(folder / "labelled.jsonl", labelled)
    conv = ("train", "summac-conv", labelled_table, "--out", out)
    session.call("train summac-conv", *conv, "--json", "--quiet", out=out)


def _caches(session: Session) -> None:
    folder = session.folder
    export = folder / "answers.jsonl.gz"
    session.call("cache stats", "cache", "stats", "--json")
    session.call("cache verify", "cache", "verify", "--json")
    session.call("cache export", "cache", "export", export, "--json")
    elsewhere = ("--cache-dir", folder / "second-cache", "--json")
    session.call("cache import", "cache", "import", export, *elsewhere)
    session.call("cache prune", "cache", "prune", "--older-than", "0d", "--dry-run", *elsewhere)


# -- the environment


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@contextlib.contextmanager
def private_environment(folder: Path) -> Iterator[None]:
    """A working folder, a state folder and a cache of its own; no key, no address of a server."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            patch.delenv(name, raising=False)
        for name in ("state", "cache"):
            patch.setenv(f"CLAIMSCORE_{name.upper()}_DIR", str(folder / name))
        patch.chdir(folder)  # paths are part of signatures
        yield
