"""The texts of the rows: `shared/data/encoder_workloads`, and parts of them that keep what
matters: evenly spread pairs keep the lengths, a block of neighbours keeps what repeats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

T = TypeVar("T")
Pair = tuple[str, str]

_REPOSITORY = Path(__file__).resolve().parents[2]
#: The columns of each file.
COLUMNS = {
    "w1": ("premise", "hypothesis"),
    "w1c": ("premise", "hypothesis"),
    "w1s": ("premise", "hypothesis"),
    "w2": ("sentence",),
    "w3": ("candidate", "reference"),
}


def find_workloads(asked: Path | None = None) -> Path:
    """The folder with the workloads; `SystemExit` where there is none."""
    places = (_REPOSITORY.parent, _REPOSITORY)
    folders = [place / "shared" / "data" / "encoder_workloads" for place in places]
    for folder in [asked] if asked is not None else folders:
        if (folder / "w1.parquet").is_file():
            return folder
    raise SystemExit(f"no w1.parquet in {asked or folders[0]}: name a folder with --workloads")


def read_pairs(folder: Path, name: str) -> list[Pair]:
    """All pairs of `w1`, `w1c`, `w1s` or `w3`, in the order of the file."""
    first, second = COLUMNS[name]
    table = pl.read_parquet(folder / f"{name}.parquet", columns=[first, second])
    return list(zip(table[first].to_list(), table[second].to_list(), strict=True))


def read_texts(folder: Path) -> list[str]:
    """All sentences of `w2`, in the order of the file."""
    texts: list[str] = pl.read_parquet(folder / "w2.parquet")["sentence"].to_list()
    return texts


def distinct_texts(folder: Path) -> list[str]:
    """Every text of all workloads once, sorted: what the tokenizer is made from."""
    found: set[str] = set(read_texts(folder))
    for name, columns in COLUMNS.items():
        if len(columns) == 2 and (folder / f"{name}.parquet").is_file():
            found.update(text for pair in read_pairs(folder, name) for text in pair)
    return sorted(found)


def spread(items: Sequence[T], n: int) -> list[T]:
    """`n` items at even distances, in order; all of them where there are fewer."""
    n = min(n, len(items))
    return [items[i * len(items) // n] for i in range(n)]


def block(items: Sequence[T], n: int) -> list[T]:
    """`n` neighbours from the middle."""
    start = max(0, (len(items) - n) // 2)
    return list(items[start : start + n])


class Shape(NamedTuple):
    """The sizes that decide what a BERT-like encoder costs."""

    layers: int
    hidden: int
    inner: int

    def gflop(self, lengths: Sequence[int]) -> float:
        """Of one pass over sequences of these lengths, padding left out.

        A token and layer: two operations for each weight of the four square products and the
        two of the feed-forward block, and 4 `hidden` for each token that it attends to.
        """
        weights = 4 * self.hidden**2 + 2 * self.hidden * self.inner
        tokens, attended = sum(lengths), sum(length**2 for length in lengths)
        return self.layers * (2 * weights * tokens + 4 * self.hidden * attended) / 1e9


BASE = Shape(12, 768, 3072)
LARGE = Shape(24, 1024, 4096)
#: DeBERTa-v3-base; what its attention to distances costs besides is left out.
DEBERTA = BASE
#: ModernBERT-base: a gate makes three products of 1,152 of the two of 1,728.
MODERNBERT = Shape(22, 768, 1728)
MINILM = Shape(6, 384, 1536)
TINY = Shape(1, 64, 128)
