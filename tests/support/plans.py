"""Plans of runs without models: the prompts are read, nothing is opened."""

from collections.abc import Sequence

from claimscore.config import RunConfig
from claimscore.pipeline.plan import Plan, load_metrics, open_plan, plan_steps


def plan_of(config: RunConfig, columns: Sequence[str]) -> Plan:
    """What the configuration comes to for records with these columns."""
    return open_plan(plan_steps(config, load_metrics(config.metrics), columns), asks=False)
