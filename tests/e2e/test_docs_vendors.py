"""The commands of the page of other vendors reach a server that speaks the vendor's protocol."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from claimscore.pipeline.llm.providers.base import PROVIDERS, provider_class
from tests.fake_server import FakeServer
from tests.support.command_line import Command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "other-vendors.md").read_text(encoding="utf-8")
KEY = "sk-of-the-vendor"
COMMANDS = re.findall(r"(?m)^claimscore (run examples/(?:\\\n|.)*)$", PAGE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    """Each vendor's address is the fake server's; only requests with the key are answered."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with FakeServer(key=KEY) as server:
        for vendor in map(provider_class, PROVIDERS):
            for variable in filter(
                None, (vendor.key_variable, "GEMINI_API_KEY", "MISTRAL_API_KEY")
            ):
                monkeypatch.setenv(variable, KEY)
        for variable in ("ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
            monkeypatch.setenv(variable, server.base_url)
        here = re.sub(r"(?<=--base-url )\S+", server.base_url, command)
        result = cli(*shlex.split(here.replace("\\\n", "")))
        assert result.status == 0, result.err
        assert len(server.paid) == server.n_requests == 48


def test_every_vendor_is_on_the_page() -> None:
    vendors = [family for family in PROVIDERS if not provider_class(family).is_local]
    assert all(f"`{family}:" in PAGE for family in vendors)
    assert len(COMMANDS) == 3
