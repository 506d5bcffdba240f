"""`claimscore prompts check` and `map` with prompts of a folder, on the fake server."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.cli import main
from tests.fake_server import FakeServer
from tests.unit.prompts.test_commands import mine

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_check_asks_a_language_model_once_and_keeps_the_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = mine(tmp_path, 'name = "paraphrase"\ninherits = "v2"\n[settings]\nsamples = 5\n')
    call = ["prompts", "check", "--llm", "openai:m", "--base-url"]
    with FakeServer() as server:
        for _ in range(2):
            assert main([*call, server.base_url, str(path)]) == 0
            assert "[answer of openai:m]" in capsys.readouterr().out
            assert server.n_requests == 1
    with FakeServer(text="no") as server:
        assert main([*call, server.base_url, "facts"]) == 2
        assert "problem: parse: answer: Invalid JSON" in "".join(capsys.readouterr())


def test_map_takes_a_prompt_of_the_folder_by_name(tmp_path: Path) -> None:
    """And refuses what is for the tasks of a run."""
    mine(tmp_path, (EXAMPLES / "tone.toml").read_text(), "prompts/tone/v1.toml")
    mine(tmp_path, 'inherits = "v1"\n[settings]\ntemperature = 0.3\n', "prompts/tone/v2.toml")
    mine(tmp_path, 'inherits = "v1"\n[settings]\nmodel = "x"\n', "prompts/tone/v3.toml")
    with FakeServer(text='{"tone": "positive", "confidence": 1}') as server:
        call = ["map", EXAMPLES / "reviews.csv", "--prompts-dir", tmp_path / "prompts", "--quiet"]
        call += ["--llm", "openai:m", "--base-url", server.base_url]

        def code(prompt: str) -> int:
            out = tmp_path / f"{prompt.replace('=', '-')}.parquet"
            return main([*map(str, call), "--prompt", prompt, "--out", str(out)])

        assert code("tone") == 0
        first = server.n_requests
        assert code("tone=v2") == 0
        assert {body["temperature"] for body in server.bodies} == {0.0, 0.3}
        assert code("tone=v3") == code("tone=v4") == 2
        assert server.n_requests == 2 * first
