"""The calibration of a verifier: a file that `claimscore calibrate` writes and later runs use.

It has bounded numbers and names only, for it may come from a stranger. It serves the verifier that
it was made for alone, and a run whose probabilities or claims are unlike those that it was made on
says so. The map is Platt scaling (Platt 1999, *Probabilistic Outputs for Support Vector Machines*).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import polars as pl
import tomli_w
from numpy.typing import ArrayLike, NDArray

from claimscore.atomic import write_text
from claimscore.config import LLM_VERIFIER, read_toml
from claimscore.errors import ConfigError
from claimscore.metrics.support import THRESHOLD, uncertainty, verdicts
from claimscore.option import fits
from claimscore.text import NORMAL_FORM

#: Logits are read within these bounds: a probability of 0 or 1 has none.
MOST_LOGIT = 14.0

#: So many quantiles are kept of probabilities and of the lengths of claims.
N_QUANTILES = 50

#: A distance is an alarm beyond this, and beyond what chance exceeds so seldom.
LEAST_DISTANCE, LEVEL = 0.15, 0.001

#: The least and the largest number of each name, and how many there are.
_BOUNDS: Mapping[str, tuple[float, float, int]] = {
    "format": (1, 1, 1),
    "temperature": (0.01, 100, 1),
    "shift": (-20, 20, 1),
    "threshold": (0, 1, 1),
    "n_labels": (1, 1e12, 1),
    "n_records": (1, 1e12, 1),
    "probabilities": (0, 1, N_QUANTILES),
    "lengths": (0, 1e9, N_QUANTILES),
}

#: The number of words of a claim.
WORDS = pl.col("claim").str.count_matches(r"\S+").cast(pl.Float64).alias("words")


def logits(probabilities: ArrayLike) -> NDArray[np.float64]:
    """Their logits, none beyond `MOST_LOGIT`."""
    values = np.asarray(probabilities, np.float64)
    with np.errstate(divide="ignore"):
        return (np.log(values) - np.log1p(-values)).clip(-MOST_LOGIT, MOST_LOGIT)


class Platt(NamedTuple):
    """A map of probabilities: the logistic function of logit / temperature + shift."""

    temperature: float = 1.0
    shift: float = 0.0

    def __call__(self, probabilities: ArrayLike) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-logits(probabilities) / self.temperature - self.shift))

    @property
    def inverse(self) -> Platt:
        """The map back."""
        return Platt(1 / self.temperature, -self.shift * self.temperature)


def distance(
    values: ArrayLike, quantiles: ArrayLike, n: int, n_quantiles: int
) -> tuple[float, float]:
    """Kolmogorov and Smirnov's distance of values from a sample of which quantiles are kept, and
    from where on it is an alarm; `n` and `n_quantiles` are how many independent values each has."""
    # Rounded, for the few values of a sure judge are equal but for the precision of a table.
    one, other = (np.sort(np.round(np.asarray(of, np.float64), 4)) for of in (values, quantiles))
    at = np.concatenate([one, other])
    shares = [np.searchsorted(sample, at, side="right") / len(sample) for sample in (one, other)]
    chance = math.sqrt(-math.log(LEVEL / 2) / 2 * (1 / n + 1 / n_quantiles))
    return float(np.abs(shares[0] - shares[1]).max()), max(LEAST_DISTANCE, chance)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A map of the probability of support, the threshold after it, and what both were made on.

    `judge` is the verifier (`judge_of`), `claims` what made the claims, `policy` the digest of the
    policy of the labels. `probabilities`, before the map, and `lengths`, in words, are quantiles
    over the claims of a run of `n_records`.
    """

    temperature: float
    shift: float
    threshold: float
    n_labels: int
    n_records: int
    judge: Mapping[str, str]
    claims: str
    policy: str
    probabilities: Sequence[float]
    lengths: Sequence[float]
    format: int = 1

    @classmethod
    def of(cls, content: Mapping[str, Any], where: object) -> Calibration:
        """The content of a file; `ConfigError` where it is none, or a number is out of bounds."""
        hints = get_type_hints(cls)
        if content.keys() != hints.keys() or not all(fits(content[n], hints[n]) for n in hints):
            raise ConfigError(f"{where}: not a file that `claimscore calibrate` wrote")
        for name, (least, most, count) in _BOUNDS.items():
            numbers = np.atleast_1d(content[name])
            if len(numbers) != count or not ((numbers >= least) & (numbers <= most)).all():
                raise ConfigError(f"{where}: {name} must be {count} from {least:g} to {most:g}")
        names = content["claims"], content["policy"], *sum(content["judge"].items(), ())
        if not re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f]{,3000}", "\n".join(names)):
            raise ConfigError(f"{where}: its names are too long, or no plain text")
        return cls(**content)

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """The calibration in a file; raises as `of`, and where there is no such file."""
        return cls.of(read_toml(path), path)

    def write(self, path: Path) -> None:
        """Write the file that `read` reads."""
        write_text(path, tomli_w.dumps(dataclasses.asdict(self)))

    @property
    def digest(self) -> str:
        """The first 12 hex digits of the SHA-256 of all of it."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def map(self) -> Platt:
        """From probabilities of support to calibrated ones."""
        return Platt(self.temperature, self.shift)

    def applied(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of `support` with calibrated probabilities, and verdicts by the threshold; a claim
        that a sentence says word for word stays supported."""
        asked = [row for row in rows if not row["verbatim"]]
        mapped = self.map([row["probability"] for row in asked])
        named = verdicts(mapped, [row["contradiction"] for row in asked], self.threshold)
        for row, p, verdict in zip(asked, mapped.tolist(), named, strict=True):
            row |= {"probability": p, "verdict": verdict, "uncertainty": uncertainty(p)}
        return rows

    def refuse_other(self, additive: Mapping[str, Any]) -> None:
        """`ConfigError` that says which, where the settings of a run have another verifier."""
        here, no = judge_of(additive), "none"
        others = [
            f"{name} {self.judge.get(name, no)}, not {here.get(name, no)}"
            for name in dict.fromkeys((*self.judge, *here))
            if self.judge.get(name) != here.get(name)
        ]
        if others:
            raise ConfigError(f"--calibration was made for {'; '.join(others)}, as in this run")

    def drift(self, support: pl.LazyFrame, additive: Mapping[str, Any]) -> Iterator[str]:
        """What is unlike that which it was made on, in the rows of `support` of a run.

        Claims of a record are alike, so a record counts as one value.
        """
        if (maker := claims_of(additive)) != self.claims:
            yield f"claims by {maker}, not by {self.claims}"
        best = support.filter(~pl.col("verbatim")).group_by("id", "side", "claim_position")
        claims = best.agg(pl.col("probability").max(), WORDS.first()).collect()
        for (side,), rows in claims.partition_by("side", as_dict=True).items():
            n = rows["id"].n_unique(), self.n_records
            for name, values, quantiles in (
                ("probabilities", rows["probability"], self.map(self.probabilities)),
                ("lengths of claims", rows["words"], self.lengths),
            ):
                gap, alarm = distance(values, quantiles, *n)
                if gap > alarm:
                    yield f"{name} of {side} (distance {gap:.2f}, alarm at {alarm:.2f})"


