"""What workers are given, and what is refused before anything is begun."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from claimscore import __version__
from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline import run as pipeline_run
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.plan import Plan, make_plan
from claimscore.pipeline.ray import check_ray
from claimscore.pipeline.ray.job import Job, done_row, finished_of, resolved
from claimscore.pipeline.ray.place import mark_place
from claimscore.pipeline.settings import config_from, options_of
from claimscore.storage import open_folder

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
        version=__version__,
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


def test_a_worker_is_where_the_run_is(job: Job, tmp_path: Path) -> None:
    """A folder of the same name on another machine would swallow what it writes."""
    job = dataclasses.replace(job, where=str(tmp_path / "run"))
    mark_place(open_folder(tmp_path / "run"), job.head)
    job.check_place("1.2.3.4")
    for mark in ("another call", ""):
        mark_place(open_folder(tmp_path / "run"), mark)
        with pytest.raises(ConfigError, match=r"node 1\.2\.3\.4 .* does not see .*--out"):
            job.check_place("1.2.3.4")
    with pytest.raises(ConfigError, match="does not see"):
        dataclasses.replace(job, where=str(tmp_path / "none")).check_place("1.2.3.4")
    assert not (tmp_path / "none").exists()


def test_a_worker_has_the_drivers_version(job: Job) -> None:
    """The node may be another one than was asked at first."""
    with pytest.raises(ConfigError, match=r"has claimscore .*0\.0\.9.*pip install"):
        dataclasses.replace(job, version="0.0.9").check_place("1.2.3.4")


def test_a_worker_has_the_keys(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not sent; the one that is missing is named."""
    job = dataclasses.replace(job, where=str(tmp_path), key_names=("OPENAI_API_KEY", "OTHER"))
    mark_place(open_folder(tmp_path), job.head)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
    monkeypatch.delenv("OTHER", raising=False)
    with pytest.raises(ConfigError, match="has no OTHER") as error:
        job.check_place("1.2.3.4")
    assert "sk-one" not in str(error.value)


def test_scoring_goes_to_the_cluster_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is missing, and only where something is; each call as it is told."""
    given: list[tuple[str | None, int]] = []

    def cluster(config: RunConfig, *parts: Any) -> Any:
        given.append((config.address, len(parts[-2])))
        raise StoppedEarly("at the cluster")

    monkeypatch.setattr(pipeline_run, "ray_runner", cluster)
    monkeypatch.setattr(pipeline_run, "check_ray", lambda config: None)
    records = tmp_path / "records.jsonl"
    records.write_text('{"summary_a": "Rooms are clean.", "summary_b": "Rooms are loud."}\n')
    out = tmp_path / "run"
    pipeline_run.run(RunConfig(str(records), out, ("ds",)))
    pipeline_run.score(out, ("ds",), engine="ray", address="head:6379")
    with pytest.raises(StoppedEarly, match="at the cluster"):
        pipeline_run.score(out, ("caspr",), engine="ray", address="head:6379")
    assert given == [("head:6379", 1)]


def test_an_address_goes_with_ray(tmp_path: Path) -> None:
    """Elsewhere it would be ignored."""
    with pytest.raises(ConfigError, match="--engine ray"):
        RunConfig("records.jsonl", tmp_path, address="auto")


def test_the_engine_is_no_setting_of_the_run(config: RunConfig) -> None:
    """`score` works where it is told, whatever `run` did."""
    stored = options_of(dataclasses.replace(config, address="auto"))
    assert not {"engine", "address"} & set(stored)
    assert config_from(stored, config.out).engine == "local"
