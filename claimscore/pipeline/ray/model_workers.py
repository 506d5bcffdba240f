"""Workers of a Ray cluster that run the models: an actor with the models of one device each.

The driver gives an actor the rows of a chunk, and writes the rows that come back. An actor has as
many chunks at a time as it computes at once, so few rows are on their way. A dead actor loses the
chunk it had: the driver starts another one and gives the chunk to the next worker that is free.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import polars as pl
import ray
from ray.exceptions import RayError, RayTaskError

from claimscore import __version__
from claimscore.config import (
    EncoderConfig,
    RunConfig,
    missing_environment,
    model_api_key,
    model_key_name,
)
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline.encoders import THREADS, Models, load_model, load_workers
from claimscore.pipeline.encoders.devices import cpu_threads, n_gpus, set_cpu_threads
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.model_stage import (
    IsOver,
    ModelPool,
    WorkerLostError,
    do_passes,
    read_tables,
)
from claimscore.pipeline.plan import ChunkTodo, PlannedPass
from claimscore.pipeline.progress import PassDone, Progress, ProgressReporter
from claimscore.pipeline.ray import INSTALL, plan_layout, refuse_node
from claimscore.pipeline.ray.cluster import connected, first_line, working_nodes
from claimscore.pipeline.settings import add_settings, model_settings
from claimscore.runs import RunDirectory
from claimscore.types import JSON

#: Seconds between two looks whether a worker is ready, and whether the run was stopped.
_POLL_S = 0.25

#: A worker that dies so often before it has loaded its models stops the run.
LOAD_TRIES = 5


@dataclasses.dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. No key: a node has its own.

    `version` is the driver's, `threads` is how many a CPU computes with. Stored results of models
    lie beside the cache on the worker's node.
    """

    version: str
    key_names: tuple[str, ...]
    roles: tuple[str, ...]
    encoders: EncoderConfig
    threads: int
    model_store: bool
    cache_dir: Path | None


class ChunkResult(NamedTuple):
    """The tables of a chunk by the step that made them, and what that took."""

    rows: dict[str, Mapping[str, pl.DataFrame]]
    pairs: int
    passes: dict[str, PassDone]


class ModelActor:
    """The process of a worker. Ray calls its methods in several threads."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._models: Models = {}
        self._stopping = threading.Event()

    def load(self) -> JSON:
        """Check the node and load the models; `model_settings` of them."""
        settings, node = self._settings, _node()
        no_keys = missing_environment(settings.key_names)
        refuse_node(node, __version__, no_keys, driver=settings.version)
        self._models = load_on_one_device(settings, node)
        facts = model_settings(self._models)
        if settings.model_store:
            store = open_store(settings.cache_dir)
            self._models = {role: store.around(model) for role, model in self._models.items()}
        return facts

    def do(
        self, chunk: int, passes: tuple[PlannedPass, ...], tables: Mapping[str, pl.DataFrame]
    ) -> ChunkResult:
        """Run the passes of a chunk with these tables; `ChunkUndoneError` after `stop`."""
        rows: dict[str, Mapping[str, pl.DataFrame]] = {}
        item, work = ChunkTodo(chunk, passes=passes), Progress()
        do_passes(item, tables, rows.__setitem__, self._models, work, self._stopping.is_set)
        return ChunkResult(rows, work.pairs_done, work.passes)

    def stop(self) -> None:
        """End the chunks at work after their next batch."""
        self._stopping.set()


def load_on_one_device(settings: WorkerSettings, node: str) -> Models:
    """The models on the one device that Ray gave this process; `ConfigError` where it is a GPU
    that only Ray knows of."""
    if settings.encoders.device == "cuda" and not n_gpus():
        raise ConfigError(
            f"node {node} of the Ray cluster has a GPU, as Ray was told, but torch there sees "
            "none; install torch with CUDA and a driver there, or take --device cpu"
        )
    set_cpu_threads(settings.threads)
    worker, *_ = load_workers(settings.roles, settings.encoders, load_model)
    return worker.models


class RayModelWorker:
    """The driver's side of a worker: a `ModelWorker`. `lost` actors are replaced."""

    def __init__(self, name: str, pool: RayModels) -> None:
        self.name = name
        self.threads = THREADS[pool.layout.device]
        self._pool = pool
        self._deaths = 0
        self.start()

    def start(self) -> None:
        """Start the process; it loads its models as soon as the cluster has room for it."""
        layout = self._pool.layout
        self._is_ready = False
        actor: Any = ModelActor
        self._actor: Any = (
            ray.remote(actor)
            .options(
                num_cpus=layout.cpus,
                num_gpus=layout.gpus,
                max_restarts=0,
                max_concurrency=self.threads + 1,  # chunks, and a stop
            )
            .remote(self._pool.settings)
        )
        self.loading: Any = self._actor.load.remote()

    def loaded(self) -> JSON | None:
        """The facts of its models, to be called when `loading` has ended; None where the process
        died and another one was started. Raises what went wrong at loading."""
        try:
            facts: JSON = ray.get(self.loading)
        except RayTaskError as exc:
            raise _cause_of(exc) from exc
        except RayError as exc:
            if getattr(exc, "actor_init_failed", False):  # the same each time
                why = str(exc).strip().rpartition("\n")[2]
                raise ConfigError(
                    f"a node of the Ray cluster can start no worker: {why}; {INSTALL}"
                ) from exc
            self._deaths += 1
            if self._deaths == LOAD_TRIES:
                raise StoppedEarly(
                    f"{self.name} died {LOAD_TRIES} times while it loaded its models: "
                    f"{first_line(exc)}"
                ) from exc
            self.start()
            return None
        self._deaths = 0
        return facts

    async def ready(self, is_over: IsOver) -> None:
        while not (self._is_ready or is_over()):
            if not ray.wait([self.loading], timeout=0)[0]:
                await anyio.sleep(_POLL_S)
            elif (facts := self.loaded()) is not None:
                self._pool.refuse_other(facts)
                self._is_ready = True

    async def do(self, item: ChunkTodo, is_over: IsOver) -> None:
        actor, directory = self._actor, self._pool.directory
        try:
            tables = await anyio.to_thread.run_sync(read_tables, directory, item.chunk)
            result: ChunkResult = await actor.do.remote(item.chunk, item.passes, tables)
        except RayTaskError as exc:
            raise _cause_of(exc) from exc
        except RayError as exc:
            if actor is self._actor:
                self.close()
                self.start()
            raise WorkerLostError(first_line(exc)) from exc
        for step, rows in result.rows.items():
            await anyio.to_thread.run_sync(directory.write_parts, item.chunk, step, rows)
        self._pool.count(item.chunk, result)

    def stop(self) -> None:
        """Tell the process of a stop."""
        self._actor.stop.remote()

    def close(self) -> None:
        """End the process."""
        ray.kill(self._actor)


