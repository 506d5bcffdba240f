"""`--llm TASK=MODEL@URL`: claims of one model, verdicts of another at a server with its own key."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import LLMConfig
from tests.fake_server import FakeServer, text_answer
from tests.support.command_line import Command

SUMMARY = "The rooms are clean. The staff is rude."
TEXTS = dict.fromkeys(("summary", "summary_a", "summary_b"), SUMMARY)
SOURCE = "The rooms are clean here. The staff is rude at times."
RECORDS = [{"id": str(n), **TEXTS, "source": f"{SOURCE} {n}"} for n in range(3)]
#: It counts claims: a metric that verification does not concern.
OWN = Path(__file__).parents[3] / "examples" / "own_metrics.py"


SUPPORTED = json.dumps({"verdict": "supported", "evidence": "The rooms are clean here."})


Servers = tuple[FakeServer, FakeServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    verdicts = FakeServer(answer=text_answer(SUPPORTED), key="of-gpu-2")
    with FakeServer(key="of-the-run-1") as one, verdicts as two:
        yield one, two


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-run-1")
    monkeypatch.setenv("GPU_KEY", "of-gpu-2")
    monkeypatch.setenv("TENANT", "of-a-tenant-3")


def call_of(tmp_path: Path, one: FakeServer, *options: object) -> tuple[Any, ...]:
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    llm = ("--llm", "openai:big", "--base-url", one.base_url, "--header", "X-Tenant=TENANT")
    metrics = ("--metrics", "faithfulness,claim-balance", "--metric-file", OWN, "--verifier", "llm")
    call = (tmp_path / "in.jsonl", "--out", tmp_path / "run", *metrics, "--llm-param", "seed=1")
    return *call, *llm, *options


def at(server: FakeServer, model: str = "small", key: str = "GPU_KEY") -> tuple[str, ...]:
    return "--llm", f"verify=openai:{model}@{server.base_url}", "--key", f"verify={key}"


def test_each_task_asks_its_own_server(servers: Servers, tmp_path: Path, cli: Command) -> None:
    """With one cap; and what is sent to one of them stays from the other."""
    one, two = servers
    prices = ("--input-price", "1", "--output-price", "1", "--max-cost", "1")
    of_two = ("--input-price", "verify=0", "--output-price", "verify=0", "--rpm", "verify=600")
    call = call_of(tmp_path, one, *at(two), *prices, *of_two)
    estimated = cli("estimate", *call, "--json").json()
    models = {model["llm"]: model for model in estimated["models"]}
    assert {name: model["tasks"] for name, model in models.items()} == {
        "openai:big": ["decompose"],
        "openai:small": ["verify"],
    }
    assert models["openai:small"]["usd"] == 0 < models["openai:big"]["usd"]
    assert (models["openai:big"]["hours"], models["openai:small"]["hours"] > 0) == (None, True)
    assert "openai:small (verify)" in cli("estimate", *call).out
    summary = cli("run", *call, "--json").json()
    assert summary["records"] == {"total": 3, "done": 3, "failed": 0}
    assert {body["model"] for body in one.bodies} == {"big"}
    assert {body["model"] for body in two.bodies} == {"small"}
    assert {headers.get("x-tenant") for headers in one.headers} == {"of-a-tenant-3"}
    assert {headers.get("x-tenant") for headers in two.headers} == {None}
    assert ("seed" in one.bodies[0], "seed" in two.bodies[0]) == (True, False)
    stored = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["additive"]["llm"]
    assert [stored[task]["model"] for task in ("decompose", "verify")] == ["big", "small"]
    shown = f"openai:big at {one.base_url} (decompose); openai:small at {two.base_url} (verify)"
    assert shown in cli("status", tmp_path / "run").out
    assert shown in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    secrets = (b"of-the-run-1", b"of-gpu-2", b"of-a-tenant-3")
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret in content for content in files for secret in secrets)


def test_another_model_is_another_run(servers: Servers, tmp_path: Path, cli: Command) -> None:
    """It changes the signatures of the metrics that read the task, and no others; nothing is
    asked again of what the others are made of."""
    one, two = servers
    a, b = tmp_path / "a", tmp_path / "b"
    made = []
    for out, model in ((a, "small"), (b, "other")):
        summary = cli("run", *call_of(tmp_path, one, *at(two, model)), "--out", out, "--json")
        metrics = summary.json()["metrics"]
        made.append({name: metrics[name]["signature"] for name in metrics} | {"n": len(one.bodies)})
    changed = [name for name, text in made[0].items() if made[1][name] != text]
    assert changed == ["faithfulness"]
    said = cli("run", *call_of(tmp_path, one, *at(two, "other")), "--out", a)
    assert (said.status, '--llm of verify: was "small", now "other"' in said.err) == (2, True)
    assert "llm.model (verify)" in cli("compare", a, b).out
    more = ("--metric-file", OWN, "--verifier", "llm")
    said = cli("score", a, "--metrics", "claim-support-share", *more)
    assert said.status == 0, "nothing is missing, so no model is named again"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--llm", "verfy=openai:m"), "unknown task verfy"),
        (("--llm", "judge=openai:m"), "--llm judge=openai:m: this run has no task judge"),
        (("--rpm", "judge=5"), "this run has no task judge"),
        (("--llm", "verify=openai-batch:m"), "batch jobs are for a whole run"),
        (("--llm", "verify=builtin"), "faithfulness: verify: --llm builtin can only do"),
        (("--llm", "verify=no:m"), "unknown LLM 'no'; known: builtin, openai:MODEL"),
        (
            ("--llm", "verify=Groq:m"),
            "Groq is asked as --llm openai:MODEL --base-url https://api.groq.com/openai/v1 "
            "--key GROQ_API_KEY",
        ),
        (("--llm", "verify=openai:m@gpu:8000/v1"), "write http:// or https:// after @"),
        (("--llm", "verify="), "is not [TASK=]MODEL"),
        (("--llm", "verify=openai:m@http://gpu/v1", "--key", "verify=GPU_KEY"), "--allow-http-key"),
        (("--llm", "verify=openai:m@http://u:pw@gpu/v1"), "holds a user name or password"),
        (("--key", "verify=NOT_SET"), "the environment variable NOT_SET is not set"),
        (("--key", "verify=sk-of-mine"), "write the name of an environment variable"),
        (("--rpm", "verify=0"), "--rpm must be a number above zero"),
        (("--rpm", "verify=x"), "'x' is not a valid float"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ",
)
def test_what_cannot_be_is_refused(
    options: tuple[str, ...], message: str, servers: Servers, tmp_path: Path, cli: Command
) -> None:
    said = cli("run", *call_of(tmp_path, servers[0], *options))
    assert (said.status, servers[0].bodies) == (2, [])
    assert message in " ".join(said.err.split())
    assert "pw" not in said.err
    assert "of-mine" not in said.err


@pytest.mark.parametrize(
    ("options", "model"),
    [(("--llm", "verify=openai:z"), "z"), (("--set", "llm=openai:w"), "y")],
    ids=["option", "set"],
)
def test_what_is_typed_goes_before_a_file_task_by_task(
    options: tuple[str, ...], model: str, servers: Servers, tmp_path: Path, cli: Command
) -> None:
    (tmp_path / "c.toml").write_text('llm = ["openai:x", "verify=openai:y"]\nrpm = 60\n')
    call = call_of(tmp_path, servers[0], *options, "--config", tmp_path / "c.toml")
    models = cli("estimate", *call, "--json").json()["models"]
    assert [model["llm"] for model in models] == ["openai:big", f"openai:{model}"]
    assert all(model["hours"] for model in models), "they are at one server"


def test_settings_of_a_task_are_those_of_its_server() -> None:
    of_run = {"base_url": "http://run/v1", "headers": {"X": "Y"}, "params": {"a": 1}, "rpm": 5.0}
    prices = {"input_price": 1.0, "output_price": 2.0}
    by_task = {
        "verify": "openai:b@c@http://gpu:8000/v1",
        "judge": {"model": "openai:z", "tpm": 7.0},
        "facts": "other:q",
    }
    llm = LLMConfig("openai:a", by_task=by_task, **of_run, **prices)
    assert llm.of("decompose") == LLMConfig("openai:a", **of_run, **prices)
    assert llm.of("judge") == LLMConfig("openai:z", tpm=7.0, **of_run)
    assert llm.of("facts") == LLMConfig("other:q")
    assert llm.of("verify") == LLMConfig(
        "openai:b@c", base_url="http://gpu:8000/v1", key_variable=""
    )
