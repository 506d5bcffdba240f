"""The loopback server over the wire: broken answers, silence, control, the command line."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from claimscore.types import Completion
from tests.fake_server import Body, FakeServer
from tests.fake_server.http import unchunked
from tests.unit.fake_server.test_fake_server import question


class Client:
    """One connection, as plain as it gets."""

    def __init__(self, server: FakeServer) -> None:
        self._address = urlsplit(server.base_url).netloc
        self._line = http.client.HTTPConnection(self._address, timeout=10)

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        self._line.request(method, path, data, {"content-type": "application/json"})
        response = self._line.getresponse()
        return response.status, json.loads(response.read())

    def ask(self, text: str = "Is it warm?") -> tuple[int, Any]:
        return self.send("POST", "/v1/chat/completions", question(text))

    def again(self) -> None:
        """After the line broke."""
        self._line.close()
        self._line = http.client.HTTPConnection(self._address, timeout=10)

    def close(self) -> None:
        self._line.close()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(text="warm") as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


class TestOverTheWire:
    """The server as other processes meet it."""

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("reset", ConnectionResetError),
            ("hangup", http.client.RemoteDisconnected),
            ("truncated", (http.client.IncompleteRead, http.client.BadStatusLine, ValueError)),
            ("malformed", json.JSONDecodeError),
        ],
    )
    def test_broken_answers(
        self, server: FakeServer, client: Client, fault: str, error: Any
    ) -> None:
        """One request is hit, the next is answered."""
        server.change(script={1: fault})
        with pytest.raises(error):
            client.ask()
        client.again()
        assert client.ask()[0] == 200
        assert server.counts.outcomes == {fault: 1, "200": 1}

    @pytest.mark.parametrize("fault", ["stall", "half"])
    def test_silence(self, server: FakeServer, client: Client, fault: str) -> None:
        """Nothing comes, or nothing more, and the connection stays; others are answered."""
        server.change(script={1: fault})
        client._line.timeout = 0.2
        with pytest.raises(TimeoutError):
            client.ask()
        other = Client(server)
        assert other.ask()[0] == 200
        other.close()
        client.close()
        give_up = time.monotonic() + 5
        while server.counts.in_flight and time.monotonic() < give_up:
            time.sleep(0.01)
        assert server.counts.in_flight == 0

    def test_refused_connections_and_the_way_back(self, server: FakeServer, client: Client) -> None:
        """The port is closed, the line dropped, and later it is as before."""
        server.change(outages=[{"how": "refuse", "from_s": 0.05, "to_s": 0.6}], latency_s=0.1)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            client.ask()
        client.again()
        with pytest.raises(ConnectionRefusedError):
            client.ask()
        give_up = time.monotonic() + 5
        while time.monotonic() < give_up:
            client.again()
            try:
                assert client.ask()[0] == 200
                break
            except ConnectionError:
                time.sleep(0.02)
        assert server.counts.outcomes == {"cut": 1, "200": 1}

    def test_it_is_driven_from_another_process(self, server: FakeServer, client: Client) -> None:
        """`POST /_control` and `GET /_stats`; what it does not know it says."""
        client.ask()
        assert client.send("POST", "/_control", {"rpm": 1, "depth_s": 1})[1]["received"] == 1
        assert [client.ask()[0] for _ in range(2)] == [200, 429]
        assert client.send("GET", "/_stats")[1]["outcomes"] == {"200": 2, "limit": 1}
        assert client.send("POST", "/_control", {"reset": True})[1]["received"] == 0
        assert client.ask()[0] == 200
        assert client.send("GET", "/_stats?times=1")[1]["paid_at"][0] >= 0
        status, answer = client.send("POST", "/_control", {"speed": 3})
        assert (status, server.settings.rpm) == (400, 1)
        assert "speed" in answer["error"]["message"]

    def test_models_and_unknown_paths(self, server: FakeServer, client: Client) -> None:
        """The list, one of them, and 404 for all else."""
        server.change(models=["a", "b"])
        _, models = client.send("GET", "/v1/models")
        assert [model["id"] for model in models["data"]] == ["a", "b"]
        assert client.send("GET", "/v1/models/b")[0] == 200
        assert client.send("GET", "/v1/models/c")[0] == 404
        assert client.send("GET", "/nosuch")[0] == 404
        assert client.send("POST", "/v1/chat/completions", {"model": "a"})[0] == 400

    def test_one_connection_serves_many_requests(self, server: FakeServer, client: Client) -> None:
        """Keep-alive; connections are counted."""
        for _ in range(5):
            client.ask()
        other = Client(server)
        other.ask()
        other.close()
        assert server.counts.connections == 2

    def test_requests_sent_ahead_are_answered_in_order(self, server: FakeServer) -> None:
        """Two requests in one packet, one of them in chunks."""
        line = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=10)
        line.connect()
        head = b"POST /v1/chat/completions HTTP/1.1\r\n"
        bodies = [json.dumps(question(text)).encode() for text in ("first", "second")]
        chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        plain = b"content-length: %d\r\n\r\n%s"
        line.sock.sendall(
            head
            + chunked % (len(bodies[0]), bodies[0])
            + head
            + plain % (len(bodies[1]), bodies[1])
        )
        with line.sock.makefile("rb") as stream:
            for number in (1, 2):
                length = 0
                while (row := stream.readline()) != b"\r\n":
                    if row.startswith(b"content-length"):
                        length = int(row.partition(b":")[2])
                assert json.loads(stream.read(length))["id"] == f"chatcmpl-{number}"
        line.close()
        assert [body["messages"][0]["content"] for body in server.bodies] == ["first", "second"]

    def test_a_body_in_chunks(self) -> None:
        """Whole only when its end is there."""
        data = b"3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\nrest"
        assert unchunked(data) == (b"abcde", len(data) - 4)
        assert unchunked(data[:12]) is None

    def test_a_bug_in_an_answer_is_raised(self) -> None:
        """A test whose answers fail must not look like a server that fails."""

        async def answer(body: Body) -> Completion:
            raise ZeroDivisionError

        def asked_once() -> None:
            with FakeServer(answer=answer) as server:
                client = Client(server)
                assert client.ask()[0] == 500
                client.close()

        with pytest.raises(ZeroDivisionError):
            asked_once()

    def test_the_command_line(self, tmp_path: Path) -> None:
        """Settings from a file and from options; the first line is the base URL."""
        config = tmp_path / "server.json"
        config.write_text(json.dumps({"rpm": 1, "depth_s": 1, "text": "cold"}))
        command = [sys.executable, "-m", "tests.fake_server", "--config", str(config)]
        options = ["--set", "text=warm", 'script={"1": "503"}', "--log", str(tmp_path / "log")]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            remote = FakeServer()
            remote.base_url = process.stdout.readline().strip()
            client = Client(remote)
            answers = [client.ask() for _ in range(3)]
            client.close()
            process.terminate()
        assert [status for status, _ in answers] == [503, 200, 429]
        assert answers[1][1]["choices"][0]["message"]["content"] == "warm"
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["503", "200", "limit"]
