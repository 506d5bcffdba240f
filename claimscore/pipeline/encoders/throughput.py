"""How many tokens a second a model reads on a device: found by work, kept in a file.

It decides nothing: `estimate` and `models check` read it. It is counted in tokens by characters,
since an estimate has no tokenizer, up to what the model reads of a text; it is of all that a call
does, without stored results and without waiting for a device that another thread has.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import write_text
from claimscore.config import DType, EncoderConfig, user_state_dir
from claimscore.errors import ClaimscoreError
from claimscore.pipeline.encoders.devices import device_label, device_wait_s
from claimscore.pipeline.encoders.distinct import DistinctPairs

#: Characters of a token, about, and the special tokens that a text costs besides.
CHARACTERS_PER_TOKEN, SPECIAL_TOKENS = 4, 2
#: Tokens of a text that is filled up to what most models read.
PADDED_TOKENS = 512
#: Seconds of work after which throughput is written down; then each time they have doubled.
FIRST_NOTE_S = 1.0
THROUGHPUT_FILE = "model-throughput.json"

#: `calibrate` doubles its work until a call takes `CALIBRATION_S`: then the fixed cost of a call
#: counts little. On a busy machine few texts do, so they are `ENOUGH` besides, unless that takes
#: longer than `LONG_S`.
CALIBRATION_S, ENOUGH, LONG_S = 1.0, 64, 5.0
_FIRST, _MOST = 8, 4096
_WORDS = ("room", "pool", "staff", "breakfast", "garden", "view", "bar", "bed")
_TEXTS = (
    "The {word} of house {n} is clean.",
    "Guests of house {n} like the {word}, which is open until late in the evening.",
    "Nobody in house {n} said anything about the {word}.",
    "The {word} was cold, and the staff of house {n} did not help us when we asked for it twice.",
)

F = TypeVar("F", bound=Callable[..., Any])


class Throughput(NamedTuple):
    """Tokens that a model read, and the seconds that it took for them; ``limit`` is the most that
    it reads of one text or pair, None where it reads all."""

    tokens: float
    seconds: float
    limit: int | None = None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


class ThroughputKey(NamedTuple):
    """The key of a throughput: a model as it is called, its role, its arithmetic and the device."""

    role: str
    model: str
    dtype: str
    device: str


def throughput_key(role: str, config: EncoderConfig, *, served: bool = False) -> ThroughputKey:
    """The key of a config's model of a role; the config's device is a single one."""
    device = "its server" if served else device_label(config.device)
    model = getattr(config, role) or ""
    return ThroughputKey(role, model, likely_dtype(role, model, config.dtype), device)


def likely_dtype(role: str, model: str, dtype: DType) -> DType:
    """What ``auto`` will be, as far as earlier runs tell; torch is not asked."""
    if dtype != "auto":
        return dtype
    start = " | ".join((role, model, "bfloat16", ""))
    known = any(name.startswith(start) for name in read_state(throughput_file()))
    return "bfloat16" if known and model != "embedded" else "float32"


def known_throughput(key: ThroughputKey) -> Throughput | None:
    """The throughput that was saved last; None where there is none that can be read."""
    return _throughput(read_state(throughput_file()).get(" | ".join(key)))


def _throughput(row: object) -> Throughput | None:
    """A row of the file; None for a damaged one, and for one that counted what was not read."""
    if not isinstance(row, dict) or "limit" not in row:
        return None
    found = Throughput(row.get("tokens", 0), row.get("seconds", 0), row["limit"])
    values: tuple[Any, ...] = found if found.limit is not None else found[:2]
    is_sane = all(type(value) in (int, float) and 0 < value < 1e18 for value in values)
    return found if is_sane else None


def save_throughput(key: ThroughputKey, found: Throughput) -> None:
    """Keep it in the user's state folder; a folder that cannot be written is no error."""
    row = found._asdict() | {"tokens": round(found.tokens), "seconds": round(found.seconds, 6)}
    write_state(throughput_file(), " | ".join(key), row)


def throughput_anywhere(role: str, model: str, dtype: DType) -> Throughput | None:
    """A model's throughput on any device, which also tells its limit; None where none is known.

    Devices need not be looked up for it, which imports torch.
    """
    start = " | ".join(ThroughputKey(role, model, likely_dtype(role, model, dtype), ""))
    rows = read_state(throughput_file()).items()
    found = (_throughput(row) for name, row in rows if name.startswith(start))
    return next(filter(None, found), None)


def throughput_file() -> Path:
    """Where throughput is kept; deleting it forgets all of it."""
    return user_state_dir() / THROUGHPUT_FILE


