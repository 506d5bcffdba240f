"""The cache of paid answers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FOLDER,
    FileOrAddress,
    json_option,
)
from claimscore.config import user_cache_dir
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.cache.maintenance import DamagedEntry
    from claimscore.cache.store import DiskCache
    from claimscore.cache.transfer import RefusedLine


@click.group()
def cache() -> None:
    """The cache of paid answers."""


_cache_dir_option = click.option("--cache-dir", type=FOLDER, help="Else the user's cache folder.")


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


def _tell(as_json: bool, found: Mapping[str, Any], text: str) -> None:
    print(json.dumps(found) if as_json else text)


@cache.command("stats")
@_cache_dir_option
@json_option
def cache_stats(cache_dir: Path | None, as_json: bool) -> None:
    """Where the answers are kept, how many, how large, of which models."""
    from claimscore.cache.maintenance import CacheDetails, details
    from claimscore.cache.store import DiskCache
    from claimscore.pipeline.encoders.results import FOLDER as MODELS
    from claimscore.pipeline.encoders.results import stored_models

    folder = cache_dir or user_cache_dir()
    found = CacheDetails()
    if DiskCache.is_in(folder):
        with _opened_cache(folder) as store:
            found = details(store)
    models = stored_models(folder / MODELS)
    _tell(
        as_json,
        {
            "folder": str(folder),
            **found.to_json(),
            "model_results": [model.to_json() for model in models],
        },
        "\n".join([str(folder), found.text(), *(model.text() for model in models)]),
    )


@cache.command("verify")
@_cache_dir_option
@click.option("--repair", is_flag=True, help="Move what is damaged away, to be bought again.")
@json_option
def cache_verify(cache_dir: Path | None, repair: bool, as_json: bool) -> int:
    """Hash every stored answer again and check the database (status 3: damage found)."""
    from claimscore.cache.maintenance import verify

    def show(damaged: DamagedEntry) -> None:
        if not as_json:
            print(f"damaged: {damaged.key}: {damaged.reason}")

    with _opened_cache(cache_dir) as store:
        found = verify(store, repair=repair, on_damage=show)
    _tell(as_json, found.to_json(), found.text())
    return EXIT_OK if found.is_clean else EXIT_FAILED_RECORDS


@cache.command("prune")
@_cache_dir_option
@click.option("--older-than", required=True, metavar="AGE", help="30d, 12h, 90m, 2w.")
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@json_option
def cache_prune(cache_dir: Path | None, older_than: str, dry_run: bool, as_json: bool) -> None:
    """Remove the answers that were bought longer ago than AGE. Asks nothing.

    Stored results of models go where none was added to a model's for AGE.
    """
    from claimscore.cache.maintenance import Pruned, age_s, prune
    from claimscore.cache.store import DiskCache
    from claimscore.pipeline.encoders.results import FOLDER as MODELS
    from claimscore.pipeline.encoders.results import prune_models

    age = age_s(older_than)
    folder = cache_dir or user_cache_dir()
    found = Pruned(0, 0)
    if DiskCache.is_in(folder) or not (folder / MODELS).is_dir():
        with _opened_cache(cache_dir) as store:
            found = prune(store, age, dry_run=dry_run)
    models = prune_models(folder / MODELS, age, dry_run=dry_run)
    _tell(
        as_json,
        {
            **found._asdict(),
            "model_results": [model.to_json() for model in models],
            "dry_run": dry_run,
        },
        "\n".join([found.text(dry_run), *(f"gone: {model.text()}" for model in models)]),
    )


@cache.command("export")
@click.argument("file", type=FileOrAddress())
@_cache_dir_option
@json_option
def cache_export(file: Path | str, cache_dir: Path | None, as_json: bool) -> int:
    """Write all answers into FILE for a colleague; FILE.gz is compressed.

    FILE may be in an object store: s3://bucket/answers.jsonl.gz.
    """
    from claimscore.cache.transfer import export_answers

    with _opened_cache(cache_dir) as store:
        found = export_answers(store, file)
    _tell(as_json, {"file": str(file), **found._asdict()}, f"{file}: {found.text()}")
    return EXIT_FAILED_RECORDS if found.damaged else EXIT_OK


@cache.command("import")
@click.argument("file", type=FileOrAddress(exists=True))
@_cache_dir_option
@json_option
def cache_import(file: Path | str, cache_dir: Path | None, as_json: bool) -> int:
    """Add the answers of an exported FILE (or address); those that are there already stay.

    Damaged lines are refused. That an answer belongs to its key is the word of those who made
    the file: take files from people you trust.
    """
    from claimscore.cache.transfer import import_answers

    def show(line: RefusedLine) -> None:
        print(f"claimscore: {file}: line {line.number} refused: {line.reason}", file=sys.stderr)

    with _opened_cache(cache_dir, new=True) as store:
        found = import_answers(store, file, on_refused=show)
    _tell(as_json, {"file": str(file), **found._asdict()}, f"{file}: {found.text()}")
    return EXIT_OK if found.is_whole else EXIT_FAILED_RECORDS
