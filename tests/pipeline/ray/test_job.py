"""What workers are given, and what is refused before anything is begun."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.plan import Plan, make_plan
from claimscore.pipeline.ray import check_ray
from claimscore.pipeline.ray.job import Job, done_row, finished_of, resolved
from claimscore.pipeline.settings import config_from, options_of

COLUMNS = ("id", "summary_a", "summary_b")


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig("records.jsonl", tmp_path / "run", ("caspr", "ds"), engine="ray")


@pytest.fixture
def plan(config: RunConfig) -> Plan:
    return make_plan(config, COLUMNS)


@pytest.fixture
def job(config: RunConfig, plan: Plan) -> Job:
    return Job(
        config=config,
        where="run",
        tasks=plan.tasks,
        passes=plan.passes,
        roles=plan.roles,
        other_models=(),
        head="head",
        namespace="",
        calls=2,
        threads=1,
        expected={},
        key_names=(),
        needs_llm=True,
    )


def test_a_row_says_what_is_missing_of_a_chunk(job: Job, plan: Plan) -> None:
    """Sides and passes that are done are not in it."""
    (task,) = plan.tasks
    item = ChunkTodo(7, (dataclasses.replace(task, sides=("b",)),), plan.passes[:1])
    finished = {"records": {"records": 64}, "decompose-a": {"claims": 5, "failures": 0}}
    assert job.todo(job.row(item, finished)) == (item, finished)


def test_the_next_stage_gets_what_was_written(job: Job, plan: Plan) -> None:
    """Its tasks are done; the steps that they were are among those that are finished."""
    row = job.row(ChunkTodo(7, plan.tasks, plan.passes), {"records": {"records": 64}})
    after = done_row(row, {"decompose-a-b": {"claims": 9}})
    item, finished = job.todo(after)
    assert item == ChunkTodo(7, (), plan.passes)
    assert finished == {"records": {"records": 64}, "decompose-a-b": {"claims": 9}}
    assert finished_of(after) == (7, finished)


def test_prompts_of_ones_own_need_no_file_at_the_workers(config: RunConfig, plan: Plan) -> None:
    """They travel in the plan; the paths stay here."""
    own = dataclasses.replace(config, prompts={"decompose": "mine.toml"}, metric_files=(Path("m"),))
    sent = resolved(own, plan)
    assert (dict(sent.prompts), sent.prompts_dir, sent.metric_files) == ({}, None, ())


def test_the_server_is_the_drivers(
    config: RunConfig, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may have another OPENAI_BASE_URL; the run has one."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://here/v1")
    assert resolved(config, plan).llm.base_url == "http://here/v1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"llm": LLMConfig("openai-batch:m")}, "openai-batch", id="batches"),
        pytest.param({"encoders": EncoderConfig(device="cuda:0")}, "cuda:0", id="one GPU"),
        pytest.param({"encoders": EncoderConfig(device="cpu,cuda")}, "cpu,cuda", id="devices"),
    ],
)
def test_what_only_one_process_can_do_is_refused(
    config: RunConfig, plan: Plan, changes: dict[str, Any], message: str
) -> None:
    """In one line that says what to do."""
    with pytest.raises(ConfigError, match=message):
        resolved(dataclasses.replace(config, **changes), plan)


def test_ray_that_is_missing_is_named_with_the_command(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'claimscore\[ray\]'"):
        check_ray(config)
    check_ray(dataclasses.replace(config, engine="local"))


def test_rays_client_is_refused(config: RunConfig) -> None:
    """Its port has no data sets and no awaiting of actors' answers."""
    pytest.importorskip("ray", reason="needs the extra `ray`")
    with pytest.raises(ConfigError, match="--address auto"):
        check_ray(dataclasses.replace(config, address="ray://head:10001"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        pytest.param("127.0.0.1:1", "no Ray cluster can be reached there", id="nobody listens"),
        pytest.param("head", "HOST:PORT", id="no port"),
    ],
)
def test_an_address_where_nobody_is(config: RunConfig, address: str, message: str) -> None:
    """Ray itself would try for minutes, and hear no Ctrl-C."""
    pytest.importorskip("ray", reason="needs the extra `ray`")
    with pytest.raises(ConfigError, match=message):
        check_ray(dataclasses.replace(config, address=address))


@pytest.mark.parametrize(
    ("concurrency", "workers"), [(1, 1), (3, 3), (64, 4)], ids=["one", "few", "many"]
)
def test_no_more_workers_ask_than_requests_may_be_in_flight(
    monkeypatch: pytest.MonkeyPatch, concurrency: int, workers: int
) -> None:
    """A local server may bear one request at a time."""
    pytest.importorskip("ray", reason="needs the extra `ray`")
    from claimscore.pipeline.ray import cluster

    monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: {"CPU": 32.0})
    monkeypatch.setattr(cluster, "_nodes", lambda: [{"Resources": {"CPU": 32.0}}])
    found = cluster.layout("cpu", 2, True, concurrency)
    assert found.llm_workers == workers
    assert 1 <= cluster.share(concurrency, workers) <= concurrency / workers


def test_an_address_goes_with_ray(tmp_path: Path) -> None:
    """Elsewhere it would be ignored."""
    with pytest.raises(ConfigError, match="--engine ray"):
        RunConfig("records.jsonl", tmp_path, address="auto")


def test_the_engine_is_no_setting_of_the_run(config: RunConfig) -> None:
    """`score` works in its own process, whatever `run` did."""
    stored = options_of(dataclasses.replace(config, address="auto"))
    assert not {"engine", "address"} & set(stored)
    assert config_from(stored, config.out).engine == "local"
