"""The main job on an OpenAI-compatible server that nobody here wrote: `transformers serve`.

Slow, and needs what the server needs: `pip install "transformers[serving]"`. The model is a
tiny random one, so its answers are rubbish; what is tested is what becomes of rubbish.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main

_MISSING = [
    name
    for name in ("accelerate", "fastapi", "pydantic", "uvicorn")
    if importlib.util.find_spec(name) is None
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(_MISSING), reason=f"transformers serve needs {', '.join(_MISSING)}: install them"
    ),
]

MODEL = "tiny"
START_S = 180.0
SPEECH = "the room pool staff bed bar was is not never clean loud warm rude and but . , ! ?"
WORDS = SPEECH.split()
CHAT_TEMPLATE = (
    "{% for message in messages %}<s> {{ message.role }} {{ message.content }} </s>{% endfor %}"
    "{% if add_generation_prompt %}<s>{% endif %}"
)
RECORDS = [
    {
        "id": "hotel",
        "summary_a": "The room is clean. The staff was rude.",
        "summary_b": "The pool is warm and loud.",
    },
    {
        "id": "phone",
        "summary_a": "The screen is bright. The battery is weak.",
        "summary_b": "The screen is dim.",
    },
]
N_SENTENCES = 6
#: What a sampled answer of the random model can fail by.
RUBBISH = {"parse", "empty", "length"}


class TransformersServe:
    """`transformers serve MODEL` as a process on a loopback port, which it keeps when restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            *(sys.executable, "-m", "transformers.cli.transformers", "serve", MODEL),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *("--device", "cpu", "--default-seed", "0"),
        ]
        settings = {
            "HF_HOME": str(self._folder / "hub"),  # no model of the user's
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + START_S
        while not self._is_healthy():
            code = self._process.poll()
            if code is not None or time.monotonic() > end:
                self.kill()
                log_end = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
                pytest.fail(f"the server did not start (exit code {code}):\n{log_end}")
            time.sleep(0.2)

    def kill(self) -> None:
        """As a crash or the kernel would end it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def n_asked(self) -> int:
        """Chat requests that were answered, refusals included."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return log.count('"POST /v1/chat/completions')

    def _is_healthy(self) -> bool:
        # Not /v1/models: that is an error while the folder of downloaded models is missing.
        url = self.base_url.removesuffix("/v1") + "/health"
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(url, timeout=5) as response,
        ):
            return bool(response.status == 200)
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersServe]:
    folder = tmp_path_factory.mktemp("server")
    save_tiny_chat_model(folder / MODEL)
    server = TransformersServe(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache, or knows a key."""
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def save_tiny_chat_model(folder: Path) -> None:
    """A random causal model that speaks twenty words, samples, and soon falls silent."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    tokenizer_class: Any = PreTrainedTokenizerFast  # its constructor has no types
    tokenizer = tokenizer_class(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.generation_config.do_sample = True  # else the server ignores the temperature
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_records(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def run(*arguments: object) -> int:
    """`claimscore run`, in this process."""
    return main(["run", *(str(argument) for argument in arguments), "--quiet"])


def llm(server: TransformersServe, model: str = MODEL) -> tuple[str, ...]:
    return ("--llm", f"openai:{model}", "--base-url", server.base_url)


def failures(out: Path) -> pl.DataFrame:
    return pl.read_parquet(sorted((out / "failures").glob("*.parquet")))


def test_rubbish_becomes_failure_rows_and_exit_3(tmp_path: Path, server: TransformersServe) -> None:
    """DS needs no answer and is there; CASPR is null and says why; running again asks nothing."""
    records, out = write_records(tmp_path / "records.jsonl", RECORDS), tmp_path / "run"
    command = (records, "--out", out, "--metrics", "caspr,ds", *llm(server))
    before = server.n_asked()
    assert run(*command) == 3
    asked = server.n_asked() - before
    summary = json.loads((out / "summary.json").read_text())
    assert asked == summary["last_call"]["requests"] == 3 * N_SENTENCES
    assert summary["last_call"]["completion_tokens"] > 0
    assert summary["records"] == {"total": 2, "done": 0, "failed": 2}
    assert (out / "report.html").exists()

    failed = failures(out)
    assert failed.height == N_SENTENCES
    assert set(failed["kind"]) <= RUBBISH
    assert set(failed["attempts"]) == {3}
    said = " ".join(failed["raw"]).split()
    assert said, "the raw answers are kept"
    assert set(said) <= set(WORDS)

    scores = pl.read_parquet(out / "scores.parquet")
    caspr, ds = (scores.filter(metric=name) for name in ("caspr", "ds"))
    assert caspr["value"].null_count() == 2
    assert caspr["reason"].str.starts_with("decompose failed for summary_a: ").all()
    assert ds["value"].null_count() == 0
    assert ds["reason"].null_count() == 2

    assert run(*command) == 3
    assert server.n_asked() == before + asked, "a rerun leaves failed rows alone"
    other = tmp_path / "other"
    assert run(records, "--out", other, "--metrics", "caspr,ds", *llm(server)) == 3
    assert server.n_asked() == before + asked, "another run finds the answers in the cache"
    assert failures(other)["raw"].equals(failed["raw"])


def test_a_wrong_model_is_one_line_and_exit_2(
    tmp_path: Path, capsys: Any, server: TransformersServe
) -> None:
    """This server says 400 to it; no other record would fare better, so the run stops."""
    records = write_records(tmp_path / "records.jsonl", RECORDS)
    before = server.n_asked()
    command = (records, "--out", tmp_path / "run", "--metrics", "caspr", *llm(server, "nosuch"))
    assert run(*command, "--max-concurrency", 2) == 2
    assert server.n_asked() - before <= 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("claimscore: error: ")
    assert "no model 'nosuch'" in line
    assert f"pinned to '{MODEL}'" in line


def test_a_server_that_dies_and_comes_back(
    tmp_path: Path, server: TransformersServe, capsys: Any
) -> None:
    """The run stops without a traceback and without a lost row; the same command goes on."""
    pairs = [
        {
            "id": f"r{i}",
            "summary_a": f"Room {i} is clean and quiet.",
            "summary_b": f"Bed {i} is hard but cheap.",
        }
        for i in range(6)
    ]
    records, out = write_records(tmp_path / "records.jsonl", pairs), tmp_path / "run"
    command = (records, "--out", out, "--metrics", "caspr,ds", *llm(server))
    before = server.n_asked()
    finished = threading.Event()

    def kill_after_a_few() -> None:
        while server.n_asked() < before + 6 and not finished.wait(0.02):
            pass
        server.kill()

    killer = threading.Thread(target=kill_after_a_few)
    killer.start()
    try:
        code = run(*command, "--max-concurrency", 2, "--max-outage-s", 1)
    finally:
        finished.set()
        killer.join()
    assert code == 75
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("claimscore: stopped: nothing was answered for ")
    assert line.endswith("run the same command to go on")

    server.start()
    assert run(*command) == 3
    assert set(failures(out)["kind"]) <= RUBBISH
    scores = pl.read_parquet(out / "scores.parquet")
    assert scores.filter(metric="ds")["value"].null_count() == 0
