"""What a node must have, and how many workers the nodes have room for."""

import pytest

from claimscore.errors import ConfigError
from claimscore.pipeline.ray import Resources, plan_layout, refuse_node


@pytest.mark.parametrize(
    ("nodes", "device", "workers", "cpus", "gpus", "on"),
    [
        pytest.param([{"CPU": 2, "GPU": 2}], "auto", 2, 0, 1, "cuda", id="two GPUs"),
        pytest.param(
            [{"CPU": 8, "GPU": 4}, {"CPU": 2}, {"CPU": 2, "GPU": 1}],
            *("cuda", 5, 0, 1, "cuda"),
            id="one a GPU on every node",
        ),
        pytest.param([{"CPU": 4, "GPU": 2}], "cpu", 2, 2, 0, "cpu", id="GPUs left alone"),
        pytest.param([{"CPU": 3}, {"CPU": 3}], "auto", 2, 2, 0, "cpu", id="not across nodes"),
        pytest.param([{"CPU": 1}], "auto", 1, 1, 0, "cpu", id="fewer CPUs than threads"),
        pytest.param([{"GPU": 1}], "auto", 1, 0, 1, "cuda", id="no CPU needed"),
    ],
)
def test_a_worker_has_a_gpu_or_the_cpus_of_a_local_run(
    nodes: list[Resources], device: str, workers: int, cpus: int, gpus: int, on: str
) -> None:
    """As many as fit on the nodes, each on one node alone."""
    assert plan_layout(nodes, device, 2) == (workers, cpus, gpus, 2, on)


def test_a_cluster_without_the_device_is_refused() -> None:
    """Ray would wait for one."""
    with pytest.raises(ConfigError, match="--num-gpus"):
        plan_layout([{"CPU": 4}], "cuda", 2)
    for nodes in ([{"GPU": 4}], []):
        with pytest.raises(ConfigError, match="--num-cpus"):
            plan_layout(nodes, "cpu", 2)


def test_a_node_has_the_keys() -> None:
    """They are not sent; the one that is missing is named."""
    with pytest.raises(ConfigError, match=r"node 1\.2\.3\.4 .* has no OTHER: keys are not sent"):
        refuse_node("1.2.3.4", "1.0", ("OTHER",), driver="1.0")
    refuse_node("1.2.3.4", "1.0", (), driver="1.0")


def test_a_node_has_the_version_of_the_driver() -> None:
    """Else the command that installs it is named."""
    with pytest.raises(ConfigError, match=r"1\.2\.3\.4 .* claimscore 1\.0, the driver 9\.9.*pip"):
        refuse_node("1.2.3.4", "1.0", (), driver="9.9")
