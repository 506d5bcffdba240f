"""The weights of SummaC-Conv: read from what is published, kept as safetensors.

A torch checkpoint is read with `weights_only=True`, so no code in it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimscore.atomic import atomic_file, os_errors
from claimscore.errors import ConfigError

FORMAT = "claimscore-summac-conv-1"
METADATA_KEY = "claimscore"

#: A file of these weights has a few kilobytes; a larger one is not read.
MAX_BYTES = 1 << 22

_NAMES = ("mlp.weight", "mlp.bias", "layer_final.weight", "layer_final.bias")

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class ConvWeights:
    """Two linear layers: histogram to one value a sentence, three features to two logits.

    `mlp_weight` is [H], `final_weight` [2, 3], `final_bias` [2]; the second logit is
    consistency. `settings` are what the file says of bins, labels, granularity, model; a
    published checkpoint says nothing.
    """

    mlp_weight: Array
    mlp_bias: float
    final_weight: Array
    final_bias: Array
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def width(self) -> int:
        """H, the numbers of one sentence's histograms together."""
        return len(self.mlp_weight)

    def check_width(self, wanted: int, what: str) -> None:
        """`ConfigError` unless the weights are for histograms of that many numbers."""
        if self.width != wanted:
            raise ConfigError(
                f"the SummaC-Conv weights take {self.width} numbers a sentence, but {what} are "
                f"{wanted}; choose the bins and labels that they were trained with"
            )

    @property
    def digest(self) -> str:
        """12 hex digits of the SHA-256 over the numbers, the same in every file format."""
        digest = hashlib.sha256()
        for value in self._state().values():
            digest.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
        return digest.hexdigest()[:12]

    def _state(self) -> dict[str, NDArray[np.float32]]:
        values = (self.mlp_weight[None, :], [self.mlp_bias], self.final_weight, self.final_bias)
        return {
            name: np.asarray(value, dtype=np.float32)
            for name, value in zip(_NAMES, values, strict=True)
        }

    def save(self, path: Path, settings: Mapping[str, str]) -> None:
        """Write a safetensors file with the settings in its metadata; equal input, equal bytes."""
        from safetensors.numpy import save

        described = json.dumps({**settings, "format": FORMAT}, sort_keys=True)
        with os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as stream:
            stream.write(save(self._state(), metadata={METADATA_KEY: described}))


def as_weights(given: str | Path | Mapping[str, ArrayLike] | ConvWeights) -> ConvWeights:
    """The weights in a file, or those of a loaded state (tensors or arrays by name)."""
    if isinstance(given, ConvWeights):
        return given
    if isinstance(given, str | Path):
        return load_weights(Path(given))
    return _from_state(given, "the given state", {})


def load_weights(path: Path) -> ConvWeights:
    """The weights in a safetensors file or a torch checkpoint, by content, not by name.

    `ConfigError` for a file that is missing, damaged, of another model, or not plain tensors.
    """
    with os_errors(path):
        with path.open("rb") as file:
            start = file.read(9)
        size = path.stat().st_size
    if size > MAX_BYTES:
        raise ConfigError(f"{path}: not SummaC-Conv weights: {size:,} bytes are far too many")
    if start[8:9] == b"{":
        return _load_safetensors(path)
    with _readable(path, "a torch checkpoint of plain tensors"):
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
    return _from_state(state, str(path), {})


def _load_safetensors(path: Path) -> ConvWeights:
    with _readable(path, "a safetensors file"):
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            described = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        settings = {str(name): str(value) for name, value in described.items()}
    return _from_state(state, str(path), settings)


@contextlib.contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    """Whatever a damaged or foreign file makes the readers raise, as one line of `ConfigError`."""
    try:
        yield
    except ImportError:
        raise
    except Exception as exc:  # torch and safetensors share no class for what they refuse
        raise ConfigError(
            f"{path}: not SummaC-Conv weights: it is damaged or not {what}; nothing in it was run"
        ) from exc


def _from_state(state: Any, where: str, settings: Mapping[str, str]) -> ConvWeights:
    """A state of exactly the four tensors, with shapes that fit each other."""
    if not isinstance(state, Mapping) or set(state) != set(_NAMES):
        raise ConfigError(f"{where}: not SummaC-Conv weights: they have {', '.join(_NAMES)}")
    try:
        mlp, mlp_bias, final, final_bias = (
            np.asarray(state[name], dtype=np.float64) for name in _NAMES
        )
    except (TypeError, ValueError, RuntimeError) as exc:
        raise ConfigError(f"{where}: not SummaC-Conv weights: a value is no tensor") from exc
    shapes = (mlp_bias.shape, final.shape, final_bias.shape)
    if mlp.ndim != 2 or mlp.shape[0] != 1 or not mlp.size or shapes != ((1,), (2, 3), (2,)):
        raise ConfigError(f"{where}: not SummaC-Conv weights: the tensors have other shapes")
    if not all(np.isfinite(value).all() for value in (mlp, mlp_bias, final, final_bias)):
        raise ConfigError(f"{where}: the weights hold numbers that are not finite")
    return ConvWeights(mlp[0], float(mlp_bias[0]), final, final_bias, settings)
