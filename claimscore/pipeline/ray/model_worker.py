"""The model stage in a process of a cluster: the models of one device."""

from __future__ import annotations

import functools
from typing import Any

from claimscore.errors import ConfigError
from claimscore.pipeline.chunk_work import do_passes
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.devices import Models, load_workers, n_gpus, set_cpu_threads
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.ray.board import Counts
from claimscore.pipeline.ray.files import ToldChunk
from claimscore.pipeline.ray.job import Job, Row, done_row
from claimscore.pipeline.ray.link import Link, here
from claimscore.pipeline.runner import with_store
from claimscore.pipeline.settings import model_settings
from claimscore.types import JSON


class _Stopping(Exception):
    """The run stops: what is at work is left undone."""


class ModelWorker:
    """Does the model passes of chunks; Ray Data calls it from as many threads as a device has."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._link = Link(job.head, "models")
        self._progress = Progress()
        self._models: Models = {}
        try:
            self._models = self._load()
        except Exception as exc:
            self._link.failed(exc)
        self._link.start(functools.partial(_counts, self._progress))

    def _load(self) -> Models:
        job = self._job
        job.check_place(here())
        models = load_here(job)
        found = model_settings(models)
        if found != job.expected:
            raise ConfigError(
                f"a node of the cluster has other models: {found}, not {job.expected}; name a "
                "revision (HF_ID@REV), or put the same ones on all nodes"
            )
        if job.config.model_store:
            (models,), self._progress.store = with_store(
                [models],
                job.config.cache_dir,
                lambda notice: self._link.tell("store", notice=notice),
            )
        return models

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        link, given = self._link, Row(chunk=row["chunk"], work=row["work"])
        item, finished = self._job.todo(given)
        if link.stopping.is_set():
            raise link.wait_for_end()
        link.takes(item.chunk)
        files = ToldChunk(self._job.where, item.chunk, finished, link)
        try:
            with link.at(f"the models, at chunk {item.chunk}"):
                do_passes(
                    item.passes,
                    files,
                    self._models,
                    listen=self._progress.listener(item.chunk, len(item.passes), self._check),
                    on_pass=self._progress.add_pass,
                )
        except _Stopping:
            raise link.wait_for_end() from None
        except Exception as exc:
            link.failed(exc)
            raise link.wait_for_end() from None
        self._progress.add_chunk(item.chunk)
        link.flush()
        return {**done_row(given, files.written)}

    def _check(self) -> None:
        """After each batch."""
        if self._link.stopping.is_set():
            raise _Stopping

    def __del__(self) -> None:
        self._link.close()


def _counts(progress: Progress) -> Counts:
    store = progress.store
    return Counts(
        progress.pairs_done,
        progress.model_chunk_share,
        {step: (work.records, work.seconds) for step, work in list(progress.passes.items())},
        None if store is None else (store.found, store.computed),
    )


def load_here(job: Job) -> Models:
    """The models of the job on this worker's one device; `ConfigError` where it is a GPU that
    only Ray knows of."""
    if job.config.encoders.device == "cuda" and not n_gpus():
        raise ConfigError(
            f"node {here()} of the Ray cluster has a GPU, as Ray was told, but torch there sees "
            "none; install torch with CUDA and a driver there, or take --device cpu"
        )
    set_cpu_threads(job.threads)
    workers = load_workers(job.roles, job.config.encoders, load_model)
    return workers[0].models if workers else {}


def look_at_models(job: Job) -> JSON:
    """What is known of the job's models once they are loaded; for a task on some node."""
    return model_settings(load_here(job))
