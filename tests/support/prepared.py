"""Records of an input, as a run reads them."""

from pathlib import Path
from typing import Any, BinaryIO

from claimscore.records.dataset import Dataset, Required, Selection, open_input
from claimscore.records.dataset import prepare as prepare_files


def prepare(
    source: Any,
    *,
    spool: Path,
    required: Required,
    stdin: BinaryIO | None = None,
    selection: Selection | None = None,
) -> Dataset:
    """What `source` names, validated."""
    files = open_input(source, spool=spool, stdin=stdin)
    return prepare_files(files, required, selection or Selection())
