"""How fast each model was on each device: measured while it works, remembered for estimates.

A pace is in tokens a second, counted by characters as `weigh` does it, since an estimate
has no tokenizer. It is of all that a call does (tokenising, batches, the model), without what the
store had and without waiting for a device that another thread had. Numbers never depend on it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from claimscore.config import EncoderConfig, user_state_dir
from claimscore.pipeline.encoders.remembered import keep_fact, read_facts
from claimscore.pipeline.encoders.turns import waited_s

P = ParamSpec("P")
R = TypeVar("R")

#: Characters of a token, about, and the special tokens that a text costs besides.
CHARACTERS_PER_TOKEN, SPECIAL_TOKENS = 4, 2

#: Tokens of a text that is filled up to what most models read.
PADDED_TOKENS = 512

#: Seconds of work after which a pace is written down; then each time they have doubled.
FIRST_NOTE_S = 1.0

PACES_FILE = "model-paces.json"


class Pace(NamedTuple):
    """Tokens that a model was given, and the seconds that it took for them."""

    tokens: float
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


class PaceKey(NamedTuple):
    """What a pace is of: the model as it is called, its arithmetic, and the device.

    The same weights as another role have another pace.
    """

    role: str
    model: str
    dtype: str
    device: str


def weigh(items: Sequence[str | tuple[str, ...]]) -> int:
    """About the tokens of distinct texts, or of tuples of texts: nothing is tokenised."""
    tokens = 0
    for item in set(items):
        texts = (item,) if isinstance(item, str) else item
        tokens += sum(len(text) // CHARACTERS_PER_TOKEN + SPECIAL_TOKENS for text in texts)
    return tokens


def weigh_padded(texts: Sequence[str | tuple[str, ...]]) -> int:
    """The tokens of distinct texts of which each is filled up."""
    return PADDED_TOKENS * len(set(texts))


class Meter:
    """Adds up what a model does and writes its pace down now and then; threads may share it.

    A pace of more tokens stays until another one is of at least half as many: seconds would let
    little work on a busy machine stand for much on an idle one.
    """

    def __init__(self, key: PaceKey) -> None:
        self.key = key
        self.total = Pace(0.0, 0.0)
        self._next_note_s = FIRST_NOTE_S
        self._mutex = threading.Lock()

    def add(self, tokens: float, seconds: float) -> None:
        """A call that was answered."""
        with self._mutex:
            self.total = Pace(self.total.tokens + tokens, self.total.seconds + seconds)
            if self.total.seconds < self._next_note_s or not self.total.tokens:
                return
            self._next_note_s = 2 * self.total.seconds
            known = recall(self.key)
            if known is None or known.tokens <= 2 * self.total.tokens:
                remember(self.key, self.total)


class Paced:
    """A model whose calls are timed once it has a `meter`."""

    meter: Meter | None = None


S = TypeVar("S", bound=Paced)


def paced(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method of lists of texts or pairs that tells the model's meter how long it took."""
    return _paced(method, weigh)


def paced_padded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """As `paced`, a method that fills its texts up."""
    return _paced(method, weigh_padded)


def _paced(
    method: Callable[Concatenate[S, P], R], weight: Callable[[Any], int]
) -> Callable[Concatenate[S, P], R]:
    @functools.wraps(method)
    def timed(self: S, /, *items: P.args, **options: P.kwargs) -> R:
        if self.meter is None:
            return method(self, *items, **options)
        began, waited = time.monotonic(), waited_s()
        found = method(self, *items, **options)
        seconds = time.monotonic() - began - (waited_s() - waited)
        self.meter.add(sum(weight(texts) for texts in items if _is_list(texts)), seconds)
        return found

    return timed


def _is_list(texts: object) -> bool:
    return isinstance(texts, list | tuple)


def recall(key: PaceKey) -> Pace | None:
    """The pace that was written down last; None where there is none that can be read."""
    row = read_facts(paces_file()).get(_name(key))
    if not isinstance(row, dict):
        return None
    tokens, seconds = _amount(row.get("tokens")), _amount(row.get("seconds"))
    return None if tokens is None or seconds is None else Pace(tokens, seconds)


def remember(key: PaceKey, pace: Pace) -> None:
    """Keep a pace in the user's state folder; one that cannot be written is no error."""
    row = {"tokens": round(pace.tokens), "seconds": round(pace.seconds, 6)}
    keep_fact(paces_file(), _name(key), row)


def is_known(role: str, model: str, dtype: str) -> bool:
    """Whether there is a pace of a model on any device: only then a device is worth a look."""
    start = _name(PaceKey(role, model, dtype, ""))
    return any(name.startswith(start) for name in read_facts(paces_file()))


def paces_file() -> Path:
    """Where paces are remembered; deleting it forgets them."""
    return user_state_dir() / PACES_FILE


def pace_key(role: str, config: EncoderConfig, *, served: bool = False) -> PaceKey:
    """What the pace of a config's model of a role is known by; its device is a single one."""
    device = "its server" if served else device_label(config.device)
    return PaceKey(role, getattr(config, role) or "", config.dtype, device)


def device_label(name: str) -> str:
    """What a device is called: a GPU by its kind, a CPU by the threads that compute on it."""
    import torch

    from claimscore.pipeline.encoders.loading import resolve_device

    device = resolve_device(name)
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'' if threads == 1 else 's'}"


def _name(key: PaceKey) -> str:
    return " | ".join(key)


def _amount(value: object) -> float | None:
    """A number above zero; None for all else that a file may hold."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e18:
        return None
    return float(value)
