"""The same examples on every machine, no deadline that a busy one would miss, nobody's files."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from claimscore.pipeline import encoders
from tests.support.command_line import Command, Result, claimscore
from tests.support.object_store import s3, s3_server

__all__ = ["s3", "s3_server"]  # fixtures that any test may ask for

#: Variables that name folders of the user's which a command may write into.
_FOLDERS = (
    *(f"XDG_{kind}_HOME" for kind in ("CACHE", "CONFIG", "DATA", "STATE")),
    *("HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME"),
    *("CLAIMSCORE_CACHE_DIR", "CLAIMSCORE_STATE_DIR"),
)


def _leave_home() -> Path | None:
    """Give the session a home folder of its own, for fixtures of any scope, for its workers and
    subprocesses; None in a worker, which has it already. pip and git keep their settings."""
    if "CLAIMSCORE_TESTS_HOME" in os.environ:
        return None
    home, own = Path.home(), Path(tempfile.mkdtemp(prefix="claimscore-home-"))
    kept = {
        "PIP_CACHE_DIR": home / ".cache/pip",
        "PIP_CONFIG_FILE": home / ".config/pip/pip.conf",
        "GIT_CONFIG_GLOBAL": home / ".gitconfig",
    }
    for name, path in kept.items():
        if path.exists():
            os.environ.setdefault(name, str(path))
    for name in _FOLDERS:
        os.environ.pop(name, None)
    os.environ["HOME"] = os.environ["CLAIMSCORE_TESTS_HOME"] = str(own)
    return own


_HOME = _leave_home()


def pytest_unconfigure() -> None:
    """The session's home folder goes with it."""
    if _HOME is not None:
        shutil.rmtree(_HOME, ignore_errors=True)
        del os.environ["CLAIMSCORE_TESTS_HOME"]


# The models of the tests are small: more threads wait for one another, or for other workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("claimscore", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("claimscore")

#: Files that wait for other processes for minutes: begun last they would be waited for alone.
FIRST = (
    "tests/e2e/test_report_browser.py",
    "tests/e2e/test_map_stops.py",
    "tests/e2e/test_main_job.py",
    "tests/integration/pipeline/test_model_stage.py",
    "tests/e2e/test_docs_tutorial.py",
    "tests/e2e/test_contract.py",
    "tests/e2e/test_wheel.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; all others as they come."""
    ranks = {file: rank for rank, file in enumerate(FIRST)}
    root = Path(__file__).parent.parent
    items.sort(key=lambda item: ranks.get(item.path.relative_to(root).as_posix(), len(FIRST)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--check-tiers`: fail where fewer tests passed in a tier than tests/tiers.toml says."""
    parser.addoption("--check-tiers", action="store_true", help=pytest_addoption.__doc__)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `--check-tiers` too few passed tests are a failure; skipped ones have not run."""
    config = session.config
    if config.getoption("--check-tiers") and not hasattr(config, "workerinput"):
        minimums = tomllib.loads((Path(__file__).parent / "tiers.toml").read_text("utf-8"))
        passed = _passed_by_tier(config)
        if any(passed[tier] < minimum for tier, minimum in minimums["passed"].items()):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many tests passed in each tier."""
    passed = _passed_by_tier(config)
    minimums: dict[str, int] = {}
    if config.getoption("--check-tiers"):
        minimums = tomllib.loads((Path(__file__).parent / "tiers.toml").read_text("utf-8"))[
            "passed"
        ]
    for tier in sorted({*passed, *minimums}):
        least = minimums.get(tier, 0)
        few = f", but at least {least} must: see tests/tiers.toml" if passed[tier] < least else ""
        terminalreporter.write_line(f"{tier}: {passed[tier]} passed{few}", red=bool(few))


def _passed_by_tier(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("passed", []) if reporter is not None else []
    return Counter(report.nodeid.split("/")[1] for report in reports if report.when == "call")


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the only loop that the package uses."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_state() -> Iterator[None]:
    """What processes share (learnt limits, answers) is one test's alone, its subprocesses included;
    nor does a test know the user's server and key."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAIMSCORE_STATE_DIR", folder)
        patch.setenv("CLAIMSCORE_CACHE_DIR", f"{folder}/cache")
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            patch.delenv(name, raising=False)
        # Nor do numbers depend on the machine: `auto` is float32.
        patch.setattr(encoders, "multiplies_faster", lambda device: False)
        yield


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    """A test that sets the number of threads sets it for itself."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `claimscore` with some arguments: exit status, standard output, standard error.

    Only what the command itself prints is in the result.
    """

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        return Result(claimscore(*arguments), *capsys.readouterr())

    return call
