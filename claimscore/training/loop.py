"""The parts of every training: progress, one optimiser step, and a checkpoint to go on from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from claimscore.atomic import write_bytes
from claimscore.errors import ConfigError

Parameters = Mapping[str, nn.Parameter]

_ADAM = ("step", "exp_avg", "exp_avg_sq")


class TrainingProgress(NamedTuple):
    """The work at hand (`step`, `images`, `epochs`), how far it is, and the last mean loss."""

    stage: str
    step: int
    steps: int
    loss: float | None = None


OnTraining = Callable[[TrainingProgress], None]


def silent(progress: TrainingProgress) -> None:
    """Show nothing."""


def take_step(
    loss: Tensor,
    optimizer: torch.optim.Optimizer,
    clipped: Iterable[nn.Parameter] | None = None,
) -> float:
    """Take one step down the gradient and return the loss.

    The gradients of the `clipped` parameters get a norm of 1 at most.
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
    if clipped is not None:
        nn.utils.clip_grad_norm_(clipped, 1.0)
    optimizer.step()
    return float(loss.detach())


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def copies(parameters: Parameters) -> dict[str, Tensor]:
    """Copies of the values on the CPU."""
    return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}


@torch.no_grad()
def put_values(parameters: Parameters, values: Mapping[str, Tensor]) -> None:
    """Copy values into the parameters of the same names."""
    for name, value in values.items():
        parameters[name].copy_(value)


class SavedTraining(NamedTuple):
    """The facts that a training wrote beside its values, and tensors of its own."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class TrainingCheckpoint:
    """One safetensors file with everything that the next step depends on.

    `identity` is a digest of recipe and data. The file of another identity is refused: it belongs
    to another run.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity

    def save(
        self,
        facts: Mapping[str, Any],
        parameters: Parameters,
        optimizer: torch.optim.Optimizer,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write values, the optimiser's moments, facts and more tensors, through a rename."""
        found = {f"value.{name}": value for name, value in copies(parameters).items()}
        for name, parameter in parameters.items():
            for key in _ADAM if parameter in optimizer.state else ():
                found[f"{key}.{name}"] = optimizer.state[parameter][key].detach().cpu()
        found |= {f"own.{name}": value for name, value in (tensors or {}).items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state = json.dumps({"identity": self._identity, "facts": facts})
        write_bytes(self._path, save(found, metadata={"state": state}))

    def load(
        self, parameters: Parameters, make_optimizer: Callable[[dict[str, Any]], torch.optim.Adam]
    ) -> tuple[SavedTraining, torch.optim.Adam] | None:
        """Restore the values of this very run, and an optimiser made for the facts.

        None where there is no file; `ConfigError` where it is another run's.
        """
        if not self._path.is_file():
            return None
        with safe_open(self._path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            if state.get("identity") != self._identity:
                raise ConfigError(
                    f"{self._path} belongs to a run with other settings or data; remove it"
                )
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        put_values(parameters, _under("value.", found))
        optimizer = make_optimizer(state["facts"])
        for name, parameter in parameters.items():
            if f"step.{name}" in found:
                optimizer.state[parameter] = {
                    key: found[f"{key}.{name}"].to(parameter.device) for key in _ADAM
                }
        return SavedTraining(state["facts"], _under("own.", found)), optimizer

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self._path.unlink(missing_ok=True)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
