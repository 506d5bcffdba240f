"""The main job from end to end: records in, scores out, resumed, on a server, and refused."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from claimscore.runs import RunDirectory
from claimscore.types import Completion
from tests.fake_server import Body, FakeServer, plain_answer, text_answer
from tests.support.children import killed_at_last
from tests.support.command_line import claimscore, table
from tests.support.prompt_files import prompt_file
from tests.support.report_pages import Page

EXAMPLES = Path(__file__).parents[2] / "examples" / "hotels.jsonl"

#: A model pass without the weights of the extra `offline`: DS needs none, CASPR does.
WORDS_ONLY = ("--metrics", "ds", "--tasks", "decompose")


def write_records(path: Path, n: int) -> Path:
    """Pairs of three sentences each, no two alike."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(n):
            record = {
                "id": f"r{i}",
                "summary_a": f"Room {i} is clean and quiet. Floor {i} is loud. Bar {i} is big.",
                "summary_b": f"Bed {i} is hard but cheap. Pool {i} is warm. It is house {i}.",
            }
            stream.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without options, once."""
    folder = tmp_path_factory.mktemp("offline") / "run"
    cache = folder.parent / "cache"
    assert claimscore("run", EXAMPLES, "--out", folder, "--cache-dir", cache, "--quiet") == 0
    return folder


class TestOffline:
    """Without options: the built-in parser and the embedded model."""

    def test_every_record_has_every_score(self, out: Path) -> None:
        scores = pl.read_parquet(out / "scores.parquet")
        ids = [json.loads(line)["id"] for line in EXAMPLES.read_text().splitlines()]
        assert scores["id"].to_list() == [i for i in ids for _ in range(3)]
        assert scores["metric"].to_list() == ["caspr", "ds", "bs-inverse"] * 12
        assert scores["value"].null_count() == 0
        assert scores["signature"].str.contains("claimscore:").all()

    def test_rows_say_what_made_them(self, out: Path) -> None:
        claims, nli = table(out, "claims"), table(out, "nli")
        assert (
            claims.select("request_key", "prompt_digest", "model").null_count().sum_horizontal()[0]
            == 0
        )
        assert claims["model"].unique().to_list() == ["builtin-parser-9"]
        assert nli["model"].unique().to_list() == ["embedded"]
        total = nli.select(pl.sum_horizontal("entailment", "neutral", "contradiction"))
        assert total.to_series().is_between(0.999, 1.001).all()

    def test_the_summary_adds_up(self, out: Path) -> None:
        summary = json.loads((out / "summary.json").read_text())
        assert summary["records"] == {"total": 12, "done": 12, "failed": 0}
        counts = {name: metric["n"] for name, metric in summary["metrics"].items()}
        assert counts == dict.fromkeys(("caspr", "ds", "bs-inverse"), 12)
        page = Page((out / "report.html").read_text(encoding="utf-8"))
        assert "hotel-negated" in page.index["ids"]

    def test_the_toy_pairs_of_the_paper(self, tmp_path: Path) -> None:
        """CASPR paper, Table 1: a paraphrase scores 0, a negation 100."""
        records = tmp_path / "toys.csv"
        records.write_text(
            "id,summary_a,summary_b\n"
            "i,The hotel is sparkly clean.,The hotel was kept very tidy.\n"
            "ii,The hotel is clean.,The hotel is not clean\n"
        )
        out = tmp_path / "run"
        assert claimscore("run", records, "--out", out, "--metrics", "caspr", "--quiet") == 0
        assert pl.read_parquet(out / "scores.parquet")["value"].to_list() == [0.0, 100.0]


class TestOnAServer:
    """`--llm openai:MODEL --base-url URL`."""

    def test_rubbish_answers_are_failure_rows_and_exit_3(self, tmp_path: Path) -> None:
        out = tmp_path / "run"
        with FakeServer(answer=text_answer("I am a teapot")) as server:
            llm = ("--llm", "openai:teapot", "--base-url", server.base_url)
            arguments = ("run", EXAMPLES, "--out", out, "--metrics", "caspr,ds", *llm, "--quiet")
            assert claimscore(*arguments) == 3
            asked = server.n_requests
            assert claimscore(*arguments) == 3
            assert server.n_requests == asked, "a rerun leaves failed rows alone"
        failures = table(out, "failures")
        assert set(failures["raw"]) == {"I am a teapot"}
        assert failures["attempts"].unique().to_list() == [3]
        scores = pl.read_parquet(out / "scores.parquet").filter(metric="caspr")
        assert scores["value"].null_count() == 12
        assert scores["reason"].str.starts_with("decompose failed for summary_a").all()
        summary = json.loads((out / "summary.json").read_text())
        assert summary["records"] == {"total": 12, "done": 0, "failed": 12}
        assert summary["metrics"]["ds"]["n"] == 12


class TestInterrupted:
    """A run that was stopped goes on, and ends as if nothing had happened."""

    N = 20

    def arguments(self, records: Path, out: Path, server: FakeServer) -> list[str]:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "4")
        return ["run", str(records), "--out", str(out), *WORDS_ONLY, *llm, "--quiet"]

    def interrupted(
        self, tmp_path: Path, how: signal.Signals
    ) -> tuple[int, FakeServer, Path, Path]:
        """A run on a server, sent a signal when half of it was answered, then run to its end."""
        records = write_records(tmp_path / "records.jsonl", self.N)
        half, sent, n_sentences = threading.Event(), threading.Event(), 6 * self.N

        async def answer(body: Body) -> Completion:
            if server.n_requests >= n_sentences // 2:
                half.set()
            while half.is_set() and not sent.is_set():
                await anyio.sleep(0.002)
            return await plain_answer(body)

        out = tmp_path / "run"
        with FakeServer(answer=answer, latency_s=0.01) as server:
            arguments = self.arguments(records, out, server)
            command = [sys.executable, "-m", "claimscore", *arguments]
            with killed_at_last(subprocess.Popen(command, stderr=subprocess.PIPE)) as process:
                assert half.wait(timeout=60)
                process.send_signal(how)
                sent.set()
                _, stderr = process.communicate(timeout=60)
            if how is signal.SIGINT:
                assert b"run the same command to go on" in stderr
            assert claimscore(*arguments) == 0
        return process.returncode, server, records, out

    def test_kill_9_half_way(self, tmp_path: Path) -> None:
        """Only what was in flight is asked twice; the scores are the uninterrupted run's, byte
        for byte."""
        code, server, records, out = self.interrupted(tmp_path, signal.SIGKILL)
        assert code == -signal.SIGKILL
        twice = sum(count - 1 for count in server.contents.values())
        assert len(server.contents) == 6 * self.N
        assert twice <= 4
        whole = tmp_path / "whole"
        assert claimscore("run", records, "--out", whole, *WORDS_ONLY, "--quiet") == 0
        assert (out / "scores.parquet").read_bytes() == (whole / "scores.parquet").read_bytes()
        checks = table(out, "claim_checks")
        assert checks["check"].to_list() == ["dangling_pronoun"] * self.N
        assert checks.equals(table(whole, "claim_checks"))

    def test_ctrl_c_half_way(self, tmp_path: Path) -> None:
        code, server, _, out = self.interrupted(tmp_path, signal.SIGINT)
        assert code == 75
        assert set(server.contents.values()) == {1}
        spent = json.loads((out / "summary.json").read_text())["spent"]
        assert spent["requests"] == len(server.contents), "both calls count together"
        assert spent["usd"] is None, "nobody knows the price"


class TestRefused:
    """Wrong input and wrong use: one line, exit 2, nothing spent."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            pytest.param(["--tasks", "summarise"], "known tasks: decompose", id="task"),
            pytest.param(["--llm", "gpt-4o"], "openai", id="llm"),
            pytest.param(["--nli", "no/such-model", "--offline"], "no/such-model", id="nli"),
            pytest.param(["--prompt", "decompose=v9"], "versions of decompose: v1", id="prompt"),
            pytest.param(["--prompt", "decompse=v1"], "unknown task decompse", id="prompt-task"),
            pytest.param(
                ["--prompt", "facts=v2"], "has no task facts; its tasks, by", id="unused-prompt"
            ),
            pytest.param(["--prompts-dir", "nosuch"], "no such folder", id="prompts-dir"),
            pytest.param(["--metrics", ""], "nothing to do", id="nothing"),
            pytest.param(["--llm", "openai:m", "--base-url", "http://[::1"], "base URL", id="url"),
            pytest.param(["--seed", "-1"], "--seed must be at least 0", id="seed"),
        ],
    )
    def test_wrong_options(
        self, tmp_path: Path, capsys: Any, options: list[str], message: str
    ) -> None:
        assert claimscore("run", EXAMPLES, "--out", tmp_path / "run", "--quiet", *options) == 2
        assert message in capsys.readouterr().err

    def test_a_refused_run_can_be_corrected_in_the_same_folder(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        """Settings that nothing was made with yet do not stand in the way of the right ones."""
        run = ("run", EXAMPLES, "--out", tmp_path / "run", "--quiet", "--metrics", "ds")
        script = dict.fromkeys(range(1, 1000), "404")
        with FakeServer(script=script) as broken, FakeServer() as server:
            llm = ("--tasks", "decompose", "--llm", "openai:m", "--base-url")
            assert claimscore(*run, *llm, broken.base_url) == 2
            assert claimscore(*run, *llm, server.base_url) == 0
            assert claimscore(*run, *llm, broken.base_url) == 2
        assert "server (--base-url) of decompose: was" in capsys.readouterr().err.splitlines()[-1]


def test_settings_from_a_file(tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "claimscore.toml"
    config.write_text('metrics = ["ds"]\ntasks = ["decompose"]\ngranularity = "summary"\n')
    run = ("run", EXAMPLES, "--config", config, "--quiet")
    assert claimscore(*run, "--out", tmp_path / "run") == 0
    settings = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert settings["additive"]["texts"]["granularity"] == "summary"
    for wrong, message in (
        ("granluarity = 1", "granluarity"),
        ("seed = 1.5", "claimscore.toml: seed: '1.5' is not a valid integer"),
        ("rpm = true", "'true' is not a valid float"),
        ("metrics = [1]", "unknown metric 1"),
        ("llm = {decompose = ['x']}", "unknown LLM '[\"x\"]'"),
    ):
        config.write_text(wrong + "\n")
        assert claimscore(*run, "--out", tmp_path / "other") == 2
        assert message in capsys.readouterr().err


def test_sigterm_before_the_stages_is_a_stop_in_good_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "claimscore", "run", "-", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [*command, "--metrics", "ds"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert b"reading" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert b"run the same command to go on" in process.stderr.read()
    assert process.returncode == 75


def test_score_needs_the_prompts_of_missing_answers_alone(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "prompts"
    file = folder / "decompose" / "mine.toml"
    prompt_file(file, "decompose=v1")
    out, half = tmp_path / "run", tmp_path / "half"
    prompt = ("--prompts-dir", folder, "--prompt", "decompose=mine", "--quiet")
    assert claimscore("run", EXAMPLES, "--out", out, *WORDS_ONLY, *prompt) == 0
    shutil.copytree(out, half)
    with RunDirectory(half) as directory:
        (step,) = (step for step in directory.manifest.steps(0) if step.startswith("decompose"))
        directory.invalidate({step: [0]})
    asked = (out / "run.toml").read_text()
    assert "[additive.prompts.decompose]" in asked
    for change in (lambda: file.write_text("broken"), lambda: shutil.rmtree(folder)):
        change()
        capsys.readouterr()
        assert claimscore("status", out) == claimscore("score", out, "--metrics", "ds") == 0
        assert "asks builtin" not in capsys.readouterr().err
        assert claimscore("score", half, "--metrics", "caspr") == 2
        assert '--prompt decompose: was "mine", now "v3"' in capsys.readouterr().err
    assert (out / "run.toml").read_text() == asked
