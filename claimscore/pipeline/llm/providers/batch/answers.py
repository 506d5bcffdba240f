"""The answers of a batch that has ended: downloaded, kept, handed out."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from anyio import to_thread

from claimscore.atomic import os_errors
from claimscore.pipeline.llm.providers.base import Keep
from claimscore.pipeline.llm.providers.batch.course import Batch
from claimscore.pipeline.llm.providers.batch.lines import LineReader, Result
from claimscore.types import Completion

if TYPE_CHECKING:
    from claimscore.pipeline.llm.providers.batch.api import BatchAPI

#: Answers that are kept at a time.
_GROUP = 1000


async def hand_out(
    api: BatchAPI,
    file_id: str,
    batch: Batch,
    complaints: dict[str, Result],
    *,
    reader: LineReader,
    keep: Keep,
    folder: Path,
) -> int:
    """Hand out the answers of one file, and return their number; gather its complaints.

    All answers go to `keep` before anybody gets them. The file is in `folder` meanwhile.
    """
    n_answered = 0
    with os_errors(folder), tempfile.TemporaryFile(dir=folder) as stream:
        await api.download(file_id, stream)
        stream.seek(0)
        while (results := await to_thread.run_sync(_kept_group, stream, reader, keep)) is not None:
            for result in results:
                if not isinstance(result.outcome, Completion):
                    complaints[result.key] = result
                    continue
                n_answered += 1
                waiter = batch.waiters.get(result.key)
                if waiter is not None:
                    waiter.settle(result.outcome)
    return n_answered


def _kept_group(stream: BinaryIO, reader: LineReader, keep: Keep) -> list[Result] | None:
    """The next lines, their answers kept already; None at the end."""
    lines = list(itertools.islice(stream, _GROUP))
    if not lines:
        return None
    results = [result for line in lines if (result := reader.read(line)) is not None]
    answers = {r.key: r.outcome for r in results if isinstance(r.outcome, Completion)}
    if answers:
        keep(answers)
    return results
