"""How long a run takes, where it waits, and what would have to change: a model in closed form.

Pure arithmetic over figures that somebody gives: `claimscore estimate` gives those of one machine,
`benchmarks/scaling` those of many, and a simulation there checks the formulas. The page
docs/scaling.md has both.
"""

from claimscore.pipeline.scaling.machines import (
    Costs,
    Encoders,
    Host,
    LanguageModel,
)
from claimscore.pipeline.scaling.model import Disk, Prediction, Stage, disk, predict
from claimscore.pipeline.scaling.work import PassWork, Work

__all__ = [
    "Costs",
    "Disk",
    "Encoders",
    "Host",
    "LanguageModel",
    "PassWork",
    "Prediction",
    "Stage",
    "Work",
    "disk",
    "predict",
]
