"""obstore and polars ask the same server, as the same account, by the same variables."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.storage import open_storage

#: The key of Azurite's own account, which is public.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class _Recording(http.server.BaseHTTPRequestHandler):
    """Refuses, and remembers what was asked by whom."""

    def _refuse(self) -> None:
        who = self.headers.get("Authorization", "").partition(":")[0]
        self.server.asked.append((self.path.partition("?")[0], who))  # type: ignore[attr-defined]
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _refuse

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server in the place of Azure's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Recording) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
        monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
        monkeypatch.setenv(
            "AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/devstoreaccount1"
        )
        yield server
        server.shutdown()


@pytest.mark.parametrize("root", ["az://box", "abfss://box@devstoreaccount1.dfs.core.windows.net"])
def test_an_azure_server_of_ones_own(azure: Any, root: str) -> None:
    folder = open_storage(f"{root}/run")
    with pytest.raises(ConfigError, match="access is denied"):
        folder.read("x.parquet")
    with pytest.raises(PermissionError):
        pl.scan_parquet(str(folder.address("x.parquet")), glob=False).collect()
    who = "SharedKey devstoreaccount1"
    assert len(azure.asked) >= 2
    assert set(azure.asked) == {("/devstoreaccount1/box/run/x.parquet", who)}


def test_a_connection_string_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=a;AccountKey={AZURITE_KEY}")
    with pytest.raises(ConfigError, match="CONNECTION_STRING is not read; set its parts") as error:
        open_storage("az://box/run")
    assert AZURITE_KEY not in str(error.value)
