"""A run directory is data: one that others have prepared sends, runs, reads and removes nothing."""

import errno
import json
import os
import tomllib
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.runs.folder import MANIFEST
from claimscore.runs.parts import Checksum
from claimscore.runs.settings_file import HEADER, write_settings
from tests.fake_server import FakeServer
from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl

POOLS = ["The pool is warm.", "The pool is small.", "The pool is closed."]
RECORDS = [
    {"id": str(n), "source": f"{pool} The bar is loud.", "summary": pool, "references": POOLS}
    for n, pool in enumerate(POOLS)
]


@pytest.fixture
def out(tmp_path: Path, cli: Command) -> Path:
    """A finished run that asked nothing."""
    records = write_jsonl(tmp_path / "in.jsonl", RECORDS)
    assert cli("run", records, "--out", tmp_path / "run", "--metrics", "rouge-1").status == 0
    return tmp_path / "run"


def again(out: Path, cli: Command, *more: object) -> Any:
    return cli("run", out.parent / "in.jsonl", "--out", out, "--metrics", "rouge-1", *more)


def refused(out: Path, cli: Command, *command: object) -> str:
    """The one line of a command that is refused."""
    result = cli(*command or ("status", out))
    assert result.status == 2, result.err
    assert result.err.count("\n") == 1
    return result.err


def change_settings(out: Path, **changes: Any) -> None:
    """Put other settings into run.toml, with the checksum that goes with them."""
    settings = tomllib.loads((out / "run.toml").read_text())
    write_settings(out, settings | changes)


# Addresses, headers, keys


