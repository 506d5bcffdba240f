"""The subjects of docs/explanation/scaling.md: two kinds of records, sizes of machines and LLMs.

Every figure says where it is from: `MEASURED` by measure.py, or `ASSUMED` here and only here.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from machines import Encoders, Host, LanguageModel, predict

from claimscore.pipeline.estimate.run_time import Costs, PassWork, Prediction, Work

# -- measured by measure.py: one core of an AMD EPYC (Zen 3, AVX2), November 2026

#: Tokens (4 characters and 2 special ones a text) a second of one core, embedded model, float32.
CORE_TOKENS_PER_S = 2_900.0

COSTS = Costs()


def hotel_pairs(records: float) -> Work:
    """Pairs of summaries of about eight sentences: caspr, ds, bs-inverse. Per record measured on
    the 48 contrastive pairs of the CASPR data, with the rules' claims."""
    return Work(
        records=records,
        requests=14.6 * records,
        prompt_tokens=14.6 * 351 * records,
        completion_tokens=14.6 * 25.7 * records,
        passes=(
            PassWork("nli", 279 * records, 8_107 * records),
            PassWork("token_scores", records, 294 * records),
        ),
        steps=4,
    )


def products(records: float) -> Work:
    """Products of eight reviews and a summary: factsim. Per record measured on 60 products."""
    return Work(
        records=records,
        requests=9 * records,
        prompt_tokens=9 * 258 * records,
        completion_tokens=9 * 40.2 * records,
        passes=(PassWork("fact_similarities", 28.1 * records, 116 * records),),
        steps=3,
    )


# -- assumed


@dataclasses.dataclass(frozen=True)
class Assumed:
    """What nobody measured here; every one can be given to plan.py.

    `gpu_tflops` is a data sheet's (bf16, dense, of an A100), `utilisation` the share of it that a
    forward pass reaches. `encoder_gflop` is a token's in an encoder of roberta-large's shape,
    `llm_gflop` in a language model of 8 billion parameters: two a parameter beside embeddings.
    `shared_prompt`: the share of the prompts' tokens that a server keeps of earlier ones. Dollars
    are a million tokens' of a small hosted model.
    """

    gpu_tflops: float = 312.0
    utilisation: float = 0.4
    encoder_gflop: float = 0.61
    llm_gflop: float = 16.0
    shared_prompt: float = 0.0
    laptop_cores: int = 8
    rpm: float = 10_000.0
    tpm: float = 10_000_000.0
    small_rpm: float = 500.0
    small_tpm: float = 200_000.0
    latency_s: float = 1.5
    concurrency: int = 1024
    input_usd: float = 0.15
    output_usd: float = 0.60

    @property
    def encoder_tokens_per_s(self) -> float:
        """Of one GPU."""
        return self.gpu_tflops * 1e3 * self.utilisation / self.encoder_gflop

    @property
    def llm_tokens_per_s(self) -> float:
        """Of one GPU that serves a language model, prompts and answers."""
        return self.gpu_tflops * 1e3 * self.utilisation / self.llm_gflop


ASSUMED = Assumed()


class Cluster(NamedTuple):
    """Machines of one size: their GPUs, and the one that the run is on; `small`: with the limits
    of a small customer."""

    name: str
    gpus: int
    host: Host
    small: bool = False


LAPTOP = Cluster("one laptop", 0, Host(cores=8))
SMALL_CUSTOMER = Cluster("one laptop, small limits", 0, Host(cores=8), small=True)
CLUSTERS = (
    LAPTOP,
    Cluster("one GPU server", 1, Host(cores=16)),
    Cluster("8 GPUs, one machine", 8, Host(cores=64)),
    Cluster("64 GPUs, Ray", 64, Host(cores=64, part_writers=8)),
)


def hosted(cluster: Cluster, given: Assumed) -> LanguageModel:
    """A provider with the limits of a small or of a large customer."""
    small = cluster.small
    return LanguageModel(
        rpm=given.small_rpm if small else given.rpm,
        tpm=given.small_tpm if small else given.tpm,
        latency_s=given.latency_s,
        concurrency=given.concurrency if cluster.gpus else 64,
    )


def encoders(cluster: Cluster, gpus: float, work: Work, given: Assumed) -> Encoders:
    """The cluster's encoder devices, `gpus` of its GPUs; a share of one is a slower one."""
    if not cluster.gpus:
        pace = CORE_TOKENS_PER_S * given.laptop_cores
        return Encoders(1, {one.step: pace for one in work.passes}, on_cpu=True)
    devices = max(1, int(gpus))
    pace = given.encoder_tokens_per_s * min(1.0, gpus)
    return Encoders(devices, {one.step: pace for one in work.passes})


def with_hosted(cluster: Cluster, work: Work, given: Assumed, costs: Costs = COSTS) -> Prediction:
    """The run with a hosted language model: all GPUs are the encoders'."""
    models = encoders(cluster, cluster.gpus, work, given)
    return predict(work, hosted(cluster, given), models, cluster.host, costs)


class Split(NamedTuple):
    """A run with servers of one's own, and how many of the GPUs they have."""

    serving: float
    prediction: Prediction


def with_servers(cluster: Cluster, work: Work, given: Assumed, costs: Costs = COSTS) -> Split:
    """The run with a language model on the cluster's own GPUs, split as is best; one GPU is
    shared by time."""
    asked = work.completion_tokens + work.prompt_tokens * (1 - given.shared_prompt)
    given_work = dataclasses.replace(
        work, prompt_tokens=work.prompt_tokens * (1 - given.shared_prompt)
    )
    if cluster.gpus == 1:
        llm_s = asked / given.llm_tokens_per_s
        models_s = sum(one.tokens for one in work.passes) / given.encoder_tokens_per_s
        choices = [llm_s / (llm_s + models_s)]
    else:
        choices = [float(n) for n in range(1, cluster.gpus)]
    splits = []
    for serving in choices:
        llm = LanguageModel(
            tokens_per_s=serving * given.llm_tokens_per_s,
            latency_s=given.latency_s,
            concurrency=max(1, round(256 * serving)),
        )
        models = encoders(cluster, cluster.gpus - serving, work, given)
        splits.append(Split(serving, predict(given_work, llm, models, cluster.host, costs)))
    return min(splits, key=lambda split: split.prediction.known_s)
