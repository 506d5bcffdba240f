"""How many workers of each kind a cluster has room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.pipeline.ray.planning import (
    LLM_CPUS,
    MODEL_SHARE,
    Layout,
    Resources,
    plan_layout,
    share,
)


def laid_out(
    *nodes: Resources,
    device: str = "auto",
    threads: int = 2,
    computes: bool = True,
    concurrency: int = 64,
) -> Layout:
    return plan_layout(nodes, device, threads, computes=computes, concurrency=concurrency)


@pytest.mark.parametrize(
    ("concurrency", "workers"), [(1, 1), (3, 3), (64, 4)], ids=["one", "few", "many"]
)
def test_no_more_workers_ask_than_requests_may_be_in_flight(concurrency: int, workers: int) -> None:
    """A local server may bear one request at a time."""
    found = laid_out({"CPU": 32.0}, concurrency=concurrency)
    assert found.llm_workers == workers
    assert 1 <= share(concurrency, workers) <= concurrency / workers


@pytest.mark.parametrize(
    ("nodes", "device", "workers", "cpus", "gpus", "on"),
    [
        pytest.param([{"CPU": 2, "GPU": 2}], "auto", 2, 0.0, 1, "cuda", id="two GPUs"),
        pytest.param(
            [{"CPU": 8, "GPU": 4}, {"CPU": 2}, {"CPU": 2, "GPU": 1}],
            *("cuda", 5, 0.0, 1, "cuda"),
            id="one a GPU on every node",
        ),
        pytest.param([{"CPU": 4, "GPU": 2}], "cpu", 2, 1.8, 0, "cpu", id="GPUs left alone"),
        pytest.param([{"CPU": 3}, {"CPU": 3}], "auto", 2, 1.8, 0, "cpu", id="not across nodes"),
        pytest.param([{"CPU": 1}], "auto", 1, 0.9, 0, "cpu", id="fewer CPUs than threads"),
        pytest.param([{"GPU": 1}, {"CPU": 1}], "auto", 1, 0.0, 1, "cuda", id="CPUs elsewhere"),
    ],
)
def test_a_model_worker_has_a_gpu_or_the_cpus_of_a_local_run(
    nodes: list[Resources], device: str, workers: int, cpus: float, gpus: int, on: str
) -> None:
    """As many as fit on the nodes, each on one node alone."""
    found = laid_out(*nodes, device=device)
    assert (found.model_workers, found.gpus, found.device) == (workers, gpus, on)
    assert found.cpus == pytest.approx(cpus)
    assert found.threads == 2


def test_gpus_that_nobody_has_are_refused() -> None:
    """Only where models are to compute."""
    with pytest.raises(ConfigError, match="--num-gpus"):
        laid_out({"CPU": 4}, device="cuda")
    assert laid_out({"CPU": 4}, device="cuda", computes=False).model_workers == 0


def test_a_cluster_without_cpus_is_refused() -> None:
    """Ray would wait for one."""
    with pytest.raises(ConfigError, match="--num-cpus"):
        laid_out({"GPU": 4})
    with pytest.raises(ConfigError, match="--num-cpus"):
        laid_out()


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.integers(1, 64))
def test_there_is_room_for_all_workers_at_a_time(cpus: list[int], threads: int) -> None:
    """Else stages would wait for each other."""
    found = laid_out(*({"CPU": n} for n in cpus), threads=threads)
    asking = LLM_CPUS * found.llm_workers
    assert found.model_workers * found.cpus + asking <= sum(cpus) + 1e-9
    each = round(found.cpus / MODEL_SHARE)
    assert found.model_workers == sum(n // each for n in cpus) >= 1