def test_score_asks_the_server_of_its_command_line_alone(
    tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that name another server are shown, with the options that give them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-mine")
    records, out = write_jsonl(tmp_path / "in.jsonl", RECORDS), tmp_path / "run"
    with FakeServer(keep=True) as theirs, FakeServer(keep=True) as mine:
        server = ("--llm", "openai:m", "--base-url", theirs.base_url, "--max-concurrency", 2)
        call = ("run", records, "--out", out, "--metrics", "", "--tasks", "decompose", *server)
        leaking = ("--header", "x-leak=AWS_SECRET_ACCESS_KEY")
        assert cli(*call, "--max-requests", 1, *leaking).status == 75
        asked = theirs.n_requests
        more = ("score", out, "--metrics", "claim-support-share")
        said = refused(out, cli, *more)
        assert "--llm of decompose: was " in said
        assert f'server (--base-url) of decompose: was "{theirs.base_url}"' in said
        said = refused(out, cli, *more, "--llm", "openai:m", "--base-url", mine.base_url)
        assert f'server (--base-url) of decompose: was "{theirs.base_url}"' in said
        assert (theirs.n_requests, mine.n_requests) == (asked, 0)
        assert cli(*more, *server).status == 0
        assert theirs.n_requests > asked
        assert "x-leak" not in theirs.headers[-1]


def test_models_are_those_of_the_command_line(out: Path, cli: Command) -> None:
    """Also where work that is missing needs one: the line names the option."""
    additive = tomllib.loads((out / "run.toml").read_text())["additive"]
    with FakeServer() as server:
        for name in (f"tei:{server.base_url}", "stranger/model", "/srv/their/model"):
            nli = {"name": name, "dtype": "float32", "revision": "r"}
            change_settings(out, additive=additive | {"nli": nli})
            assert cli("score", out, "--metrics", "rouge-2").status == 0
            result = cli("score", out, "--metrics", "mnli-doc")
            assert (result.status, result.out) == (2, "")
            assert f'--nli: was "{name}", now "embedded"' in result.err
        assert server.n_requests == 0


def test_a_model_that_score_refused_gives_way(out: Path, tmp_path: Path, cli: Command) -> None:
    wrong = tmp_path / "no-weights"
    wrong.mkdir()
    (wrong / "config.json").write_text('{"model_type": "bert"}')
    more = ("score", out, "--metrics", "mnli-doc")
    assert "no weights" in cli(*more, "--nli", wrong, "--offline").err
    assert cli("status", out, "--json").json()["complete"]
    assert cli(*more).status == 0
    scored = tomllib.loads((out / "run.toml").read_text())["additive"]["metrics"]
    assert scored == ["rouge-1", "mnli-doc"]


def test_what_needs_records_waits_for_them(out: Path, cli: Command) -> None:
    """Another program emptied the manifest, or a run began anew and was killed."""
    (out / MANIFEST).write_bytes(b"")
    assert "its records are not read yet" in cli("status", out).out
    looks = ("report", out), ("status", out, "--record", "0")
    for command in (*looks, ("score", out, "--metrics", "rouge-2")):
        assert "its records are not read yet; run it first" in refused(out, cli, *command)


def test_a_report_on_a_full_disk_is_named_by_its_name(
    out: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    result = cli("report", out)
    assert (result.status, f"{out}/report.html: the disk is full" in result.err) == (75, True)


def test_a_setting_of_the_run_is_kept(tmp_path: Path, cli: Command) -> None:
    """What names no server, model or file: granularity, units and seed need not be said again."""
    records, out = write_jsonl(tmp_path / "in.jsonl", RECORDS), tmp_path / "run"
    cut = ("--units", "sentences", "--seed", 7, "--tasks", "decompose")
    assert cli("run", records, "--out", out, "--metrics", "rouge-1", *cut).status == 0
    found = cli("score", out, "--metrics", "claim-support-share", "--json").json()
    assert "|units:sentences|" in found["metrics"]["claim-support-share"]["signature"]
    assert tomllib.loads((out / "run.toml").read_text())["seed"] == 7


# Code, prompts, caches


def test_files_that_it_names_are_not_read(
    out: Path, tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by commands that compute, and not by those that look."""
    ran = tmp_path / "ran"
    (out / "notes.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (out / "decompose").mkdir()
    os.mkfifo(out / "decompose" / "v9.toml")  # reading it would never end
    plan = json.loads((out / ".state" / "plan.json").read_text())
    named = {
        "metric_files": [str(out / "notes.py")],
        "cache_dir": str(out),
        "prompts_dir": str(out),
    }
    named |= {"prompts": {"decompose": str(out / "decompose" / "v9.toml")}}
    for name in ("plan.json", "options.json"):
        (out / ".state" / name).write_text(json.dumps(plan | named))
    stored = tomllib.loads((out / "run.toml").read_text())["additive"]
    prompt = {"name": "decompose", "version": "../../run/decompose/v9", "digest": "0"}
    llm = {"provider": "openai", "namespace": "n", "model": "m"}
    texts = {"out": str(tmp_path / "moved"), "cache_dir": str(out)}
    more = {"prompts": {"decompose": prompt}, "llm": llm, "texts": texts}
    change_settings(out, additive=stored | more)
    for command in ("status", "report", "label", "score"):
        more = {"label": ("--n", 1, "--out", tmp_path / "l.csv"), "score": ("--metrics", "rouge-2")}
        cli(command, out, *more.get(command, ()))
    assert cli("compare", out, out).status == 0
    assert not ran.exists()
    assert not (tmp_path / "moved").exists()
    assert not list(out.glob("*.db"))


@pytest.mark.parametrize("metric", ["summac-conv:weights=w.pt", "ner-overlap:model=w.pt"])
def test_a_file_in_the_name_of_a_metric_is_not_read(metric: str, out: Path, cli: Command) -> None:
    os.mkfifo(out / "w.pt")
    metric = metric.replace("w.pt", str(out / "w.pt"))
    stored = tomllib.loads((out / "run.toml").read_text())["additive"]
    change_settings(out, additive=stored | {"metrics": ["rouge-1", metric]})
    said = refused(out, cli, "score", out, "--metrics", "rouge-2")
    assert f"has scores of the metric {metric}: name it with --metrics too" in said
    assert f"has scores of the metric {metric}" in again(out, cli).err


def test_its_terminal_codes_are_not_printed(out: Path, cli: Command) -> None:
    evil = "\x1b]0;title\x07\x1b[31mred\u202e"
    path = out / "summary.json"
    summary = json.loads(path.read_text())
    facts = summary["metrics"]["rouge-1"]
    facts |= {"verdict": evil, "reasons": {evil: 1}, "worst": [{"id": evil, "value": 0.0}]}
    summary |= {"metrics": {f"rouge-1{evil}": facts}, "notices": [evil]}
    path.write_text(json.dumps(summary))
    change_settings(out, seed=evil)
    for result in (cli("status", out), cli("score", out, "--metrics", "rouge-2")):
        assert "red" in result.out + result.err
        assert not {"\x1b", "\x07", "\u202e"} & {*result.out, *result.err}


@pytest.mark.parametrize("value", [{}, [], "x", -1, None], ids=str)
@pytest.mark.parametrize("name", ["mean", "low", "n", "reasons", "worst", "range", "signature"])
def test_a_summary_that_is_none(name: str, value: Any, out: Path, cli: Command) -> None:
    """What looks shows it or says in one line that it is damaged."""
    path = out / "summary.json"
    summary = json.loads(path.read_text())
    summary["metrics"]["rouge-1"][name] = value
    path.write_text(json.dumps(summary))
    for command in (("status", out), ("report", out)):
        result = cli(*command)
        assert result.status == 0 or (result.status, result.err.count("\n")) == (2, 1)


# Files of others


def test_files_of_others_stay(out: Path, cli: Command) -> None:
    """Only what is called as a part of a table of ours, and does not count, is removed."""
    kept = ("export/part-00000-abc.snappy.parquet", "export/part-000000-decompose-a.parquet")
    kept += (
        "claims/part-of-my-thesis.txt",
        "claims/part-1.parquet",
        "claims/more/part-000000.parquet",
    )
    for name in (*kept, "claims/part-000000-decompose-a.parquet"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    assert again(out, cli).status == 0
    assert [name for name in kept if not (out / name).exists()] == []
    assert not (out / "claims" / "part-000000-decompose-a.parquet").exists()


@pytest.mark.parametrize(
    "name", ["facts", "events.jsonl", MANIFEST, ".lock", ".state", ".state/now.tmp", "run.toml"]
)
def test_no_link_is_followed(name: str, out: Path, tmp_path: Path, cli: Command) -> None:
    """Neither by what writes nor by what reads."""
    place, target = out / name, tmp_path / "theirs"
    if place.exists():
        place.rename(target)
    elif name == "facts":
        target.mkdir()
        (target / "part-000000-facts-a.parquet").write_text("valuable")
    else:
        target.write_text("valuable")
    place.symlink_to(target)
    before = [path.read_bytes() for path in sorted(target.parent.rglob("*")) if path.is_file()]
    for command in (("status", out), ("score", out, "--metrics", "rouge-2")):
        assert f"{place}: a link, a pipe or a device" in refused(out, cli, *command)
    assert "a link, a pipe or a device" in again(out, cli).err
    assert before == [p.read_bytes() for p in sorted(target.parent.rglob("*")) if p.is_file()]


# Damage by hand


@pytest.mark.parametrize(
    "entry",
    [
        {"step": "x", "chunk": 10**12, "parts": {}},
        {"step": "x", "chunk": -3, "parts": {}},
        {"step": "x", "chunk": 1 << 24, "parts": {}},
        {"step": "x", "chunk": 1.5, "parts": {}},
        {"step": "x", "chunk": 0},
        {"step": "x", "chunk": 0, "parts": 3},
        {"step": "/../../x", "chunk": 0, "parts": {"claims": [1, 1, 1]}},
        {"step": "x" * 300, "chunk": 0, "parts": {}},
        {"step": "x", "chunk": 0, "parts": {"../../up": [1, 1, 1]}},
        {"step": "x", "chunk": 0, "parts": {"/etc": [1, 1, 1]}},
        {"step": "x", "chunk": 0, "parts": {"claims": [10**30, 1, 1]}},
        {"step": "x", "chunk": 0, "parts": {"claims": [-1, 1, 1]}},
        {"step": "x", "chunk": 0, "parts": {"claims": [1, 1, ""]}},
        {"step": "x", "chunk": 0, "parts": {"claims": [1, 1]}},
        {"undone": {"x": [0.5]}},
        {"step": ["x"], "chunk": 0, "parts": {}},
        ["x"],
        b"[" * 100_000,
    ],
    ids=lambda entry: str(entry)[:80],
)
def test_a_line_of_the_manifest(entry: Any, out: Path, cli: Command) -> None:
    """It names parts of our tables in chunks that a run can have, or it is damaged."""
    body = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    with (out / MANIFEST).open("ab") as log:
        log.write(b"%08x %b\n" % (zlib.crc32(body), body))
    assert "line 2: damaged" in refused(out, cli)
    assert again(out, cli).status == 0


NESTED = b"[" * 100_000
TOML = HEADER.encode() + b"x = " + b"[" * 5000 + b"]" * 5000 + b"\n"
PLANS: list[Any] = [[], {}, {"input": "x", "tasks": 3, "passes": 3}, "x"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("summary.json", NESTED, "summary.json: damaged", id="summary"),
        pytest.param(".state/plan.json", NESTED, "plan.json: damaged", id="plan"),
        pytest.param(".state/spend.jsonl", NESTED, "spend.jsonl, line 1: damaged", id="ledger"),
        pytest.param(".state/now.json", NESTED, None, id="now"),
        pytest.param(
            *("run.toml", TOML + b"# CRC-32 of the lines above: %08x" % zlib.crc32(TOML)),
            "run.toml: not what was written",
            id="settings",
        ),
        *((".state/plan.json", json.dumps(plan).encode(), "") for plan in PLANS),
    ],
)
def test_a_file_that_no_run_wrote(
    name: str, content: bytes, message: str | None, out: Path, cli: Command
) -> None:
    """Nested too deep, or of other values; where damage counts as no file, so does this."""
    (out / name).write_bytes(content + b"\n")
    if message is not None:
        assert message in refused(out, cli)
    if name == ".state/plan.json":
        refused(out, cli, "score", out, "--metrics", "rouge-2")
    result = cli("report", out)
    assert result.status == 0 or (result.status, result.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"records": {"count": 10**16, "digest": "0"}},
        {"records": {"count": -3, "digest": "0"}},
        {"records": {"count": "x", "digest": "0"}},
        {"records": {}},
        {"records": 3},
        {"chunk_records": 0},
        {"chunk_records": "x"},
        {"seed": "x"},
        {"additive": 3},
        {"additive": {"metrics": [3]}},
        {"additive": {"support": []}},
        {"additive": {"nli": {"name": 3}}},
    ],
    ids=str,
)
def test_settings_that_no_run_has(changes: dict[str, Any], out: Path, cli: Command) -> None:
    """One line; never an endless loop or a traceback."""
    change_settings(out, **changes)
    refused(out, cli, "score", out, "--metrics", "rouge-2")
    assert cli("status", out).status in (0, 2)
    assert cli("report", out).status in (0, 2)


@pytest.mark.parametrize(
    "line",
    [
        {"settle": [], "requests": -1000, "pico_usd": -(10**18)},
        {"settle": [], "requests": 10**400},
        {"reserve": 1, "prompt_tokens": 1, "completion_tokens": 1, "pico_usd": -5},
        {"settle": [], "pico_usd": "-5"},
    ],
    ids=str,
)
def test_a_ledger_that_makes_room_under_a_cap(line: Any, out: Path, cli: Command) -> None:
    """Spending of less than nothing would be spent again."""
    (out / ".state" / "spend.jsonl").write_text(json.dumps(line) + "\n")
    assert "spend.jsonl, line 1: damaged" in refused(out, cli)


def put(out: Path, name: str, rows: pl.DataFrame) -> None:
    """Put other rows into a part of a table, with the checksum that goes with them."""
    (part,) = (out / name).glob("*.parquet")
    rows.write_parquet(part)
    lines = b""
    for line in (out / MANIFEST).read_bytes().splitlines():
        entry = json.loads(line.partition(b" ")[2])
        if name in entry.get("parts", {}):
            entry["parts"][name][1:] = Checksum.of(part)
        body = json.dumps(entry, separators=(",", ":")).encode()
        lines += b"%08x %b\n" % (zlib.crc32(body), body)
    (out / MANIFEST).write_bytes(lines)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("claims", lambda rows: rows.with_columns(text=pl.lit(None, pl.String))),
        ("claims", lambda rows: rows.drop("side")),
        ("claims", lambda rows: rows.clear()),
        ("records", lambda rows: rows.with_columns(id=pl.lit(None, pl.String))),
        ("records", lambda rows: rows.with_columns(summary=pl.lit(3))),
        ("records", lambda rows: rows.drop("id")),
    ],
)
def test_a_part_that_no_step_writes(table: str, change: Any, tmp_path: Path, cli: Command) -> None:
    """One line says it, or its step is done again; never a traceback."""
    records, out = write_jsonl(tmp_path / "in.jsonl", RECORDS), tmp_path / "run"
    call = ("run", records, "--out", out, "--metrics", "rouge-1", "--tasks", "decompose")
    assert cli(*call).status == 0
    (part,) = (out / table).glob("*.parquet")
    put(out, table, change(pl.read_parquet(part)))
    look, more = ("status", out, "--record", "0"), ("--metrics", "rouge-2,claim-support-share")
    for command in (look, ("report", out), ("score", out, *more), (*call, *more)):
        result = cli(*command)
        last = result.err.splitlines()[-1:]
        assert result.status == 0 or (result.status == 2 and "error" in last[0]), result.err
