"""The blocks that SummaC compares and their label matrices, from the table `block_nli`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from claimscore.blocks import find_cut
from claimscore.errors import ConfigError
from claimscore.report.matrix import Matrices, Room

JSON = dict[str, Any]

MAX_BLOCK_CHARS = 600

#: The columns that a side's texts are taken from; the first that a record has.
_COLUMNS = {"source": ("source", "sources")}


class BlockMatrices:
    """The block NLI of a chunk; a side is `source.sentence`: the text, and how it is cut."""

    def __init__(self, ids: list[str], block_nli: pl.DataFrame) -> None:
        sides = {
            f"{role}_side": pl.concat_str(f"{role}_side", f"{role}_cut", separator=".")
            for role in ("premise", "hypothesis")
        }
        self._matrices = Matrices(ids, block_nli.with_columns(**sides))

    def of(self, position: int, record: Mapping[str, Any], room: Room) -> JSON:
        """`matrices` as of claims, and by side the `blocks` that they compare."""
        matrices, blocks = self._matrices.of(position), {}
        for matrix in matrices:
            for side, size in zip((matrix["rows"], matrix["columns"]), matrix["size"], strict=True):
                found = [] if side in blocks else _blocks(side, record)
                if len(found) == size and room.take(sum(map(len, found))):
                    blocks[side] = found
            parts = [matrix.get(name) or "" for name in ("labels", "forward", "backward")]
            if not room.take(sum(map(len, parts))):
                del matrix["labels"], matrix["forward"], matrix["backward"]
                matrix["left_out"] = "page"
        return {"matrices": matrices, "blocks": blocks}


def _blocks(side: str, record: Mapping[str, Any]) -> list[str]:
    """The blocks as the pass cut them; none where that is no longer known."""
    name, _, cut_name = side.partition(".")
    try:
        cut = find_cut(cut_name)
    except ConfigError:
        return []
    columns = _COLUMNS.get(name, (name,))
    value = next((record[c] for c in columns if record.get(c) is not None), None)
    texts: list[str] = [value] if isinstance(value, str) else list(value or ())
    found = (
        cut.document_blocks(texts)
        if name == "source"
        else [block for text in texts for block in cut.blocks(text)]
    )
    return [_cut(block) for block in found]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_BLOCK_CHARS else text[: MAX_BLOCK_CHARS - 1].rstrip() + "…"
