"""Damaged files of a run directory: what they stood for counts as not done.

The run then does it like anything that is missing. Answers are in the cache and results of models
in their store, so this costs time. A question is sent where it had failed without an answer, or
where its answer is there no more.
"""

from __future__ import annotations

from claimscore.pipeline.progress import P, ProgressReporter
from claimscore.runs import RunDirectory

#: So many damaged files are named in events.jsonl.
_NAMED = 100

#: The step that copies the input: nothing else of a chunk is made before it.
_RECORDS = "records"


def repair(directory: RunDirectory, reporter: ProgressReporter[P]) -> None:
    """Undo all steps of the chunks that have a damaged part, as one is made from the other; where
    the manifest was damaged, nothing is finished. Say so in one line. Records are copied from the
    same input again, so what was made from them stays.
    """
    manifest, parts = directory.manifest, directory.damaged(deep=True)
    damages = [f"{damage.path}: {damage.why}" for damage in parts]
    damages += [manifest.damaged] if manifest.damaged else []
    if not damages:
        return
    unread = {damage.part.chunk for damage in parts if damage.part.table == _RECORDS}
    chunks = {damage.part.chunk for damage in parts if damage.part.table != _RECORDS}
    directory.invalidate(dict.fromkeys(manifest.all_steps(), chunks) | {_RECORDS: unread})
    more = f" (and {len(damages) - 1:,} more)" if len(damages) > 1 else ""
    n_chunks = len(unread | chunks)
    again = "its steps" if manifest.damaged else f"{n_chunks:,} chunk{'s' * (n_chunks != 1)}"
    directory.event("damaged", files=damages[:_NAMED], damaged=len(damages))
    reporter.notice(f"{damages[0]}{more}; {again} made again")