def estimated_tokens(items: Sequence[str | tuple[str, ...]], limit: int | None = None) -> int:
    """About the tokens that are read of distinct texts, or of tuples of texts, at most ``limit`` of
    each: nothing is tokenised."""
    distinct = [(item,) if isinstance(item, str) else item for item in set(items)]
    if not distinct:
        return 0
    sizes = np.fromiter(map(len, chain.from_iterable(distinct)), np.int64)
    starts = np.cumsum([0, *map(len, distinct)][:-1])
    tokens = np.add.reduceat(sizes // CHARACTERS_PER_TOKEN + SPECIAL_TOKENS, starts)
    return int((tokens if limit is None else np.minimum(tokens, limit)).sum())


def tokens_of_pairs(pairs: DistinctPairs, limit: int | None = None) -> int:
    """As `estimated_tokens` of the pairs."""
    sizes = np.fromiter(map(len, pairs.texts), np.int64, count=len(pairs.texts))
    tokens = (sizes // CHARACTERS_PER_TOKEN + SPECIAL_TOKENS)[pairs.places].sum(axis=1)
    return int((tokens if limit is None else np.minimum(tokens, limit)).sum())


def tokens_of_each(pairs: Sequence[tuple[str, str]], limit: int | None = None) -> int:
    """As `estimated_tokens`, where the model reads the texts of a pair one by one."""
    return estimated_tokens([text for pair in pairs for text in pair], limit)


def padded_tokens(texts: Sequence[str | tuple[str, ...]], limit: int | None = None) -> int:
    """The tokens of distinct texts of which each is filled up."""
    return (limit or PADDED_TOKENS) * len(set(texts))


class Meter:
    """Adds up what a model does and saves its throughput now and then; threads may share it.

    The last figure of at least `FIRST_NOTE_S` stays: it says most about the next run.
    """

    def __init__(self, key: ThroughputKey, limit: int | None = None) -> None:
        self.key = key
        self.total = Throughput(0.0, 0.0, limit)
        self._next_note_s = FIRST_NOTE_S
        self._mutex = threading.Lock()

    def add(self, tokens: float, seconds: float) -> None:
        """Count a call that was answered."""
        with self._mutex:
            total = self.total
            self.total = total._replace(
                tokens=total.tokens + tokens, seconds=total.seconds + seconds
            )
            if self.total.seconds < self._next_note_s or not self.total.tokens:
                return
            self._next_note_s = 2 * self.total.seconds
            save_throughput(self.key, self.total)


class Metered:
    """A model whose `metered` methods are timed once it has a `meter`."""

    meter: Meter | None = None


def metered(weight: Callable[[Any, int | None], int] = estimated_tokens) -> Callable[[F], F]:
    """Let a method of lists of texts or pairs tell the model's meter how long it took.

    ``weight`` gives the tokens of such a list, of which the model reads at most so many each.
    """

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def timed(self: Metered, /, *items: Any, **options: Any) -> Any:
            meter = self.meter
            if meter is None:
                return method(self, *items, **options)
            began, waited = time.monotonic(), device_wait_s()
            found = method(self, *items, **options)
            seconds = time.monotonic() - began - (device_wait_s() - waited)
            lists = [texts for texts in items if isinstance(texts, list | tuple)]
            meter.add(sum(weight(texts, meter.total.limit) for texts in lists), seconds)
            return found

        return cast(F, timed)

    return decorate


def calibrate(model: Any) -> Throughput:
    """Time a loaded model on made-up texts as long as claims, for about a second; save the figure.

    The model is one of the roles `nli`, `verifier`, `embedder` and `token_encoder`, with a meter.
    """
    assert isinstance(model, Metered)
    assert model.meter is not None
    key, limit = model.meter.key, model.meter.total.limit
    model.meter = None  # what a run saves is of real texts
    n, start = _FIRST, 0
    answers(model, key.role, made_up_pairs(start, n))
    while True:
        start += n
        pairs = made_up_pairs(start, n)
        began = time.monotonic()
        answers(model, key.role, pairs)
        seconds = time.monotonic() - began
        if (seconds >= CALIBRATION_S and n >= ENOUGH) or seconds >= LONG_S or n >= _MOST:
            break
        n *= 2
    is_pairs = key.role in ("nli", "verifier")
    tokens = estimated_tokens(pairs) if is_pairs else tokens_of_each(pairs)
    found = Throughput(tokens, seconds, limit)
    save_throughput(key, found)
    return found


def made_up_pairs(start: int, n: int) -> list[tuple[str, str]]:
    """Pairs of texts, no two alike."""

    def text(i: int, n: int) -> str:
        return _TEXTS[i % 4].format(word=_WORDS[i % 8], n=n)

    return [(text(i, i), text(i // 4, -i)) for i in range(start, start + n)]


def answers(model: Any, role: str, pairs: list[tuple[str, str]]) -> NDArray[Any]:
    """A model's numbers for pairs; of a sentence encoder the vectors of their texts."""
    firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    if role == "embedder":
        found = model.embed([*firsts, *seconds])
    elif role == "token_encoder":
        found = model.bertscore(firsts, seconds)
    else:
        found = model.classify(pairs)
    return np.asarray(found)


def read_state(path: Path) -> dict[str, Any]:
    """The rows of a state file by name; none where it is not there or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_state(path: Path, name: str, row: dict[str, Any]) -> None:
    """Add a row, or replace it; a folder that cannot be written is no error."""
    content = {**read_state(path), name: row}
    with contextlib.suppress(OSError, ClaimscoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
