"""A calibration: what its file may hold, what it does to rows, and when it speaks of drift."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
from scipy import special

from claimscore.calibration import Calibration, Platt, distance, judge_of
from claimscore.errors import ConfigError

NLI = {"support": {"verifier": "nli"}, "nli": {"name": "embedded", "revision": "r1"}}
LLM = {
    "support": {"verifier": "llm"},
    "llm": {"verify": {"provider": "openai", "model": "m"}},
    "prompts": {"verify": {"name": "verify", "version": "v1", "digest": "d1"}},
}


def made(**changes: Any) -> Calibration:
    """A calibration made on even probabilities and claims of 5 to 14 words, of 100 records."""
    evenly = ((np.arange(50) + 0.5) / 50).tolist()
    known: dict[str, Any] = {
        **{"temperature": 2.0, "shift": 1.0, "threshold": 0.6, "n_labels": 99, "n_records": 100},
        **{"judge": judge_of(NLI), "claims": "sentences", "policy": "", "probabilities": evenly},
        "lengths": [5.0 + at // 5 for at in range(50)],
    }
    return Calibration(**known | changes)


def test_a_file_keeps_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    made().write(path)
    assert Calibration.read(path) == made()
    assert Calibration.read(path).digest == made().digest != made(shift=1.1).digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature must be 1 from 0.01 to 100"),
        ({"shift": float("nan")}, "shift must be"),
        ({"threshold": 1.5}, "threshold must be"),
        ({"threshold": "0.5"}, "not a file that"),
        ({"format": 2}, "format must be"),
        ({"probabilities": [0.5] * 49}, "probabilities must be 50 from 0 to 1"),
        ({"lengths": [float("inf")] * 50}, "lengths must be"),
        ({"judge": {"model": "m" * 4000}}, "its names are too long"),
        ({"claims": "a\tb"}, "or no plain text"),
        ({"run": "rm -rf"}, "not a file that"),
    ],
)
def test_a_file_of_a_stranger_is_checked(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "judge.toml"
    path.write_text(tomli_w.dumps({**dataclasses.asdict(made()), **change}))
    with pytest.raises(ConfigError, match=f"^{path}: .*{message}"):
        Calibration.read(path)


def test_a_map_keeps_the_order_and_has_an_inverse() -> None:
    platt, values = Platt(2.0, 1.0), np.array([0.0, 1e-4, 0.3, 0.5, 0.99, 1.0])
    mapped = platt(values)
    assert (np.diff(mapped) > 0).all()
    assert mapped[3] == pytest.approx(special.expit(1.0))
    assert mapped[2] == pytest.approx(special.expit(special.logit(0.3) / 2 + 1))
    assert platt.inverse(mapped[1:5]) == pytest.approx(values[1:5])
    assert Platt()(values[1:5]) == pytest.approx(values[1:5])


def test_rows_get_calibrated_probabilities_and_verdicts() -> None:
    """A copy stays supported; the threshold of the file decides."""
    rows = [
        {"verbatim": False, "probability": 0.3, "contradiction": 0.1, "verdict": "unmentioned"},
        {"verbatim": False, "probability": 0.1, "contradiction": 0.9, "verdict": "unmentioned"},
        {"verbatim": False, "probability": 0.1, "contradiction": None, "verdict": "supported"},
        {"verbatim": True, "probability": 1.0, "contradiction": 0.0, "verdict": "supported"},
    ]
    calibration = made(threshold=0.6)
    applied = calibration.applied([dict(row) for row in rows])
    verdicts = ["supported", "contradicted", "unmentioned", "supported"]
    assert [row["verdict"] for row in applied] == verdicts
    p = special.expit(special.logit(0.3) / 2 + 1)
    assert applied[0]["probability"] == pytest.approx(p)
    assert applied[0]["uncertainty"] == pytest.approx(1 - abs(2 * p - 1))
    assert applied[3] == rows[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nli": {"name": "embedded", "revision": "r2"}}, "revision r1, not r2"),
        ({"nli": {"name": "other", "revision": "r1"}}, "model embedded, not other"),
        (LLM, "verifier nli, not llm; model embedded, not openai:m"),
    ],
)
def test_another_verifier_is_refused(change: dict[str, Any], message: str) -> None:
    made().refuse_other(NLI)
    with pytest.raises(ConfigError, match=message):
        made().refuse_other({**NLI, **change})


def test_another_prompt_is_refused() -> None:
    calibration = made(judge=judge_of(LLM))
    calibration.refuse_other(LLM)
    other = {**LLM, "prompts": {"verify": {"name": "verify", "version": "v1", "digest": "d2"}}}
    with pytest.raises(ConfigError, match="prompt verify=v1@d1, not verify=v1@d2"):
        calibration.refuse_other(other)


def support(probabilities: Any, words: int, n_records: int) -> pl.LazyFrame:
    """Rows of claims of so many words, dealt to the records."""
    rows = [
        {
            **{"id": str(n % n_records), "side": "summary", "claim_position": n // n_records},
            **{"claim": "word " * (words + n % 10), "probability": p, "verbatim": False},
        }
        for n, p in enumerate(np.asarray(probabilities).tolist())
    ]
    return pl.LazyFrame(rows)


def test_drift_is_noticed_beyond_chance() -> None:
    calibration, even = made(), np.random.default_rng(0).random(400)
    alike = support(calibration.map(even), 5, 100)
    assert list(calibration.drift(alike, {})) == []
    assert list(calibration.drift(alike.filter(verbatim=True), {})) == []
    longer = list(calibration.drift(support(calibration.map(even), 9, 100), {}))
    assert len(longer) == 1
    assert longer[0].startswith("lengths of claims of summary (distance 0.4")
    lower = list(calibration.drift(support(calibration.map(even / 2), 5, 100), {}))
    assert lower[0].startswith("probabilities of summary (distance 0.5")
    few = support(calibration.map(even[:20] / 2), 5, 5)
    assert list(calibration.drift(few, {})) == [], "five records say little"
    builtin = {"llm": {"decompose": {"provider": "builtin", "model": "b"}}}
    builtin |= {"prompts": {"decompose": {"version": "v3"}}}
    assert list(calibration.drift(alike, builtin)) == ["claims by builtin:b v3, not by sentences"]


def test_a_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    values = [1.0, 2.0, 2.0, 3.0]
    assert distance(values, [2.0, 3.0, 4.0, 5.0], 10, 10)[0] == 0.5
    assert distance(values, values, 10, 10)[0] == 0
    assert distance(values, values, 100, 100)[1] == pytest.approx(1.9495 * 0.02**0.5, abs=1e-3)
    assert distance(values, values, 10**6, 10**6)[1] == 0.15


def test_the_file_is_plain(tmp_path: Path) -> None:
    """Numbers, names and lists of numbers only."""
    made().write(tmp_path / "judge.toml")
    content = tomllib.loads((tmp_path / "judge.toml").read_text())
    kinds = {type(one) for value in content.values() for one in _leaves(value)}
    assert kinds <= {int, float, str}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return value if isinstance(value, list) else [value]
