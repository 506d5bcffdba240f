"""A run of your size on your machines: what takes how long, and what is slowest.

    python benchmarks/scaling/plan.py --records 1000000 --gpus 8 --rpm 10000
    python benchmarks/scaling/plan.py --records 1000000 --gpus 8 --serving 7

The figures that it starts from are those of docs/explanation/scaling.md; options replace them.
`claimscore estimate --json` has the work of your own records.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from machines import Encoders, Host, LanguageModel, predict
from scaling_tables import rows, span
from setups import ASSUMED, COSTS, Assumed, hotel_pairs, products

from claimscore.console.amounts import size
from claimscore.pipeline.estimate.run_time import Work, disk

KINDS = {"pairs": hotel_pairs, "products": products}


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    work = parser.add_argument_group("the work")
    work.add_argument("--records", type=float, required=True)
    work.add_argument("--kind", choices=KINDS, default="pairs")
    work.add_argument("--requests", type=float, help="a record")
    work.add_argument("--prompt-tokens", type=float, help="a request")
    work.add_argument("--answer-tokens", type=float, help="a request")
    llm = parser.add_argument_group("the language model: a provider, or servers on your GPUs")
    llm.add_argument("--rpm", type=float)
    llm.add_argument("--tpm", type=float)
    llm.add_argument("--latency-s", type=float, default=ASSUMED.latency_s)
    llm.add_argument("--concurrency", type=int, default=ASSUMED.concurrency)
    llm.add_argument("--serving", type=int, default=0, help="GPUs that serve the language model")
    llm.add_argument("--server-tokens-per-s", type=float, help="of one GPU")
    llm.add_argument("--outage-s", type=float, default=0.0)
    models = parser.add_argument_group("the encoders")
    models.add_argument("--gpus", type=int, default=1, help="all of them")
    models.add_argument("--encoder-tokens-per-s", type=float, help="of one GPU")
    models.add_argument("--hours-between-losses", type=float, help="of one GPU's machine")
    models.add_argument("--restart-s", type=float, default=120.0)
    for name, of in (("host", Host()), ("cost", COSTS), ("assumed", ASSUMED)):
        group = parser.add_argument_group(name)
        for field in dataclasses.fields(of):
            if field.name not in ("rpm", "tpm", "latency_s", "concurrency"):
                option = f"--{name}-{field.name}".replace("_", "-")
                group.add_argument(option, type=float, default=getattr(of, field.name))
    money = parser.add_argument_group("money")
    money.add_argument("--usd-per-gpu-hour", type=float)
    return parser.parse_args()


def _given(asked: argparse.Namespace, prefix: str, of: Any) -> dict[str, Any]:
    """The options of a group as fields of `of`, whole numbers where it has such."""
    found = {}
    for field in dataclasses.fields(of):
        value = getattr(asked, f"{prefix}_{field.name}", getattr(of, field.name))
        found[field.name] = type(getattr(of, field.name))(value)
    return found


def asked_work(asked: argparse.Namespace) -> Work:
    """The records' work."""
    work = KINDS[asked.kind](asked.records)
    requests = work.requests if asked.requests is None else asked.requests * asked.records
    per_request = {
        "prompt_tokens": asked.prompt_tokens or work.prompt_tokens / work.requests,
        "completion_tokens": asked.answer_tokens or work.completion_tokens / work.requests,
    }
    tokens = {name: amount * requests for name, amount in per_request.items()}
    return dataclasses.replace(work, requests=requests, **tokens)


def main() -> None:
    asked = options()
    work = asked_work(asked)
    given = Assumed(**_given(asked, "assumed", ASSUMED))
    if not 0 <= asked.serving < max(1, asked.gpus):
        raise SystemExit("--serving: some GPUs must be left for the encoders")
    prompts = work.prompt_tokens * (1 - (given.shared_prompt if asked.serving else 0.0))
    work = dataclasses.replace(work, prompt_tokens=prompts)
    each = asked.server_tokens_per_s or given.llm_tokens_per_s
    llm = LanguageModel(
        rpm=asked.rpm,
        tpm=asked.tpm,
        tokens_per_s=asked.serving * each or None,
        latency_s=asked.latency_s,
        concurrency=asked.concurrency,
        outage_s=asked.outage_s,
    )
    pace = asked.encoder_tokens_per_s or given.encoder_tokens_per_s
    lost = asked.hours_between_losses
    encoders = Encoders(
        max(1, asked.gpus - asked.serving),
        {one.step: pace for one in work.passes},
        between_losses_s=None if lost is None else lost * 3600,
        restart_s=asked.restart_s,
    )
    host, costs = Host(**_given(asked, "host", Host())), type(COSTS)(**_given(asked, "cost", COSTS))
    found = predict(work, llm, encoders, host, costs)
    lines = [
        [stage.name, stage.phase, span(stage.seconds or 0.0), stage.what] for stage in found.stages
    ]
    print(rows(("part", "when", "busy for", "by"), lines))
    assert found.bottleneck is not None
    print(f"in all {span(found.known_s)}; bottleneck: {found.bottleneck.name}")
    left = disk(work, costs)
    print(
        f"cache {size(left.cache_bytes)}, tables {size(left.table_bytes)}, {left.parts:,} parts "
        "before they are put together"
    )
    if not asked.serving:
        usd = work.prompt_tokens * given.input_usd + work.completion_tokens * given.output_usd
        print(
            f"API: ${usd / 1e6:,.2f} at ${given.input_usd:g} and ${given.output_usd:g} a million "
            "tokens"
        )
    hours = asked.gpus * found.known_s / 3600
    price = asked.usd_per_gpu_hour
    print(f"{hours:,.1f} GPU-hours" + ("" if price is None else f", ${hours * price:,.2f}"))


if __name__ == "__main__":
    main()
