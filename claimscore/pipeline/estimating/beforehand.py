"""What a run says beforehand: what is missing of it, before it asks for anything."""

from __future__ import annotations

from collections.abc import Iterable

from claimscore.config import RunConfig
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.finished import Finished
from claimscore.pipeline.estimating.questions import cache_to_look_at
from claimscore.pipeline.estimating.records import RecordsEstimate
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.plan import Plan
from claimscore.records import Dataset, Prepared
from claimscore.rundir import RunDirectory

#: So many records are counted, about: the run waits for it.
BEFOREHAND_RECORDS = 5_000


def estimate_left(
    config: RunConfig,
    dataset: Dataset | Prepared,
    plan: Plan,
    provider: Provider,
    directory: RunDirectory,
    todo: Iterable[ChunkTodo],
) -> Estimate:
    """What a run that is about to begin will ask for: `todo` is what is missing of `directory`.

    Of larger inputs fewer records are counted than by `estimate_run`: the run itself waits.
    """
    with cache_to_look_at(config.cache_dir) as cache:
        return RecordsEstimate(
            config,
            dataset,
            plan,
            provider,
            cache,
            Finished(directory, todo),
            BEFOREHAND_RECORDS,
            directory,
        ).estimate()
