"""Connections to object stores: the settings that polars reads, and their errors in our words.

The stores' own environment variables hold endpoint and credentials (`AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` and so on);
obstore reads them as polars does. Where no AWS key is among them and boto3 is installed,
profiles and roles are boto3's business, as they are in polars.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from claimscore.config import names_aws_key, names_azure_connection, store_allows_http
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.storage.store_address import Address

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

T = TypeVar("T")

_LOOK_S = 0.5

#: Tried again for a minute, every 5 s at least: a store that is away for longer stops the run.
RETRY: RetryConfig = {
    "max_retries": 1_000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5)},
}

_PREFIX = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_ENDPOINT = {
    "s3": "AWS_ENDPOINT_URL and AWS_DEFAULT_REGION",
    "gs": "the proxy's variables",
    "az": "AZURE_STORAGE_ACCOUNT_NAME",
    "http": "the address",
}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE with boto3 installed, or "
    "AWS_SKIP_SIGNATURE=true for a public bucket)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN)",
}


def open_store(address: Address) -> ObjectStore:
    """A connection to the bucket, container or server of an address; nothing is asked yet."""
    with store_errors(address.kind, address.root):
        if address.kind == "http":
            client = _client(allow_http=True, timeout_s=86_400)  # whole files
            return HTTPStore.from_url(address.root, client_options=client, retry_config=RETRY)
        client = _client(allow_http=store_allows_http(_PREFIX[address.kind]))
        if address.kind == "gs":
            return GCSStore(address.name, client_options=client, retry_config=RETRY)
        if address.kind == "az":
            return AzureStore.from_url(address.root, client_options=client, retry_config=RETRY)
        return S3Store(
            address.name,
            client_options=client,
            retry_config=RETRY,
            credential_provider=_boto3_credentials(address),
        )


def _client(*, allow_http: bool, timeout_s: float = 120) -> ClientConfig:
    """A request is at most a part of a few MiB, which a slow line may take."""
    return {
        "timeout": timedelta(seconds=timeout_s),
        "read_timeout": timedelta(seconds=60),
        "connect_timeout": timedelta(seconds=10),
        "allow_http": allow_http,
    }


def _boto3_credentials(address: Address) -> Any:
    """Credentials of boto3 (profiles, roles) where the environment has no key; else None."""
    if names_aws_key() or importlib.util.find_spec("boto3") is None:
        return None
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:
        raise ConfigError(
            f"{address.root}: no credentials were found; set {_CREDENTIALS['s3']}"
        ) from None
    except BotoCoreError as exc:
        raise ConfigError(f"{address.root}: {exc}") from exc


def interruptible(call: Callable[[], T]) -> T:
    """The call's result; in the main thread, an interrupt is raised at once.

    obstore hears no signals while it waits or tries again, which may be a minute: so another
    thread waits for it. The request that was under way at the interrupt may still be done.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as exc:  # raised in the waiting thread
            answer.set_exception(exc)

    threading.Thread(target=work, name="object store", daemon=True).start()
    while not wait((answer,), timeout=_LOOK_S).done:
        pass  # a signal that came just before the wait began is heard now
    return answer.result()


#: A store's answers to a condition, which the caller handles.
_ANSWERS = (exceptions.AlreadyExistsError, exceptions.PreconditionError)


@contextlib.contextmanager
def store_errors(kind: str, address: str, *, worked: bool = False) -> Iterator[None]:
    """Map a store's error to one of ours; `FileNotFoundError` only where the bucket is there.

    The message of a store is read for its codes and never shown: it may contain a signed address
    or a request's headers. `worked` means that this process has written there: a refusal is then
    no mistake of the command, and stops it like an unreachable store.
    """
    try:
        yield
    except _ANSWERS:
        raise
    except (exceptions.BaseError, FileNotFoundError) as exc:
        raise _translated(kind, address, exc, worked) from None


def _translated(kind: str, address: str, error: Exception, worked: bool) -> Exception:
    text = str(error)
    code = _found(r"<Code>([A-Za-z]{1,60})</Code>", text)
    status = int(_found(r"\bstatus(?: code)?: ([1-5]\d\d)\b", text) or 0)
    if code in ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName"):
        return no_bucket(address, worked)
    if code == "RequestTimeTooSkewed":
        return StoppedEarly(
            f"{address}: the store's clock and this machine's differ by too much; set this "
            "machine's, then run the same command again"
        )
    if status in (405, 501) or isinstance(error, exceptions.NotSupportedError):
        code = f" ({status})" if status else ""
        return ConfigError(f"{address}: the server does not support what is asked of it{code}")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(2, "No such object", address)
    if "Content-Length Header missing" in text:
        return ConfigError(
            f"{address}: the server does not say how long the file is; download it first"
        )
    if kind == "az" and "MissingAccount" in text and names_azure_connection():
        return ConfigError(
            f"{address}: AZURE_STORAGE_CONNECTION_STRING is not read; set its parts: "
            "AccountName as AZURE_STORAGE_ACCOUNT_NAME, AccountKey as AZURE_STORAGE_ACCOUNT_KEY"
        )
    if "token request" in text or "MissingAccount" in text or "redential" in code:
        return ConfigError(f"{address}: no credentials were found; set {_CREDENTIALS[kind]}")
    if "BadScheme" in text:
        return ConfigError(
            f"{address}: the store's own address is plain http; allow it with "
            f"{_PREFIX[kind]}_ALLOW_HTTP=true"
        )
    if status == 301 or code in ("AuthorizationHeaderMalformed", "PermanentRedirect"):
        return ConfigError(f"{address}: the bucket is in another region; set AWS_DEFAULT_REGION")
    refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(error, refusals) or status in (401, 403) or code == "ExpiredToken":
        detail = f" ({code or status})" if code or status else ""
        if kind == "http":
            return ConfigError(
                f"{address}: access is denied{detail}; only pages that need no login can be read"
            )
        if worked:
            return StoppedEarly(
                f"{address}: access is denied{detail}, which it was not before: the credentials "
                "have expired, rights were taken away, or this machine's clock was changed; "
                f"renew {_CREDENTIALS[kind]}, then run the same command again"
            )
        return ConfigError(
            f"{address}: access is denied{detail}; check {_CREDENTIALS[kind]} and the rights"
        )
    if status >= 500 or status in (408, 429):
        return StoppedEarly(
            f"{address}: the store answers {status}, after several tries; "
            "run the same command again when it is well"
        )
    if "kind: " in text or "error sending request" in text or "error decoding" in text:
        return StoppedEarly(
            f"{address}: {_host(text)} was not reached after several tries; check the network and "
            f"{_ENDPOINT[kind]}, then run the same command again"
        )
    if status:
        return ConfigError(f"{address}: the store refused the request ({code or status})")
    return ConfigError(f"{address}: {_first_words(text)}")


def no_bucket(address: str, worked: bool) -> Exception:
    """There is no such bucket, or none any more."""
    if worked:
        return StoppedEarly(
            f"{address}: the bucket is gone; with a new one the same command begins again "
            "(answers are in the cache)"
        )
    return ConfigError(f"{address}: there is no such bucket; check its name")


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _host(text: str) -> str:
    """The server that a message names, without user name, path and query."""
    found = re.search(r"https?://[^\s,\"]+", text)
    parts = urlsplit(found[0]) if found else None
    if parts is None or not parts.hostname:
        return "the store"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _first_words(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return re.sub(r"\w+://\S+", "…", first)[:200]
