"""`prune` and `stats`: what is old goes, what is there is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.cache.entry import Entry, encode_entry
from claimscore.cache.store import DiskCache
from claimscore.cache.table import NewRow
from claimscore.cache.upkeep import age_s, details, prune
from claimscore.errors import ConfigError
from claimscore.types import Completion
from tests.cache.samples import entries, entry, filled, key, opened, sql

NOW = 1_750_000_000.0
DAY = 86400.0


def aged(folder: Path, n: int) -> None:
    """Answer number k was bought k days ago."""
    with opened(folder) as cache:
        cache.put_rows(
            [
                NewRow(key(number), NOW - number * DAY, encode_entry(key(number), entry(number)))
                for number in range(n)
            ]
        )


def days_left(cache: DiskCache, n: int) -> list[int]:
    found = cache.get_many([key(number) for number in range(n)])
    return [number for number in range(n) if key(number) in found]


def test_what_is_older_goes(tmp_path: Path):
    """Entries and bytes are told, the others stay; doing it again finds nothing."""
    aged(tmp_path, 1200)
    n_bytes = sum(len(encode_entry(key(n), entry(n))) for n in range(31, 1200))
    with opened(tmp_path) as cache:
        found = prune(cache, 30 * DAY, now=NOW)
        assert found == (1169, n_bytes)
        assert days_left(cache, 1200) == list(range(31))
        assert cache.stats().entries == 31
        assert prune(cache, 30 * DAY, now=NOW).entries == 0


def test_a_dry_run_removes_nothing(tmp_path: Path):
    """It says what the real one will say."""
    aged(tmp_path, 40)
    with opened(tmp_path) as cache:
        dry = prune(cache, 30 * DAY, dry_run=True, now=NOW)
        assert "would be removed" in dry.text(dry_run=True)
        assert days_left(cache, 40) == list(range(40))
        assert prune(cache, 30 * DAY, now=NOW) == dry


def test_a_clock_that_was_wrong_removes_nothing(tmp_path: Path):
    """Answers from the future, and those without a time, are not old."""
    filled(tmp_path, 3)
    sql(tmp_path, "UPDATE Cache SET store_time = NULL WHERE key = ?", key(1))
    with opened(tmp_path) as cache:
        assert prune(cache, 0.0, now=NOW - 1e9).entries == 0
        assert prune(cache, 1.0, now=1e12).entries == 2
        assert days_left(cache, 3) == [1]


def test_the_file_shrinks(tmp_path: Path):
    """Removing old answers makes room on the disk."""
    aged(tmp_path, 600)
    before = (tmp_path / "cache.db").stat().st_size
    with opened(tmp_path) as cache:
        prune(cache, 30 * DAY, now=NOW)
    assert (tmp_path / "cache.db").stat().st_size < before / 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2_592_000), ("12h", 43_200), ("90m", 5400), ("2w", 1_209_600), (" 1.5 h ", 5400)],
)
def test_ages(text: str, seconds: float):
    """As people write them."""
    assert age_s(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h", "nan", "1e9d"])
def test_what_is_no_age(text: str):
    """Said with examples; nothing is removed on a guess."""
    with pytest.raises(ConfigError, match="30d, 12h"):
        age_s(text)


def test_what_a_cache_holds(tmp_path: Path):
    """Counted from the rows, not from a counter."""
    aged(tmp_path, 50)
    with opened(tmp_path) as cache:
        found = details(cache)
    assert (found.format, found.entries, found.rejected) == (1, 50, 8)
    assert found.n_bytes == sum(len(encode_entry(key(n), entry(n))) for n in range(50))
    assert found.file_bytes >= found.n_bytes
    assert (found.oldest, found.newest) == (NOW - 49 * DAY, NOW)
    assert found.models == {"m0": 25, "m1": 25}
    assert found.to_json()["newest"] == "2025-06-15T15:06:40Z"


def test_strange_models_and_rows_are_counted(tmp_path: Path):
    """Quotes in a model's name, names without end, and rows that are not ours."""
    models = ['a "b" \\ c', "é\ud800", "x" * 1000]
    with opened(tmp_path) as cache:
        cache.put_many({key(n): Entry(Completion("t", model)) for n, model in enumerate(models)})
        sql(tmp_path, "INSERT INTO Cache (key, raw, mode, value) VALUES ('x', 1, 1, NULL)")
        sql(tmp_path, "INSERT INTO Cache (key, raw, mode, value) VALUES ('y', 1, 1, 'text')")
        found = details(cache)
    assert found.models == {models[0]: 1, models[1]: 1, "?": 3}
    assert found.entries == 5


def test_rejected_is_what_the_entry_says(tmp_path: Path):
    """Not what its text or its reason quotes."""
    quoted = '"rejected":null}}'
    with opened(tmp_path) as cache:
        cache.put_many(
            {key(1): Entry(Completion(quoted, "m"), quoted), key(2): Entry(Completion(quoted, "m"))}
        )
        assert details(cache).rejected == 1


def test_an_empty_cache(tmp_path: Path):
    """Zeros, and no times."""
    with opened(tmp_path) as cache:
        found = details(cache)
    assert (found.entries, found.oldest, found.models) == (0, None, {})
    assert found.text().startswith("0 answers")


def test_a_time_that_no_calendar_has(tmp_path: Path):
    """A damaged time of purchase is not shown, and does not end the listing."""
    filled(tmp_path, 2)
    sql(tmp_path, "UPDATE Cache SET store_time = 1e300 WHERE key = ?", key(1))
    with opened(tmp_path) as cache:
        assert details(cache).to_json()["newest"] is None
        assert entries(2) == cache.get_many(list(entries(2)))
