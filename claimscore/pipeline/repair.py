"""Damaged files of a run directory: what they stood for counts as not done.

The run then does it like anything that is missing. Answers are in the cache and results of models
in their store, so this costs time. A question is sent where it had failed without an answer, or
where its answer is there no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from claimscore.pipeline.progress import P, ProgressReporter
from claimscore.runs import DamagedPart, RunDirectory

#: So many damaged files are named in events.jsonl.
_NAMED = 100


def repair(
    directory: RunDirectory,
    reporter: ProgressReporter[P],
    seen: DamagedPart | None = None,
    *,
    deep: bool = False,
) -> None:
    """Make undone what damaged files stood for, and what was made from it; say so in one line.

    What is missing or has another size is found without reading it; with `deep` all parts are
    read. `seen` is a part that turned out to be damaged when it was read: then all others are
    read too.
    """
    lines = [] if seen else directory.manifest.damaged
    parts = directory.damaged(deep=deep or seen is not None)
    if seen is not None and seen.address not in [part.address for part in parts]:
        parts.append(seen)
    damages = [*lines, *(f"{part.address}: {part.why}" for part in parts)]
    if not damages:
        return
    from claimscore.pipeline.passes import PASSES  # some 0.2 s, for damage alone
    from claimscore.pipeline.tasks import TASKS

    #: The works of which a step is made; in an order in which each comes after those.
    made_from = {
        **{name: task.after for name, task in TASKS.items()},
        **{kind: model_pass.after for kind, model_pass in PASSES.items()},
    }
    invalid = _invalid(directory, parts, made_from, is_manifest_damaged=bool(lines))
    directory.invalidate(invalid)
    n_steps = sum(map(len, invalid.values()))
    n_chunks = len({chunk for chunks in invalid.values() for chunk in chunks})
    directory.event("damaged", files=damages[:_NAMED], damaged=len(damages), steps=n_steps)
    reporter.notice(_notice(damages, n_steps, n_chunks, has_lost_lines=bool(lines)))


def _invalid(
    directory: RunDirectory,
    parts: Iterable[DamagedPart],
    made_from: Mapping[str, Sequence[str]],
    *,
    is_manifest_damaged: bool,
) -> dict[str, list[int]]:
    """Steps with the chunks of which they are to be made again; what is made from others first,
    so that a kill never leaves a step made from rows that may be others by now."""
    chunks: dict[str, set[int]] = defaultdict(set)
    for part in parts:
        chunks[part.part.step].update(directory.manifest.chunks_in(part.part))
    steps = directory.manifest.all_steps()
    for work, sources in made_from.items():
        if not sources:
            continue
        again = set().union(*(chunks[step] for step in steps if _work(step) in sources))
        for step in (step for step in steps if _work(step) == work):
            chunks[step].update(chunk for chunk in again if directory.manifest.has(chunk, step))
            if is_manifest_damaged:
                chunks[step].update(_without_sources(directory, step, sources))
    order = list(made_from)
    known = {step: sorted(numbers) for step, numbers in chunks.items() if numbers}
    return dict(
        sorted(
            known.items(),
            key=lambda item: -order.index(_work(item[0])) if _work(item[0]) in order else 1,
        )
    )


def _without_sources(directory: RunDirectory, step: str, sources: Sequence[str]) -> list[int]:
    """The chunks in which a step is finished though nothing is that it is made from: the manifest
    has lost that."""
    return [
        chunk
        for chunk in directory.manifest.chunks_with(step)
        if not any(_work(other) in sources for other in directory.manifest.steps(chunk))
    ]


def _work(step: str) -> str:
    return step.partition("-")[0]


def _notice(damages: Sequence[str], n_steps: int, n_chunks: int, *, has_lost_lines: bool) -> str:
    more = f" (and {len(damages) - 1:,} more)" if len(damages) > 1 else ""
    of_chunks = f"{n_chunks:,} chunk{'s' * (n_chunks != 1)}"
    what = f"{n_steps:,} step{'s' * (n_steps != 1)} of {of_chunks} made again"
    if has_lost_lines:
        what = "what it said to be done is made again"
    return f"{damages[0]}{more}; {what}"
