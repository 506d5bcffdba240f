"""The estimate of a run that may never be made."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import BinaryIO

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.finished import Finished
from claimscore.pipeline.estimating.questions import cache_to_look_at
from claimscore.pipeline.estimating.records import RecordsEstimate
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.plan import load_metrics, make_plan, required_columns
from claimscore.records import prepare


def estimate_run(
    config: RunConfig, *, out: Path | str | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """What `run(config)` would ask for, minus what the cache has.

    Nothing is sent, and nothing is written but a temporary copy of standard input. With
    `out`, an existing run directory, what is finished there counts as answered. Raises
    `ConfigError` where the run would be refused.
    """
    if not (config.metrics or config.tasks):
        raise ConfigError("nothing to do: name --metrics or --tasks")
    metrics = load_metrics(config.metrics, config.metric_files)
    required = required_columns(metrics)
    with (
        tempfile.TemporaryDirectory(prefix="claimscore-") as spool,
        contextlib.ExitStack() as stack,
    ):
        dataset = prepare(config.input, spool=Path(spool), required=required, stdin=stdin)
        plan = make_plan(config, list(dataset.columns), metrics)
        provider = load_provider(config.llm)
        stack.callback(run_blocking, provider.aclose)
        cache = stack.enter_context(cache_to_look_at(config.cache_dir))
        done = Finished.found(config, out, dataset, plan)
        return RecordsEstimate(config, dataset, plan, provider, cache, done).estimate()
