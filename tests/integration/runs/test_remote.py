"""A run directory at an address: what is brought, what is sent, and who may write."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from claimscore.cache.store import DiskCache
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.runs import RunDirectory
from claimscore.runs.remote import Objects, RemoteCopy, local_folder
from tests.support.engine_doubles import completion
from tests.support.object_store import KEY, SECRET, aws_environment
from tests.support.run_tables import claims

Machine = Callable[[str], None]
SETTINGS = {"seed": 0, "records": {"count": 4}, "chunk_records": 1}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Goes to the machine of a name; the first one is "one"."""

    def go(name: str) -> None:
        monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / name))

    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("claimscore.runs.remote.DEAD_S", 0.0)  # a killed machine is dead at once
    go("one")
    return go


@pytest.fixture
def where(s3: str) -> str:
    return f"{s3}/runs/a"


def step(directory: RunDirectory, chunk: int, text: str) -> None:
    directory.write_parts(chunk, "decompose", {"claims": claims(text)})


def copy_of(directory: RunDirectory) -> RemoteCopy:
    assert directory.remote is not None
    return directory.remote


def killed(where: str, *texts: str, sent: int = 0) -> None:
    """A run that wrote a chunk for each text, sent the first ones, and was killed."""
    directory = RunDirectory(where).__enter__()
    directory.check_settings(SETTINGS)
    for chunk, text in enumerate(texts):
        if chunk == sent:
            copy_of(directory).send()
        step(directory, chunk, text)
    if sent == len(texts):
        copy_of(directory).send()
    copy_of(directory)._ended.set()
    directory._folder.release()


def chunks(where: str) -> list[int]:
    return RunDirectory.reader(where).manifest.chunks_with("decompose")


def test_a_finished_run_is_the_same_on_any_machine(where: str, machine: Machine) -> None:
    told: list[str] = []
    with RunDirectory(where, told.append) as run:
        run.check_settings(SETTINGS)
        step(run, 0, "a")
        run.event("started")
    assert str(local_folder(where)) in told[0]
    assert run.name == where
    names = set(Objects(where).names())
    assert {"run.toml", "claims/part-000000-decompose.parquet", ".state/manifest.log"} <= names
    assert ".state/writer.json" not in names
    machine("two")
    there = RunDirectory.reader(where)
    assert there.read("claims", 0).equals(claims("a"))
    assert not there.is_locked
    assert there.settings == SETTINGS
    assert (there.path / "events.jsonl").exists()


