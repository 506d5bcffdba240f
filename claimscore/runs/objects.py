"""Objects below an address of a store, by obstore, which no other module uses.

Credentials and endpoints come from the variables that polars reads. Each request has a time limit,
and is tried again for half a minute.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimscore.atomic import atomic_file, os_errors
from claimscore.config import names_aws_key, store_allows_http
from claimscore.errors import ConfigError
from claimscore.object_stores import check_store, first_words, interruptible, store_error

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

RETRY: RetryConfig = {"max_retries": 8, "retry_timeout": timedelta(seconds=30)}
CLIENT: ClientConfig = {
    "timeout": timedelta(seconds=60),
    "connect_timeout": timedelta(seconds=10),
}

#: How the names of a store's environment variables begin.
_PREFIX = {"s3": "AWS", "gs": "GOOGLE"}


class Objects:
    """The objects below an address, by their names. Threads may share it.

    Raises `ConfigError` for an address that cannot be, a missing bucket and a refusal, and
    `StoppedEarly` for a store that is not reached.
    """

    def __init__(self, address: str) -> None:
        check_store(address)
        self.address = address
        with self._errors():
            self._store: Any = _connect(address)

    def get(self, name: str) -> bytes | None:
        """The content; None where there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._errors():
            return interruptible(lambda: bytes(self._store.get(name).bytes()))
        return None

    def fetch(self, name: str, path: Path) -> bool:
        """Bring an object to a path, whole or not at all; False where there is none. A file of its
        size and time is taken for the object."""

        def fetch() -> None:
            reply = self._store.get(name)
            size, at = reply.meta["size"], reply.meta["last_modified"].timestamp()
            if path.exists() and (path.stat().st_size, path.stat().st_mtime) == (size, at):
                return
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(path) as file:
                for block in reply.stream():
                    file.write(block)
            os.utime(path, (at, at))

        with contextlib.suppress(FileNotFoundError), self._errors():
            interruptible(fetch)
            return True
        return False

    def put(self, name: str, content: bytes | Path, mode: Any = "overwrite") -> None:
        """Replace an object, wholly or not at all."""
        with contextlib.ExitStack() as stack:
            source: Any = content
            if isinstance(content, Path):
                with os_errors(content):
                    source = stack.enter_context(content.open("rb"))
            try:
                with self._errors():
                    interruptible(lambda: self._store.put(name, source, mode=mode))
            except FileNotFoundError:
                raise ConfigError(f"{self.address}: there is no such bucket") from None

    def create(self, name: str, content: bytes) -> bool:
        """Make an object, of several processes at once in one; whether that is this one."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self.put(name, content, "create")
        except AlreadyExistsError:
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; a missing one is no error."""
        with contextlib.suppress(FileNotFoundError), self._errors():
            if names:
                interruptible(lambda: self._store.delete(list(names)))

    def names(self) -> list[str]:
        """The names of all objects."""
        with self._errors():
            return [meta["path"] for meta in interruptible(lambda: self._store.list().collect())]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """A store's errors as ours; `FileNotFoundError` only where its bucket is there."""
        from obstore import exceptions

        try:
            yield
        except exceptions.AlreadyExistsError:
            raise
        except (exceptions.BaseError, FileNotFoundError) as exc:
            if isinstance(exc, FileNotFoundError) and "NoSuchBucket" not in str(exc):
                raise
            unknown = ConfigError(f"{self.address}: {first_words(exc)}")
            raise store_error(self.address, exc) or unknown from None


def _connect(address: str) -> Any:
    from obstore.store import from_url

    scheme = address.partition("://")[0]
    client = CLIENT | {"allow_http": store_allows_http(_PREFIX.get(scheme, "AZURE"))}
    options: dict[str, Any] = {"client_options": client, "retry_config": RETRY}
    if scheme == "s3" and not names_aws_key() and importlib.util.find_spec("boto3"):
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            options["credential_provider"] = Boto3CredentialProvider()
        except (ValueError, BotoCoreError) as exc:
            why = exc if isinstance(exc, BotoCoreError) else "no credentials were found"
            raise ConfigError(f"{address}: {why}; see docs/reference/object-stores.md") from None
    return from_url(address, **options)
