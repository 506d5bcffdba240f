"""`map` with prompts of a folder, on the fake server."""

from pathlib import Path

from claimscore.cli import main
from tests.fake_server import FakeServer

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_map_takes_a_prompt_of_the_folder_by_name(tmp_path: Path) -> None:
    """And refuses what is for the tasks of a run."""
    tone, folder = (EXAMPLES / "tone.toml").read_text(), tmp_path / "prompts" / "tone"
    folder.mkdir(parents=True)
    (folder / "v1.toml").write_text(tone)
    v2 = tone.replace('version = "v1"', 'version = "v2"')
    (folder / "v2.toml").write_text(v2.replace("temperature = 0.0", "temperature = 0.3"))
    v3 = tone.replace('version = "v1"', 'version = "v3"')
    (folder / "v3.toml").write_text(v3.replace("[settings]", '[settings]\nmodel = "x"'))
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
