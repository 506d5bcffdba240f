"""`--calibration`: a run by a calibrated verifier, and what refuses one."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore
from claimscore.calibration import Calibration, judge_of
from claimscore.errors import ConfigError
from claimscore.prompts import load_prompt
from claimscore.runs import RunDirectory
from claimscore.types import Completion, TokenLogprob, Usage
from tests.fake_server import Body, FakeServer
from tests.support.command_line import Command
from tests.support.tiny_models import Folders

SOURCE = "The hotel was clean and quiet. The pool was warm. We had a great stay."
RECORDS = [
    {"id": str(n), "summary": f"The hotel was clean in {n}. The staff was rude!", "source": SOURCE}
    for n in range(2)
]


def calibration_of(out: Path, path: Path, **changes: Any) -> Path:
    """A calibration for the verifier of a run."""
    additive = RunDirectory.reader(out).settings["additive"]
    known: dict[str, Any] = {
        **{"temperature": 2.0, "shift": 1.0, "threshold": 0.7, "n_labels": 99, "n_records": 500},
        **{"judge": judge_of(additive), "claims": "sentences", "policy": ""},
        **{"probabilities": [0.5] * 50, "lengths": [5.0] * 50},
    }
    Calibration(**known | changes).write(path)
    return path


def judged(
    out: Path, model: Path, *options: str, cli: Command, records: Any = RECORDS
) -> pl.DataFrame:
    """The table `support` of a run whose claims are sentences."""
    path = out.parent / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    call = ("run", path, "--out", out, "--units", "sentences", "--metrics", "faithfulness")
    done = cli(*call, "--nli", model, "--device", "cpu", "--offline", *options)
    assert done.status == 0, done.err
    used = "judge.toml: supported from 0.70 on"
    assert (used in " ".join(done.out.split())) is ("--calibration" in options)
    rows = RunDirectory.reader(out).scan("support").collect()
    return rows.sort("id", "claim_position")


def test_a_run_by_a_calibrated_model(tmp_path: Path, tiny: Folders, cli: Command) -> None:
    model = tiny("bert", "nli")
    raw = judged(tmp_path / "raw", model, cli=cli)
    path = calibration_of(tmp_path / "raw", tmp_path / "judge.toml")
    calibration, option = Calibration.read(path), ("--calibration", str(path))
    rows = judged(tmp_path / "run", model, *option, cli=cli)
    mapped = calibration.map(raw["probability"])
    assert rows["probability"].to_list() == pytest.approx(mapped.tolist(), rel=1e-5)
    assert rows["uncertainty"].to_list() == pytest.approx(
        (1 - abs(2 * mapped - 1)).tolist(), rel=1e-4
    )
    assert [verdict == "supported" for verdict in rows["verdict"]] == (mapped >= 0.7).tolist()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    signature = summary["metrics"]["faithfulness"]["signature"]
    assert f",calibration={calibration.digest}|" in signature
    assert "|threshold:0.7|" in signature
    assert judged(tmp_path / "run", model, *option, cli=cli).equals(rows), "again: it goes on"
    path.write_text(path.read_text().replace("0.7", "0.6"))
    call = ("run", tmp_path / "in.jsonl", "--nli", model, "--device", "cpu", "--metrics")
    call = (*call, "faithfulness", "--units", "sentences")
    for folder, given, message in (
        ("run", option, f'--calibration: was "{calibration.digest}", now "'),
        ("run", (), f'--calibration: was "{calibration.digest}", now "none"'),
        ("raw", option, '--calibration: was "none", now "'),
    ):
        refused = cli(*call, "--out", tmp_path / folder, *given)
        assert refused.status == 2
        assert message in refused.err
    score = cli("score", tmp_path / "run", "--metrics", "faithfulness:score=mean", "--json").json()
    mean = score["metrics"]["faithfulness:score=mean"]["mean"]
    assert mean == pytest.approx(float(mapped.mean()), rel=1e-5)
    assert score["calibration"] == f"{calibration.digest}: supported from 0.70 on"


def test_pairs_are_judged_by_a_calibration(tmp_path: Path, tiny: Folders, cli: Command) -> None:
    model = str(tiny("bert", "nli"))
    raw = judged(tmp_path / "raw", tiny("bert", "nli"), cli=cli)
    path = calibration_of(tmp_path / "raw", tmp_path / "judge.toml")
    pairs = [(SOURCE, claim) for claim in raw["claim"]]
    options: dict[str, Any] = {
        "nli": model,
        "device": "cpu",
        "offline": True,
        "cache_dir": tmp_path,
    }
    by_file = claimscore.verify(pairs, calibration=path, **options)
    mapped = Calibration.read(path).map(raw["probability"])
    assert by_file["probability"].to_list() == pytest.approx(mapped.tolist(), rel=1e-5)
    other = str(tiny("electra", "nli"))
    with pytest.raises(ConfigError, match=f"model {model}, not {other}"):
        claimscore.verify(pairs, calibration=path, **{**options, "nli": other})


def test_data_of_another_kind_are_noticed(tmp_path: Path, tiny: Folders, cli: Command) -> None:
    """With 200 records a distance of .15 is an alarm; the claims here are longer."""
    model = tiny("bert", "nli")
    raw = judged(tmp_path / "raw", model, cli=cli)
    one = raw["probability"].to_list()[:2]
    known = {"probabilities": sorted(one * 25), "claims": "openai:m v1"}
    path = calibration_of(tmp_path / "raw", tmp_path / "judge.toml", **known, lengths=[50.0] * 50)
    many = [{**RECORDS[0], "id": str(n)} for n in range(200)]
    judged(tmp_path / "run", model, "--calibration", str(path), cli=cli, records=many)
    (notice,) = (
        text
        for text in json.loads((tmp_path / "run" / "summary.json").read_text())["notices"]
        if "calibration" in text
    )
    assert "claims by sentences, not by openai:m v1; lengths of claims of summary (" in notice
    assert "probabilities" not in notice.partition("Its")[0]
    assert "made on other data" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    again = cli("score", tmp_path / "run", "--metrics", "faithfulness:score=mean", "--json").json()
    assert notice in again["notices"], "also where the file is not named again"


async def two_thirds(body: Body) -> Completion:
    """Every claim is supported, with a probability of 2/3."""
    text = json.dumps({"verdict": "supported", "evidence": "The pool was warm."})
    head = text.index("supported")
    top = (("supported", math.log(0.6)), ("un", math.log(0.3)))
    tokens = (text[:head], "supported", text[head + 9 :])
    logprobs = tuple(TokenLogprob(t, -0.5, top if t == "supported" else ()) for t in tokens)
    return Completion(text, "m", "stop", Usage(9, 9), None, logprobs)


def test_a_run_by_a_calibrated_language_model(tmp_path: Path, cli: Command) -> None:
    """The threshold decides in the place of the model's word, and another prompt is refused before
    anything is asked."""
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    call = ("run", path, "--units", "sentences", "--metrics", "faithfulness", "--verifier", "llm")
    with FakeServer(answer=two_thirds) as server:
        call = (*call, "--llm", "openai:m", "--base-url", server.base_url)
        assert cli(*call, "--out", tmp_path / "raw").status == 0
        file = calibration_of(tmp_path / "raw", tmp_path / "judge.toml", threshold=0.9)
        option = ("--calibration", file)
        assert cli(*call, "--out", tmp_path / "run", *option).status == 0
        asked = len(server.bodies)
        refused = cli(*call, "--out", tmp_path / "other", *option, "--prompt", "verify=v2")
        digests = [load_prompt("verify", version).digest for version in ("v1", "v2")]
        said = f"prompt verify=v1@{digests[0]}, not verify=v2@{digests[1]}"
        assert (refused.status, said in refused.err) == (2, True)
        assert len(server.bodies) == asked
    rows = RunDirectory.reader(tmp_path / "run").scan("support").collect()
    assert rows["verdict"].unique().to_list() == ["unmentioned"]
    assert rows["probability"].to_list() == pytest.approx(
        [1 / (1 + math.exp(-math.log(2) / 2 - 1))] * 4
    )


def test_a_calibration_without_verdicts_is_refused(tmp_path: Path, cli: Command) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"summary_a": "One.", "summary_b": "Two."}), encoding="utf-8")
    evenly = {"probabilities": [0.5] * 50, "lengths": [5.0] * 50}
    made = Calibration(1.0, 0.0, 0.5, 20, 20, {}, "sentences", "", **evenly)
    made.write(tmp_path / "judge.toml")
    call = ("run", path, "--out", tmp_path / "run", "--metrics", "ds")
    refused = cli(*call, "--calibration", tmp_path / "judge.toml")
    assert (refused.status, "no metric of this run judges claims" in refused.err) == (2, True)
    missing = cli(*call, "--calibration", tmp_path / "none.toml")
    assert "there is no such file" in missing.err
    assert dataclasses.asdict(made)["format"] == 1
