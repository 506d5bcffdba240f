"""A map that is stopped at any moment goes on and ends with the same bytes."""

import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest
from anyio import lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

import claimscore
from claimscore.cli import main
from claimscore.errors import RejectedError, StoppedEarly
from claimscore.pipeline.map.map_files import MapFiles, map_status
from claimscore.runs import RunDirectory
from claimscore.types import Completion, Request
from tests.fake_server import Body, FakeServer
from tests.support.children import killed_at_last
from tests.support.engine_doubles import FakeProvider, completion

N_ROWS = 1_800  # nearly two chunks
IN_FLIGHT = 16

PROMPT = 'name = "echo"\nversion = "v1"\nuser = "Say $text"\n'


async def echo(body: Body) -> Completion:
    """The question, loud; one row in a hundred is answered with nothing."""
    text = body["messages"][-1]["content"].removeprefix("Say ")
    return Completion("" if text.endswith("77") else text.upper(), "m")


class Served:
    """An answer function that tells when so many requests have come.

    From then on no answer is given until other requests are expected, so that what the test does
    meanwhile meets a map at work, however late it does it.
    """

    def __init__(self, answer: Callable[[Body], Awaitable[Completion]] = echo) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._seen = 0
        self._wanted = 0
        self.reached = threading.Event()

    def expect(self, n_more: int) -> None:
        with self._lock:
            self._wanted = self._seen + n_more
            self.reached.clear()

    async def __call__(self, body: Body) -> Completion:
        with self._lock:
            self._seen += 1
            if self._seen == self._wanted:
                self.reached.set()
        while self.reached.is_set():
            await anyio.sleep(0.002)
        return await self._answer(body)