def judge_of(additive: Mapping[str, Any]) -> dict[str, str]:
    """The verifier of a run, by the `additive` part of its settings: all that must be the same for
    a probability to mean the same."""
    verifier = additive["support"]["verifier"]
    if verifier == LLM_VERIFIER:
        llm, prompt = additive["llm"]["verify"], additive["prompts"]["verify"]
        names = {"model": f"{llm['provider']}:{llm['model']}"}
        names |= {"prompt": f"{prompt['name']}={prompt['version']}@{prompt['digest']}"}
    else:
        model = additive["nli" if verifier == "nli" else "verifier"]
        names = {"model": model.get("model", model["name"]), "revision": model["revision"]}
        names |= {"labels": model.get("labels", "")}
    return {"verifier": verifier, **names, "normal form": NORMAL_FORM}


def verifiers_in(additive: Mapping[str, Any]) -> list[str]:
    """The verifiers of a run."""
    named: str = additive.get("support", {}).get("verifier", "nli")
    return named.split(",")


def judge_role(verifiers: Sequence[str]) -> str:
    """The role of the models that judged claims."""
    judges = [name for name in verifiers if name != LLM_VERIFIER]
    return "nli" if judges == ["nli"] else "verifier"


def threshold_in(additive: Mapping[str, Any]) -> float:
    """The threshold of a run, by the same settings, before a calibration: its verifiers' mean."""
    names = verifiers_in(additive)
    of_models = float(additive.get(judge_role(names), {}).get("threshold", THRESHOLD))
    n_llm = names.count(LLM_VERIFIER)
    return (of_models * (len(names) - n_llm) + THRESHOLD * n_llm) / len(names)


def claims_of(additive: Mapping[str, Any]) -> str:
    """What made the claims of a run."""
    llm, prompt = (additive.get(name, {}).get("decompose") for name in ("llm", "prompts"))
    return f"{llm['provider']}:{llm['model']} {prompt['version']}" if llm else "sentences"
