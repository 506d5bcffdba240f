"""Where a training of LS_Score is, in memory and in one safetensors file, written each epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from claimscore.atomic import write_bytes
from claimscore.errors import ConfigError

Parameters = Mapping[str, nn.Parameter]
#: Epoch (0 before training), training loss, validation loss, share of records ranked right, and
#: the fields of `KindShares` for each kind of negative.
Row = tuple[int, float | None, float, float, tuple[tuple[Any, ...], ...]]

_ADAM = ("step", "exp_avg", "exp_avg_sq")


@dataclass
class TrainingState:
    """Finished epochs, the best weights so far, the learning rate's factor, Adam's moments."""

    history: list[Row] = field(default_factory=list)
    best_epoch: int = 0
    factor: float = 1.0
    worse_in_a_row: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def start(cls, parameters: Parameters) -> TrainingState:
        """Nothing trained yet: the best weights are those at hand."""
        return cls(best=_copies(parameters))

    def ended(self, epochs: int, patience: int) -> bool:
        return len(self.history) > epochs or self.worse_in_a_row >= patience

    def record(
        self,
        epoch: int,
        loss: float,
        held_out: float,
        share: float,
        kinds: tuple[tuple[Any, ...], ...],
        parameters: Parameters,
    ) -> bool:
        """Take note of an epoch; whether it ranks worse than the best trained one before it."""
        trained = [row for row in self.history if row[0] > 0]
        best_share = max((row[3] for row in trained), default=0.0)
        self.history.append((epoch, loss, held_out, share, kinds))
        before = self.history[self.best_epoch]
        if self.best_epoch == 0 or (share, -held_out) > (before[3], -before[2]):
            self.best_epoch, self.best = epoch, _copies(parameters)
        worse = share < best_share
        self.worse_in_a_row = self.worse_in_a_row + 1 if worse else 0
        if worse:
            self.factor *= 0.1
        return worse

    def keep_optimizer(self, optimizer: torch.optim.Adam, parameters: Parameters) -> None:
        self.moments = {
            f"{key}.{name}": optimizer.state[parameter][key]
            for name, parameter in parameters.items()
            if parameter in optimizer.state
            for key in _ADAM
        }

    def restore_optimizer(self, optimizer: torch.optim.Adam, parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            if f"step.{name}" in self.moments:
                optimizer.state[parameter] = {
                    k: self.moments[f"{k}.{name}"].to(parameter.device) for k in _ADAM
                }

    def restore_best(self, parameters: Parameters) -> None:
        with torch.no_grad():
            for name, value in self.best.items():
                parameters[name].copy_(value)


def save_state(path: Path, identity: str, state: TrainingState, parameters: Parameters) -> None:
    """Write all that the next epoch depends on, through a rename."""
    tensors = {
        **{f"value.{name}": value for name, value in _copies(parameters).items()},
        **{f"best.{name}": value for name, value in state.best.items()},
        **{f"adam.{name}": value.detach().cpu() for name, value in state.moments.items()},
    }
    facts = {
        "identity": identity,
        "history": state.history,
        "best_epoch": state.best_epoch,
        "factor": state.factor,
        "worse_in_a_row": state.worse_in_a_row,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save(tensors, metadata={"state": json.dumps(facts)}))


def load_state(path: Path, identity: str, parameters: Parameters) -> TrainingState | None:
    """Restore the state of this very run into ``parameters``; None where there is none.

    `ConfigError` where the file is another run's.
    """
    if not path.is_file():
        return None
    with safe_open(path, framework="pt") as file:
        facts = json.loads((file.metadata() or {}).get("state", "{}"))
        if facts.get("identity") != identity:
            raise ConfigError(f"{path} belongs to a run with other settings or data; remove it")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    with torch.no_grad():
        for name, parameter in parameters.items():
            if f"value.{name}" in tensors:
                parameter.copy_(tensors[f"value.{name}"])
    return TrainingState(
        history=[tuple(row) for row in facts["history"]],
        best_epoch=facts["best_epoch"],
        factor=facts["factor"],
        worse_in_a_row=facts["worse_in_a_row"],
        best=_under("best.", tensors),
        moments=_under("adam.", tensors),
    )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _copies(parameters: Parameters) -> dict[str, Tensor]:
    """Copies on the CPU of the parameters that are trained."""
    return {
        name: parameter.detach().cpu().clone()
        for name, parameter in parameters.items()
        if parameter.requires_grad
    }