class Project:
    """A table, a prompt and a server, and the command that brings them together."""

    def __init__(
        self,
        folder: Path,
        server: FakeServer,
        *options: str,
        name: str = "row",
        n_rows: int = N_ROWS,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.server, self.options = folder, server, options
        self.out = folder / "out.parquet"
        self.parts = folder / "out.parquet.parts"
        (folder / "prompt.toml").write_text(PROMPT)
        table = pl.DataFrame({"n": range(n_rows), "text": [f"{name} {i}" for i in range(n_rows)]})
        table.write_parquet(folder / "in.parquet")

    def arguments(self) -> list[str]:
        return [
            *("map", str(self.folder / "in.parquet")),
            *("--prompt", str(self.folder / "prompt.toml"), "--out", str(self.out)),
            *("--llm", "openai:m", "--base-url", self.server.base_url),
            *("--cache-namespace", "echo", "--cache-dir", str(self.folder / "cache")),
            *("--max-concurrency", str(IN_FLIGHT), "--quiet", *self.options),
        ]

    def start(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """In a process of its own."""
        command = [sys.executable, "-m", "claimscore", *self.arguments()]
        return killed_at_last(subprocess.Popen(command, stderr=subprocess.PIPE))

    def finish(self) -> tuple[bytes, bytes]:
        """Run to the end in this process; the bytes of the result and of the failures."""
        assert main(self.arguments()) == 3
        failures = self.out.with_name("out.failures.parquet")
        return self.out.read_bytes(), failures.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """What a map gives that nobody stops."""
    with FakeServer(answer=echo, keep=False) as server:
        return Project(tmp_path_factory.mktemp("whole"), server).finish()


def test_kill_9_at_random_moments(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    rng = random.Random(86)  # the last is when the first chunk is done
    served, kills = Served(), 2
    with FakeServer(answer=served, latency_s=0.004, keep=False) as server:
        project = Project(tmp_path, server)
        for _ in range(kills):
            served.expect(rng.randrange(1, N_ROWS // kills))
            with project.start() as process:
                assert served.reached.wait(timeout=60)
            assert process.returncode == -signal.SIGKILL
            assert not project.out.exists()
        served.expect(N_ROWS)  # not reached
        result = project.finish()
        n_empty = N_ROWS // 100
        assert len(server.paid) == N_ROWS
        assert server.paid.total() - N_ROWS - 2 * n_empty <= kills * IN_FLIGHT
    assert not project.parts.exists()
    assert result == whole


def test_ctrl_c(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    served = Served()
    with FakeServer(answer=served, latency_s=0.004, keep=False) as server:
        project = Project(tmp_path, server)
        served.expect(N_ROWS - 300)  # the first chunk is done
        with project.start() as process:
            assert served.reached.wait(timeout=60)
            process.send_signal(signal.SIGINT)
            served.expect(N_ROWS)  # not reached
            _, stderr = process.communicate(timeout=60)
        assert process.returncode == 75
        assert stderr.decode().count("\n") == 1
        assert b"run the same command to go on" in stderr
        assert not project.out.exists()
        state = map_status(project.out)
        assert state is not None
        assert 0 < state["rows"]["done"] < state["rows"]["total"] == N_ROWS
        result = project.finish()
        assert server.paid.total() == N_ROWS + 2 * (N_ROWS // 100), "empty ones three times"
    assert result == whole


# In this process


async def say(request: Request) -> Completion:
    """The question, loud, after others had a turn; a row with `bad` in it is refused."""
    await lowlevel.checkpoint()
    text = request.messages[-1].content.removeprefix("Say ")
    if "bad" in text:
        raise RejectedError("not nice", "content")
    return completion(text.upper())


def run_map(
    folder: Path, table: Any, provider: Any = None, out: str = "out.parquet", **options: Any
) -> Any:
    (folder / "prompt.toml").write_text(PROMPT)
    config = claimscore.MapConfig(
        input=table,
        prompt=folder / "prompt.toml",
        out=folder / out,
        **{"cache_dir": folder / "cache", **options},
    )
    return claimscore.map(config, provider=provider or FakeProvider(say))


class Breaks(FakeProvider):
    """Answers so many requests, then raises."""

    def __init__(self, n: int, error: Exception) -> None:
        super().__init__(self._reply)
        self._left = n
        self._error = error

    async def _reply(self, request: Request) -> Completion:
        if not self._left:
            raise self._error
        self._left -= 1
        return await say(request)


ROWS = st.lists(
    st.one_of(st.none(), st.sampled_from(["a", "b", "bad", "bad $1", "", "é{}"]), st.text("xy")),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15)
@given(rows=ROWS, chunk_rows=st.integers(1, 5), stops=st.lists(st.integers(0, 5), max_size=3))
def test_rows_out_are_rows_in(rows: list[str | None], chunk_rows: int, stops: list[int]) -> None:
    """Whatever the rows, the chunks and the stops: every row once, in order, with its answer or
    its error, and the same bytes as without a stop."""
    table = pl.DataFrame({"text": rows}, schema={"text": pl.String})
    options = {"chunk_rows": chunk_rows, "llm": claimscore.LLMConfig(max_concurrency=2)}
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as torn:
        for stop in stops:
            try:
                run_map(Path(torn), table, Breaks(stop, StoppedEarly("stop")), **options)
            except StoppedEarly:
                continue
        last = run_map(Path(torn), table, **options)
        run_map(Path(whole), table, **options)
        files = [Path(folder) / "out.parquet" for folder in (whole, torn)]
        assert files[0].read_bytes() == files[1].read_bytes()
        found = last.frame().collect()
    assert found["text"].to_list() == rows
    expected = [None if r is None or "bad" in r or not r.strip() else r.upper() for r in rows]
    assert found["answer"].to_list() == [e if e is None else e.strip() for e in expected]
    assert found["error"].is_null().to_list() == [e is not None for e in expected]
    assert last.failed_rows == expected.count(None)


class TestStops:
    """What stops a map, and what is there afterwards."""

    TABLE = pl.DataFrame({"text": [f"row {i}" for i in range(20)]})

    def test_finished_chunks_are_not_looked_at_again(self, tmp_path: Path) -> None:
        with pytest.raises(StoppedEarly):
            run_map(
                tmp_path,
                self.TABLE,
                Breaks(13, StoppedEarly("stop")),
                chunk_rows=5,
                llm=claimscore.LLMConfig(max_concurrency=1),
            )
        parts = tmp_path / "out.parquet.parts"
        assert len(list((parts / "columns").iterdir())) == 2
        (tmp_path / "cache" / "cache.db").unlink()
        provider = FakeProvider(say)
        run_map(tmp_path, self.TABLE, provider, chunk_rows=5)
        asked = {r.messages[-1].content for r in provider.asked}
        assert asked == {f"Say row {i}" for i in range(10, 20)}

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_kill_around_the_last_rename(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            if moment == "before":
                patch.setattr(MapFiles, "write", killed)
            else:
                patch.setattr(RunDirectory, "remove", killed)
            with pytest.raises(KeyboardInterrupt):
                run_map(tmp_path, self.TABLE, chunk_rows=5)
        out = tmp_path / "out.parquet"
        assert out.exists() is (moment == "after")
        before = out.read_bytes() if out.exists() else None
        provider = FakeProvider(say)
        run_map(tmp_path, self.TABLE, provider, chunk_rows=5)
        assert provider.asked == []
        assert before in (None, out.read_bytes())
        assert not (tmp_path / "out.parquet.parts").exists()

    @pytest.mark.parametrize(("n_written", "flag"), [(3, True), (3, False), (5, True)])
    def test_a_stop_while_failed_rows_are_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_written: int, flag: bool
    ) -> None:
        """The finished file stays until a better one takes its place: while four chunks of rows are
        copied, and after the first of them is answered. Any later call goes on."""
        table = pl.DataFrame({"text": [f"{'bad' if i % 7 == 0 else 'row'} {i}" for i in range(20)]})
        run_map(tmp_path, table, chunk_rows=5)
        out = tmp_path / "out.parquet"
        before = out.read_bytes()
        write, left = RunDirectory.write_parts, iter(range(n_written))

        def stopped(*arguments: Any) -> None:
            if next(left, None) is None:
                raise StoppedEarly("the disk is full")
            write(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(RunDirectory, "write_parts", stopped)
            with pytest.raises(StoppedEarly, match="disk is full"):
                run_map(tmp_path, table, chunk_rows=5, retry_failed=True)
        assert out.read_bytes() == before
        provider = FakeProvider()
        result = run_map(tmp_path, table, provider, chunk_rows=5, retry_failed=flag)
        assert len(provider.asked) == 3
        assert result.failed_rows == 0
        assert out.read_bytes() != before
        assert not (tmp_path / "out.parquet.parts").exists()

    @pytest.mark.parametrize("table", ["records", "columns", "failures"])
    def test_a_damaged_part_is_noticed_and_made_again(self, tmp_path: Path, table: str) -> None:
        """One flipped bit is enough; answers come from the cache, and people are told."""
        rows = pl.DataFrame({"text": [*self.TABLE["text"][:-1], "bad"]}).reverse()
        whole = run_map(tmp_path, rows, out="whole.parquet", chunk_rows=5)
        one, cache = claimscore.LLMConfig(max_concurrency=1), tmp_path / "torn-cache"
        stopping = Breaks(15, StoppedEarly("stop"))
        with pytest.raises(StoppedEarly):
            run_map(tmp_path, rows, stopping, chunk_rows=5, cache_dir=cache, llm=one)
        part = sorted((tmp_path / "out.parquet.parts" / table).iterdir())[0]
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        notices, provider = set(), FakeProvider(say)
        config = claimscore.MapConfig(
            rows, tmp_path / "prompt.toml", tmp_path / "out.parquet", cache_dir=cache, chunk_rows=5
        )
        claimscore.map(config, provider=provider, on_progress=lambda p: notices.add(p.notice))
        assert (tmp_path / "out.parquet").read_bytes() == Path(whole.path).read_bytes()
        assert any(part.name in notice for notice in notices)
        again = {r.messages[-1].content for r in provider.asked} & {
            r.messages[-1].content for r in stopping.asked[:15]
        }
        assert again <= {"Say bad"}

    def test_leftovers_of_a_kill_are_removed(self, tmp_path: Path) -> None:
        ours = (".out.parquet.1f1f1f1f.tmp", ".out.failures.parquet.2e2e2e2e.tmp")
        theirs = (".other.parquet.1f1f1f1f.tmp", ".out.parquet.x.parquet.1f1f1f1f.tmp")
        for name in (*ours, *theirs):
            (tmp_path / name).touch()
        run_map(tmp_path, self.TABLE)
        assert {path.name for path in tmp_path.glob(".*")} == set(theirs)


def test_few_chunks_are_open_at_a_time(tmp_path: Path) -> None:
    """The next is opened when one is half answered, so early rows are soon to be seen."""
    table = pl.DataFrame({"text": [f"row {i}" for i in range(400)]})

    async def slowly(request: Request) -> Completion:
        await anyio.sleep(0.001)
        return await say(request)

    provider = FakeProvider(slowly)
    run_map(tmp_path, table, provider, chunk_rows=40, llm=claimscore.LLMConfig(max_concurrency=4))
    order = [int(r.messages[-1].content.rpartition(" ")[2]) for r in provider.asked]
    assert all(abs(row - position) <= 40 for position, row in enumerate(order))
    assert provider.most_busy == 4


LIST = 'name = "list"\nversion = "v1"\nuser = "List $text"\n[output]\nwords = ["string"]\n'
LOUD = 'name = "loud"\nversion = "v1"\nuser = "Say $words"\nexplode = "words"\n'


async def listed(body: Body) -> Completion:
    """The words of a text, none of one in ten; of a word the word, loud."""
    verb, _, text = body["messages"][-1]["content"].partition(" ")
    words = [] if text.endswith("0") else [f"{text} {end}" for end in "ab"]
    return Completion(json.dumps({"words": words}) if verb == "List" else text.upper(), "m")


def test_a_chain_that_is_killed_and_stopped_between_its_prompts(tmp_path: Path) -> None:
    """Two prompts over 300 rows, in chunks of 250: what is in flight at a kill is all that is paid
    twice, a changed second prompt asks nothing of the first, and the bytes are those of a map that
    nobody stopped."""
    second = tmp_path / "loud.toml"
    second.write_text(LOUD)
    served = Served(listed)
    with FakeServer(answer=served, latency_s=0.002, keep=False) as server:
        project = Project(tmp_path, server, "--prompt", str(second), n_rows=300)
        (tmp_path / "prompt.toml").write_text(LIST)
        for n_more, sign in ((270, signal.SIGKILL), (90, signal.SIGINT)):
            served.expect(n_more)
            with project.start() as process:
                assert served.reached.wait(timeout=60)
                process.send_signal(sign)
                served.expect(10_000)  # not reached
                process.wait(timeout=60)
            state = map_status(project.out)
            assert state is not None
            assert (state["running"], state["rows"]["failed"]) == (False, 0)
        assert main([*project.arguments(), "--max-requests", "450"]) == 75
        assert main(project.arguments()) == 0
        assert len(server.paid) == 300 + 2 * 270
        assert server.paid.total() - len(server.paid) <= IN_FLIGHT
        stopped, n_requests = project.out.read_bytes(), server.n_requests
        project.out = tmp_path / "whole.parquet"
        assert main(project.arguments()) == 0
        assert (project.out.read_bytes(), server.n_requests) == (stopped, n_requests)
        second.write_text(LOUD.replace("Say", "Cry"))
        assert main(project.arguments()) == 2
        project.out = tmp_path / "cry.parquet"
        assert main(project.arguments()) == 0
        assert server.n_requests == n_requests + 2 * 270
    assert pl.read_parquet(project.out).height == 30 + 2 * 270


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-prompts.md"


def test_the_page_about_several_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands, then its Python, on the file that they made."""

    async def answer(body: Body) -> Completion:
        text = body["messages"][-1]["content"]
        complaints = [text.removeprefix("Review: ")] * ("but" in text or "short" in text)
        judged = {"severity": "minor"}
        is_first = text.startswith("Review: ")
        return Completion(json.dumps({"complaints": complaints} if is_first else judged), "m")

    (tmp_path / "examples").symlink_to(PAGE.parents[2] / "examples")
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    with FakeServer(answer=answer) as server:
        for command in re.findall(r"(?m)^claimscore (map .*)", page):
            more = ("--base-url", server.base_url, "--input-price", "1", "--output-price", "1")
            assert main([*command.split(), *more]) == 0
        assert server.n_requests == 12 + 3
    capsys.readouterr()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "page", "exec"), {})
    assert "minor" in capsys.readouterr().out
