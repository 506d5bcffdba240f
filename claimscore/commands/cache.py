"""The cache of paid answers."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FILE,
    NEW_FILE,
    Duration,
    Group,
    json_option,
    own_option,
    setting_option,
)
from claimscore.config import RunConfig, user_cache_dir
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.cache.store import DiskCache


@click.group(cls=Group)
def cache() -> None:
    """The cache of paid answers."""


_cache_dir_option = setting_option(RunConfig, "cache_dir")


@contextlib.contextmanager
def _opened_cache(cache_dir: Path | None, *, new: bool = False) -> Iterator[DiskCache]:
    """The cache in the folder, which must have one unless it may be `new`."""
    from claimscore.cache.store import DiskCache

    folder = cache_dir or user_cache_dir()
    if not new and not DiskCache.is_in(folder):
        raise ConfigError(f"{folder}: no cache here; name its folder with --cache-dir")
    store = DiskCache(folder, on_notice=lambda text: print(f"claimscore: {text}", file=sys.stderr))
    try:
        yield store
    finally:
        store.close()


def _tell(as_json: bool, facts: Mapping[str, Any], text: str) -> None:
    print(json.dumps(facts) if as_json else text)


@cache.command("stats")
@_cache_dir_option
@json_option
def cache_stats(cache_dir: Path | None, as_json: bool) -> None:
    """Show the folder of the answers, their number, size and models."""
    from claimscore.cache.maintenance import CacheDetails, details
    from claimscore.cache.store import DiskCache
    from claimscore.pipeline.encoders.results import open_store

    folder = cache_dir or user_cache_dir()
    numbers = CacheDetails()
    if DiskCache.is_in(folder):
        with _opened_cache(folder) as store:
            numbers = details(store)
    n_results, n_bytes = open_store(folder).size()
    facts = {
        "folder": str(folder),
        "entries": numbers.entries,
        "damaged": numbers.damaged,
        "bytes": numbers.n_bytes,
        "oldest": _iso(numbers.oldest),
        "newest": _iso(numbers.newest),
        "models": dict(numbers.models.most_common()),
        "model_results": {"rows": n_results, "bytes": n_bytes},
    }
    lines = [
        str(folder),
        f"{numbers.entries:,} answers in {numbers.n_bytes / 1e6:,.1f} MB",
    ]
    if numbers.oldest is not None:
        lines.append(f"bought from {facts['oldest']} to {facts['newest']}")
    lines += [f"{n:,} by {model}" for model, n in numbers.models.most_common()]
    if numbers.damaged:
        lines.append(f"{numbers.damaged:,} damaged answers; `claimscore cache verify` names them")
    lines.append(f"{n_results:,} results of models, {n_bytes / 1e6:,.1f} MB")
    _tell(as_json, facts, "\n".join(lines))


def _iso(time_s: float | None) -> str | None:
    """A time as `2026-11-20T03:00:00Z`; None where it is none that a calendar has."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if time_s is not None:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))
    return None


@cache.command("verify")
@_cache_dir_option
@json_option
def cache_verify(cache_dir: Path | None, as_json: bool) -> int:
    """Check every stored answer and the database; exit status 3 means damaged answers."""
    from claimscore.cache.maintenance import details

    def show(key: str) -> None:
        if not as_json:
            print(f"damaged: {key}")

    with _opened_cache(cache_dir) as store:
        numbers = details(store, on_damage=show)
    n, damaged = numbers.entries, numbers.damaged
    advice = "; these are asked again where they are needed" if damaged else ""
    _tell(
        as_json,
        {"clean": not damaged, "entries": n, "damaged": damaged},
        f"{n:,} answers, {damaged:,} damaged{advice}",
    )
    return EXIT_FAILED_RECORDS if damaged else EXIT_OK


@cache.command("prune")
@_cache_dir_option
@own_option(
    "--older-than",
    "age_s",
    required=True,
    type=Duration(),
    metavar="DURATION",
    help="Least age of the answers to remove: 30d, 12h, 90m, 2w, or seconds.",
)
@own_option("--dry-run", is_flag=True, help="Print the answers to remove; remove nothing.")
@json_option
def cache_prune(cache_dir: Path | None, age_s: float, dry_run: bool, as_json: bool) -> None:
    """Remove answers older than a given age, without a question."""
    from claimscore.cache.maintenance import prune

    with _opened_cache(cache_dir) as store:
        n_pruned = prune(store, age_s, dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    _tell(as_json, {"entries": n_pruned, "dry_run": dry_run}, f"{n_pruned:,} answers {verb}")


@cache.command("export")
@click.argument("file", type=NEW_FILE, help="JSON lines to write; FILE.gz is compressed.")
@_cache_dir_option
@json_option
def cache_export(file: Path, cache_dir: Path | None, as_json: bool) -> int:
    """Write all answers to a file, for another machine."""
    from claimscore.cache.maintenance import export_answers

    with _opened_cache(cache_dir) as store:
        entries, damaged = export_answers(store, file)
    left_out = f", {damaged:,} damaged ones left out" if damaged else ""
    _tell(
        as_json,
        {"file": str(file), "entries": entries, "damaged": damaged},
        f"{file}: {entries:,} answers written{left_out}",
    )
    return EXIT_FAILED_RECORDS if damaged else EXIT_OK


@cache.command("import")
@click.argument("file", type=FILE, help="An exported file.")
@_cache_dir_option
@json_option
def cache_import(file: Path, cache_dir: Path | None, as_json: bool) -> None:
    """Add the answers of an exported file; answers that are here already stay.

    A damaged line ends the import. Import only files from people you trust: whether an answer
    belongs to its question cannot be checked.
    """
    from claimscore.cache.maintenance import import_answers

    with _opened_cache(cache_dir, new=True) as store:
        added, there = import_answers(store, file)
    _tell(
        as_json,
        {"file": str(file), "added": added, "already_there": there},
        f"{file}: {added:,} answers added, {there:,} were there already",
    )
