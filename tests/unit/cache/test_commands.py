"""`claimscore cache ...`: what is printed, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.cli import main
from tests.support.cache_samples import entries, filled, key, opened, sql

Cache = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    filled(tmp_path / "cache", 20)
    return tmp_path / "cache"


@pytest.fixture
def cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cache:
    """A call of the command: exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        words = [str(argument) for argument in arguments]
        if "--cache-dir" not in words:
            words += ["--cache-dir", str(tmp_path / "cache")]
        code = main(["cache", *words])
        return code, *capsys.readouterr()

    return call


def test_stats(cache: Cache, folder: Path):
    code, text, _ = cache("stats")
    assert text.splitlines()[:2] == [str(folder), "20 answers, 3 of them refused by their check"]
    code, text, _ = cache("stats", "--json")
    found = json.loads(text)
    assert (code, found["entries"], found["models"]) == (0, 20, {"m0": 10, "m1": 10})


def test_stats_of_a_folder_without_a_cache(cache: Cache, tmp_path: Path):
    code, text, _ = cache("stats")
    assert (code, text.splitlines()[0]) == (0, str(tmp_path / "cache"))
    assert "0 answers" in text
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "command", [["verify"], ["prune", "--older-than", "1d"], ["export", "x.gz"]], ids=lambda c: c[0]
)
def test_no_cache_is_wrong_usage(cache: Cache, tmp_path: Path, command: list[str]):
    code, _, error = cache(*command)
    assert code == 2
    assert "no cache here" in error
    assert not (tmp_path / "cache").exists()


def test_verify(cache: Cache, folder: Path):
    assert cache("verify") == (0, "20 entries, 0 damaged\n", "")
    sql(folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(3))
    code, text, _ = cache("verify")
    assert (code, f"damaged: {key(3)}: it is not in the form" in text) == (3, True)
    code, text, _ = cache("verify", "--json")
    assert (code, json.loads(text)) == (3, {"clean": False, "entries": 20, "damaged": 1})


@pytest.mark.parametrize(
    "command",
    [["stats"], ["verify"], ["prune", "--older-than", "1d"], ["export", "x.gz"]],
    ids=lambda command: command[0],
)
def test_a_damaged_database_is_refused(cache: Cache, folder: Path, command: list[str]):
    (folder / "cache.db").write_text("no database")
    code, text, error = cache(*command)
    assert (code, text, error.count("\n")) == (2, "", 1)
    assert f"{folder / 'cache.db'} is damaged (file is not a database)" in error


def test_prune(cache: Cache, folder: Path):
    sql(folder, "UPDATE Cache SET tag = tag - 90000 WHERE rowid <= 15")
    code, text, _ = cache("prune", "--older-than", "1d", "--dry-run")
    assert (code, text[:27]) == (0, "15 answers would be removed")
    code, text, _ = cache("prune", "--older-than", "1d", "--json")
    assert (code, json.loads(text)["entries"]) == (0, 15)
    assert "5 answers" in cache("stats")[1]
    code, _, error = cache("prune", "--older-than", "soon")
    assert (code, "no duration" in error) == (2, True)


def test_export_and_import(cache: Cache, folder: Path, tmp_path: Path):
    file, theirs = tmp_path / "answers.gz", ("--cache-dir", tmp_path / "theirs")
    assert cache("export", file) == (0, f"{file}: 20 answers written\n", "")
    code, text, _ = cache("import", file, *theirs)
    assert (code, text) == (0, f"{file}: 20 answers added, 0 were there already\n")
    code, text, _ = cache("import", file, *theirs, "--json")
    assert (code, json.loads(text)["already_there"]) == (0, 20)
    with opened(tmp_path / "theirs") as got:
        assert got.get_many(list(entries(20))) == entries(20)
    cache("export", tmp_path / "plain")
    plain = (tmp_path / "plain").read_bytes()
    (tmp_path / "plain").write_bytes(plain.replace(b"Claim 3", b"Claim 4"))
    code, _, error = cache("import", tmp_path / "plain", *theirs)
    assert (code, "plain, line 5: its checksum differs" in error) == (2, True)
    (tmp_path / "plain").write_bytes(b"something else")
    assert cache("import", tmp_path / "plain", *theirs)[0] == 2
    sql(folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(3))
    code, text, _ = cache("export", file)
    assert (code, "1 damaged ones left out" in text) == (3, True)