class RayModels:
    """The workers of the Ray that this process is connected to."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        roles: Sequence[str],
        reporter: ProgressReporter[Progress],
    ) -> None:
        self.directory = directory
        self.facts: JSON = {}
        self._reporter = reporter
        encoders = config.encoders
        served = all(is_served(getattr(encoders, role) or "") for role in roles)
        nodes = [node["Resources"] for node in working_nodes()]
        device = "cpu" if served and encoders.device == "auto" else encoders.device
        self.layout = plan_layout(nodes, device, cpu_threads())
        self.settings = WorkerSettings(
            version=__version__,
            key_names=tuple(model_key_name(r) for r in roles if model_api_key(r) is not None),
            roles=tuple(roles),
            encoders=dataclasses.replace(encoders, device=self.layout.device),
            threads=self.layout.threads,
            model_store=config.model_store,
            cache_dir=config.cache_dir,
        )
        self.workers: list[RayModelWorker] = []

    def load(self) -> None:
        """Start the workers; return when the first one has loaded its models. The others load
        meanwhile, or wait for room in the cluster."""
        self._reporter.phase("loading models", self.directory)
        for number in range(self.layout.workers):
            self.workers.append(RayModelWorker(f"Ray worker {number + 1}", self))
        while not self.facts:
            by_loading = {worker.loading: worker for worker in self.workers}
            (first, *_), _ = ray.wait(list(by_loading), num_returns=1)
            self.facts = by_loading[first].loaded() or {}

    def refuse_other(self, facts: JSON) -> None:
        """`ConfigError` where a worker has other models than the first one."""
        if facts != self.facts:
            raise ConfigError(
                f"a node of the cluster has other models: {facts}, not {self.facts}; name a "
                "revision (HF_ID@REV), or put the same ones on all nodes"
            )

    async def tell_of_stop(self, is_over: IsOver) -> None:
        while not is_over():
            await anyio.sleep(_POLL_S)
        for worker in self.workers:
            worker.stop()

    def count(self, chunk: int, result: ChunkResult) -> None:
        """Add what a worker has done to the progress of the run."""
        progress = self._reporter.progress
        progress.add_pairs(chunk, result.pairs, 1.0)
        for step, work in result.passes.items():
            progress.add_pass(step, work.records, work.items, work.seconds)

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()


@contextlib.contextmanager
def ray_models(
    config: RunConfig,
    directory: RunDirectory,
    roles: Sequence[str],
    reporter: ProgressReporter[Progress],
) -> Iterator[ModelPool]:
    """The models of these roles on the cluster that the settings name, or on a Ray of its own.

    `ConfigError` where a node or a model is not as it must be. The workers are gone afterwards.
    """
    reporter.phase("starting Ray", directory)
    with connected(config.address):
        models = RayModels(config, directory, roles, reporter)
        try:
            models.load()
            add_settings(directory, models.facts)
            yield ModelPool(models.workers, models.tell_of_stop)
        finally:
            models.close()


def _node() -> str:
    """The address of the node that this process is on."""
    address: Any = ray.util.get_node_ip_address  # without types
    return str(address())


def _cause_of(error: RayTaskError) -> BaseException:
    """The error of a worker, as it raised it; the traceback there is the text of `error`."""
    cause = error.cause
    return cause if isinstance(cause, Exception) else error