def test_a_reader_sees_the_last_send_of_a_run_at_work(
    where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimscore.runs.remote.DEAD_S", 300.0)
    with RunDirectory(where) as run:
        run.check_settings(SETTINGS)
        step(run, 0, "a")
        copy_of(run).send()
        step(run, 1, "b")
        assert chunks(where) == [0, 1], "this machine sees its own folder"
        machine("two")
        assert chunks(where) == [0]
        assert RunDirectory.reader(where).is_locked
        run.invalidate({"decompose": [0]})
        step(run, 0, "other")
        copy_of(run).send()
        assert RunDirectory.reader(where).read("claims", 0).equals(claims("other"))


def test_a_second_machine_is_refused_until_the_first_is_dead(
    where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunDirectory(where) as one:
        one.check_settings(SETTINGS)
        step(one, 0, "a")
        copy_of(one).send()
        machine("two")
        monkeypatch.setattr("claimscore.runs.remote.DEAD_S", 300.0)
        with pytest.raises(ConfigError, match=r"in use by \S+, which sent last 0 s ago; .* 300 s"):
            RunDirectory(where).__enter__()
        monkeypatch.setattr("claimscore.runs.remote.DEAD_S", 0.0)
        with RunDirectory(where) as two:
            step(two, 1, "b")
        with pytest.raises(StoppedEarly, match="another machine has taken this run over"):
            copy_of(one).send()
        with pytest.raises(StoppedEarly, match="taken this run over; what this one did is in"):
            step(one, 2, "c")
        one._tell = pytest.fail if chunks(where) != [0, 1] else lambda _: None
        with pytest.raises(StoppedEarly):
            copy_of(one).__exit__(None, None, None)
    assert chunks(where) == [0, 1]


def test_a_take_over_within_a_send_is_not_taken_for_ours(
    where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other machine, whose manifest has no step, writes after ours was sent."""
    run = RunDirectory(where).__enter__()
    run.check_settings(SETTINGS)
    step(run, 0, "a")
    put = Objects.put

    def with_other(self: Objects, name: str, content: bytes | Path) -> None:
        put(self, name, content)
        if name == "run.toml":
            put(self, ".state/manifest.log", b"")

    monkeypatch.setattr(Objects, "put", with_other)
    copy_of(run).send()
    copy_of(run)._ended.set()
    run._folder.release()
    assert chunks(where) == []


def test_local_work_that_was_never_sent_is_kept(where: str, machine: Machine) -> None:
    """On the machine that was killed; another one goes on from the last send."""
    killed(where, "a", "b", sent=1)
    with RunDirectory(where) as run:
        assert run.read("claims", 1).equals(claims("b"))
    machine("two")
    assert chunks(where) == [0, 1]


def test_where_both_went_on_the_local_folder_is_to_be_moved(where: str, machine: Machine) -> None:
    killed(where, "a", "b", sent=1)
    machine("two")
    with RunDirectory(where) as two:
        assert two.manifest.chunks_with("decompose") == [0]
        step(two, 1, "B")
    machine("one")
    folder = local_folder(where)
    for use in (RunDirectory.reader, lambda there: RunDirectory(there).__enter__()):
        with pytest.raises(ConfigError, match=f"{folder} has work that was never sent; move that"):
            use(where)
    folder.rename(folder.with_name("moved"))
    with RunDirectory(where) as one:
        assert one.read("claims", 1).equals(claims("B"))


def test_a_run_that_was_removed_there_begins_again(where: str, machine: Machine) -> None:
    killed(where, "a", sent=1)
    machine("two")
    with RunDirectory(where) as two:
        two.remove()
    machine("one")
    with RunDirectory(where) as one:
        assert not one.manifest.all_steps()
        assert not one.settings


def test_spending_of_another_machine_is_not_forgotten(where: str, machine: Machine) -> None:
    """Though it finished no step."""
    killed(where, "a", sent=1)
    machine("two")
    with RunDirectory(where) as two:
        (two.state / "spend.jsonl").write_bytes(b'{"settle":[],"requests":7}\n')
    machine("one")
    with RunDirectory(where) as one:
        assert b'"requests":7' in (one.state / "spend.jsonl").read_bytes()


def test_a_part_that_is_gone_is_undone_work(where: str, machine: Machine) -> None:
    killed(where, "a", "b", sent=2)
    Objects(where).delete(["claims/part-000001-decompose.parquet"])
    machine("two")
    with pytest.raises(ConfigError, match=r"part-000001-decompose\.parquet: missing"):
        RunDirectory.reader(where)
    with RunDirectory(where) as two:
        assert [damage.part.chunk for damage in two.damaged()] == [1]
        two.invalidate({"decompose": [1]})


def test_names_of_others_are_left_alone(where: str, machine: Machine, tmp_path: Path) -> None:
    killed(where, "a", sent=1)
    others = ["../escape", "notes.txt", ".state/batches/x.json", "claims/x.parquet", ".lock"]
    objects = Objects(where)
    for name in others[1:]:
        objects.put(name, b"theirs")
    objects.put(".state/writer.json", b'{"host": "\\u001b[2J", "time": 1e999, "token": []}')
    machine("two")
    with RunDirectory(where) as two:
        files = {path.relative_to(two.path).as_posix() for path in two.path.rglob("*")}
        assert files.isdisjoint(set(others) - {".lock"})
        copy_of(two).remove()
    assert set(Objects(where).names()) == set(others[1:])
    assert not (tmp_path / "two/escape").exists()


def test_answers_and_batch_jobs_go_along(where: str, machine: Machine, tmp_path: Path) -> None:
    key = "a" * 64
    job = tmp_path / f"one-cache/batches/{'0' * 16}/{'1' * 32}.json"
    job.parent.mkdir(parents=True)
    job.write_text("{}")
    run = RunDirectory(where).__enter__()
    run.check_settings(SETTINGS)
    copy = copy_of(run)
    cache = DiskCache(tmp_path / "one-cache", on_kept=copy.add_answers)
    cache.put_many({key: completion("hi")})
    copy.send_job(job)
    assert ".state/manifest.log" in Objects(where).names(), "what is new goes before it"
    assert f".state/batches/{'0' * 16}/{job.name}" in Objects(where).names(), "before the job"
    copy.send()
    copy._ended.set()
    run._folder.release()
    machine("two")
    with RunDirectory(where) as two:
        for name in ("two-cache", "another", "another"):
            there = DiskCache(tmp_path / name)
            copy_of(two).import_into(there)
            assert there.get_many([key]).keys() == {key}
        assert not copy_of(two).jobs("1" * 16), "of another server"
        (taken,) = copy_of(two).jobs("0" * 16)
        taken.unlink()
        copy_of(two).send_job(taken)
    assert not [name for name in Objects(where).names() if "batches" in name]


def test_a_store_that_is_away_for_a_while_stops_nothing(
    where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next send tries again. At the end it is one line, and the folder has all."""
    with RunDirectory(where) as run:
        run.check_settings(SETTINGS)
        put = Objects.put
        monkeypatch.setattr(Objects, "put", _away)
        step(run, 0, "a")
        with pytest.raises(StoppedEarly, match="not reached"):
            copy_of(run).send()
        monkeypatch.setattr(Objects, "put", put)
        copy_of(run).send()
        step(run, 1, "b")
        machine("two")
        assert chunks(where) == [0]
        machine("one")
        monkeypatch.setattr(Objects, "put", _away)
        with pytest.raises(StoppedEarly, match=r"not reached; .*has all of the run: run the same"):
            run.__exit__(None, None, None)
        monkeypatch.setattr(Objects, "put", put)
        run.__enter__()
    machine("two")
    assert chunks(where) == [0, 1]


def _away(*_: object) -> None:
    raise StoppedEarly("s3://bucket: it was not reached")


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Answers everything with the server's `answer`: a status and an S3 error code."""

    def _refuse(self) -> None:
        status, code = self.server.answer  # type: ignore[attr-defined]
        body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = _refuse

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store that refuses; few and quick retries."""
    monkeypatch.setattr("claimscore.runs.remote.RETRY", {"max_retries": 1})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in aws_environment(f"http://127.0.0.1:{server.server_port}").items():
            monkeypatch.setenv(name, value)
        yield server
        server.shutdown()


def refusal(address: str) -> ClaimscoreError:
    with pytest.raises(ClaimscoreError) as refused:
        Objects(address).put("x", b"")
    text = str(refused.value)
    assert SECRET not in text
    assert KEY not in text
    assert "\n" not in text
    return refused.value


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (403, "AccessDenied", ConfigError, "access is denied"),
        (400, "ExpiredToken", ConfigError, "access is denied"),
        (404, "NoSuchBucket", ConfigError, "there is no such bucket"),
        (400, "AuthorizationHeaderMalformed", ConfigError, "AWS_DEFAULT_REGION"),
        (503, "SlowDown", StoppedEarly, "not reached after several tries"),
    ],
)
def test_a_refusal_is_one_line(
    refusing: Any, status: int, code: str, kind: type[Exception], message: str
) -> None:
    refusing.answer = (status, code)
    error = refusal("s3://some-bucket/run")
    assert type(error) is kind
    assert str(error).startswith("s3://some-bucket/run: ")
    assert message in str(error)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (f"s3://{KEY}:{SECRET}@bucket/x", "without user name"),
        (f"az://box/x?sig={SECRET}", "without user name"),
        ("https://host/x", "no such kind of address"),
        ("s3:///x", "no address in a store"),
        ("gs://bucket/../b", "no address in a store"),
    ],
)
def test_an_address_that_cannot_be(address: str, message: str) -> None:
    assert message in str(refusal(address))


def test_a_profile_is_for_boto3(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(ConfigError, match=f"{s3}: no credentials were found"):
        Objects(s3)
    keys = f"aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "credentials").write_text(f"[team]\n{keys}")
    monkeypatch.setenv("AWS_PROFILE", "team")
    Objects(s3).put("x", json.dumps("by profile").encode())
    assert Objects(s3).get("x") == b'"by profile"'
