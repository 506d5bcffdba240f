"""`claimscore cache ...`: what is printed, and the exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.cache.maintenance import details, prune
from claimscore.cache.store import DATABASE, NewRow, encode_answer
from claimscore.cli import main
from tests.support.cache_samples import answer, answers, filled, key, opened, sql

Cache = Callable[..., tuple[int, str, str]]

NOW = 1_750_000_000.0
DAY = 86400.0


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
    sql(folder, "UPDATE Cache SET tag = 1e300 WHERE key = ?", key(0))
    sql(folder, "UPDATE Cache SET tag = ? WHERE key = ?", NOW, key(1))
    sql(folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(2))
    code, text, _ = cache("stats")
    first, numbers, *_ = text.splitlines()
    assert (code, first, numbers[:11]) == (0, str(folder), "20 answers ")
    assert "1 damaged answers" in text
    code, text, _ = cache("stats", "--json")
    facts = json.loads(text)
    assert (code, facts["entries"], facts["models"]) == (0, 20, {"m1": 10, "m0": 9})
    assert (facts["oldest"], facts["newest"]) == ("2025-06-15T15:06:40Z", None)
    assert facts["bytes"] >= sum(len(encode_answer(key(n), answer(n))) for n in range(3, 20))


COMMANDS = pytest.mark.parametrize(
    "command",
    [["verify"], ["prune", "--older-than", "1d"], ["export", "x.gz"], ["stats"]],
    ids=lambda command: command[0],
)


@COMMANDS
def test_no_cache_is_wrong_usage(cache: Cache, tmp_path: Path, command: list[str]):
    code, text, error = cache(*command)
    if command == ["stats"]:
        assert (code, "0 answers" in text) == (0, True)
    else:
        assert (code, "no cache here" in error) == (2, True)
    assert not (tmp_path / "cache").exists()


@COMMANDS
@pytest.mark.parametrize("damaged", ["file", "page", "key"])
def test_a_damaged_index_is_noticed(cache: Cache, folder: Path, command: list[str], damaged: str):
    content = bytearray((folder / DATABASE).read_bytes())
    name = key(1).encode()[:8]
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    at, page = next((4096 * n, p) for n, p in enumerate(pages) if p[0] == 0x0A and name in p)
    places = {"file": (0, b"no database"), "page": (at, b"\xaa" * 4096)}
    place, damage = places.get(damaged, (at + page.index(name), b"zzzz"))
    content[place : place + len(damage)] = damage
    (folder / DATABASE).write_bytes(content)
    code, text, error = cache(*command)
    assert (code, text, error.count("\n")) == (2, "", 1)
    assert f"{folder / DATABASE} is damaged" in error


def test_verify(cache: Cache, folder: Path):
    assert cache("verify") == (0, "20 answers, 0 damaged\n", "")
    sql(folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(3))
    code, text, _ = cache("verify")
    assert (code, text.splitlines()[0]) == (3, f"damaged: {key(3)}")
    code, text, _ = cache("verify", "--json")
    assert (code, json.loads(text)) == (3, {"clean": False, "entries": 20, "damaged": 1})


def test_a_cache_in_use_is_checked(tmp_path: Path):
    filled(tmp_path, 600)
    sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE key = ?", key(1))
    with opened(tmp_path) as cache, opened(tmp_path) as run:
        new = {key(1): answer(1), key(1000): answer(1000)}
        assert details(cache, on_damage=lambda _: run.put_many(new)).damaged == 1
        assert cache.get_many([*answers(600), *new]) == answers(600) | new


def aged(folder: Path, n: int) -> None:
    """Answer number k was bought k days ago."""
    with opened(folder) as cache:
        cache.put_rows(
            [NewRow(key(k), encode_answer(key(k), answer(k)), NOW - k * DAY) for k in range(n)]
        )


def test_what_is_older_goes_and_the_file_shrinks(tmp_path: Path):
    aged(tmp_path, 1200)
    sql(tmp_path, "UPDATE Cache SET tag = NULL WHERE key = ?", key(31))
    before = (tmp_path / DATABASE).stat().st_size
    with opened(tmp_path) as cache:
        assert prune(cache, 30 * DAY, dry_run=True, now=NOW) == 1168
        assert details(cache).entries == 1200
        assert prune(cache, 30 * DAY, now=NOW) == 1168
        assert list(cache.get_many(list(answers(1200)))) == list(answers(32))
        assert prune(cache, 30 * DAY, now=NOW) == 0
    assert (tmp_path / DATABASE).stat().st_size < before / 5


def test_an_answer_that_is_bought_again_meanwhile_stays(tmp_path: Path):
    aged(tmp_path, 5)
    with opened(tmp_path) as cache:
        rows = list(cache.walk())
        cache.put_many({key(2): answer(2)})
        assert cache.remove(rows) == 4
        assert cache.get_many(list(answers(5))) == {key(2): answer(2)}


def test_prune(cache: Cache, folder: Path):
    sql(folder, "UPDATE Cache SET tag = tag - 90000 WHERE rowid <= 15")
    assert cache("prune", "--older-than", "1d", "--dry-run")[1] == "15 answers would be removed\n"
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
    with opened(tmp_path / "theirs") as imported:
        assert imported.get_many(list(answers(20))) == answers(20)
    cache("export", tmp_path / "plain")
    plain = (tmp_path / "plain").read_bytes()
    (tmp_path / "plain").write_bytes(plain.replace(b"Claim 3", b"Claim 4"))
    code, _, error = cache("import", tmp_path / "plain", *theirs)
    assert (code, "plain, line 5: it, or one before or after it, is" in error) == (2, True)
    sql(folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(3))
    code, text, _ = cache("export", file)
    assert (code, "1 damaged ones left out" in text) == (3, True)
    for command in ("export", "import"):
        code, _, error = cache(command, "s3://bucket/answers.gz")
        assert (code, "name a local file" in error) == (2, True)
