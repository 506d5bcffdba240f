"""``--dtype auto``: bfloat16 where the hardware is faster with it and a model's numbers stay.

Both are properties, not timings, so that a machine always decides alike. The embedded models stay
in float32: the numbers of a default run do not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import logging
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from claimscore import __version__
from claimscore.config import DType, EncoderConfig
from claimscore.pipeline.encoders.devices import device_names, gpu_name, resolve_device
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.encoders.served import is_served

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("claimscore")

#: Pairs of made-up texts that a model is tried with.
N_PAIRS = 300
#: The most that bfloat16 may differ by, by role: in probabilities, 1 - cosine, BERTScore.
BOUNDS = {"nli": 5e-2, "verifier": 5e-2, "embedder": 1e-3, "token_encoder": 5e-3}
#: The share of pairs whose label must be the same.
SAME_LABELS = 0.998

Load = Callable[[str, EncoderConfig], Any]


def resolve_auto(config: EncoderConfig, roles: Iterable[str], load: Load) -> EncoderConfig:
    """Return the config with a number format in place of ``auto``, one for the models of all roles.

    bfloat16 only where each of them is here, named by the user, of a role in `BOUNDS`, and found
    safe; ``load`` loads one to try it. Models behind servers have their own.
    """
    if config.dtype != "auto":
        return config
    named = {role: getattr(config, role) for role in roles}
    local = [role for role, name in named.items() if not is_served(name or "")]
    dtype: DType = "float32"
    if local and all(role in BOUNDS and named[role] != "embedded" for role in local):
        own = dataclasses.replace(config, device=device_names(config.device)[0])
        device = resolve_device(own.device)
        if multiplies_faster(device) and all(is_safe(role, own, device, load) for role in local):
            dtype = "bfloat16"
    return dataclasses.replace(config, dtype=dtype)


def multiplies_faster(device: torch.device) -> bool:
    """Whether a device has instructions that multiply bfloat16 faster than float32: AMX or
    AVX-512's on a CPU, tensor cores since Ampere."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    checks = (getattr(torch.cpu, name, None) for name in names)  # private to torch
    return any(is_supported is not None and is_supported() for is_supported in checks)


def is_safe(role: str, config: EncoderConfig, device: torch.device, load: Load) -> bool:
    """Whether a model's numbers in bfloat16 are near those in float32 on `N_PAIRS` pairs.

    Found out once, and kept with the results of models by model, version, processor and libraries.
    """
    import torch

    from claimscore.pipeline.encoders.loading import ModelLoader

    name = getattr(config, role)
    revision = ModelLoader(config).find(name).revision
    kind = gpu_name(device) if device.type == "cuda" else _cpu_name()
    layer = str(config.token_layer) if role == "token_encoder" else ""
    facts = (role, name, layer, revision, kind, torch.__version__, __version__)
    key = " | ".join(("bfloat16", *facts))
    store = open_store(None)
    row = store.recall(key)
    if row is None:
        logger.warning("%s: comparing bfloat16 with float32, once on this machine", name)
        pairs = made_up_pairs(N_PAIRS)
        exact, rounded = (
            answers(load(role, dataclasses.replace(config, dtype=dtype)), role, pairs)
            for dtype in ("float32", "bfloat16")
        )
        row = compare_numbers(role, exact, rounded)
        store.remember(key, row)
    return bool(row["safe"])


def compare_numbers(
    role: str, exact: NDArray[np.floating[Any]], rounded: NDArray[np.floating[Any]]
) -> dict[str, Any]:
    """Return whether ``rounded`` is near enough to ``exact``, each ``[n, d]``, and how near."""
    exact, rounded = exact.astype(np.float64), rounded.astype(np.float64)
    if role == "embedder":
        lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
        difference = float((1 - (exact * rounded).sum(axis=1) / lengths).max())
    else:
        difference = float(np.nanmax(np.abs(exact - rounded)))
    row: dict[str, Any] = {"safe": difference <= BOUNDS[role], "difference": difference}
    if role in ("nli", "verifier"):
        same = np.nanargmax(exact, axis=1) == np.nanargmax(rounded, axis=1)
        row["same_labels"] = float(same.mean())
        row["safe"] = row["safe"] and row["same_labels"] >= SAME_LABELS
    return row


def _cpu_name() -> str:
    """The kind of CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(told, platform.processor() or platform.machine())


#: What the made-up texts are about.
_WORDS = ("room", "pool", "staff", "breakfast", "garden", "view", "bar", "bed")
_TEXTS = (
    "The {word} of house {n} is clean.",
    "Guests of house {n} like the {word}, which is open until late in the evening.",
    "Nobody in house {n} said anything about the {word}.",
    "The {word} was cold, and the staff of house {n} did not help us when we asked for it twice.",
)


def made_up_pairs(n: int) -> list[tuple[str, str]]:
    """Pairs of texts, no two alike."""

    def text(i: int, house: int) -> str:
        return _TEXTS[i % 4].format(word=_WORDS[i % 8], n=house)

    return [(text(i, i), text(i // 4, -i)) for i in range(n)]


def answers(model: Any, role: str, pairs: list[tuple[str, str]]) -> NDArray[Any]:
    """A model's numbers for pairs; of a sentence encoder the vectors of their texts."""
    firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    if role == "embedder":
        numbers = model.embed([*firsts, *seconds])
    elif role == "token_encoder":
        numbers = model.bertscore(firsts, seconds)
    else:
        numbers = model.classify(pairs)
    return np.asarray(numbers)
