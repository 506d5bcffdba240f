"""Whether the tests notice when a central guarantee is broken: `python scripts/mutations.py`.

Each mutation is one small change of the source that breaks one guarantee, with the tests that
have to fail then. It is made in a temporary copy of the tree, never in place. The script prints a
table and exits with 1 where the tests pass all the same, or where a mutation's text is not found
exactly once: a change that moves or rewrites that code moves its mutation along.
`python scripts/mutations.py cap pickle` runs those whose names have one of these words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """In `file` the text `old`, found exactly once, becomes `new`; then `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = (
    # Two processes that want the same answer both buy it.
    Mutation(
        name="lock dropped",
        file="claimscore/file_lock.py",
        old="return exc.errno not in _TAKEN",
        new="return True",
        tests=("tests/integration/cache/test_sharing.py",),
    ),
    # --max-cost is not looked at.
    Mutation(
        name="cap ignored",
        file="claimscore/pipeline/llm/budget/cap.py",
        old="if self._cap is None or worst + self.ledger.held_pico + pico_usd <= self._cap:",
        new="if self._cap is None or self._cap >= 0:",
        tests=("tests/unit/pipeline/llm/budget/test_cap.py",),
    ),
    # A damaged answer in the cache is served.
    Mutation(
        name="checksum skipped",
        file="claimscore/cache/store.py",
        old="    if framed(key, body) != value:\n",
        new='    if not value.endswith(body + b"}"):\n',
        tests=("tests/unit/cache/test_store.py",),
    ),
    # A request that always fails is sent far more often than it may be.
    Mutation(
        name="retry unbounded",
        file="claimscore/pipeline/llm/endpoints.py",
        old="return used >= self._dispatcher.max_attempts",
        new="return self.sent > 100",
        tests=("tests/unit/pipeline/llm/test_endpoints.py",),
    ),
    # Another model is given the answers of this one.
    Mutation(
        name="model left out of the key",
        file="claimscore/cache/key.py",
        old='        "model": request.model,\n',
        new="",
        tests=("tests/unit/cache/test_key.py",),
    ),
    # Scores do not stand in the order of the input.
    Mutation(
        name="order lost",
        file="claimscore/pipeline/scoring.py",
        old="for of_record in scores for score in of_record]",
        new="for of_record in reversed(scores) for score in of_record]",
        tests=("tests/unit/pipeline/test_scoring.py",),
    ),
    # A score that could not be computed is a score of zero.
    Mutation(
        name="null as 0",
        file="claimscore/pipeline/scoring.py",
        old='"value": [score.value for score in in_order],',
        new='"value": [score.value or 0.0 for score in in_order],',
        tests=(
            "tests/e2e/test_main_job.py::TestOnAServer::test_rubbish_answers_are_failure_rows_and_exit_3",
        ),
    ),
    # Entailment and contradiction are taken for each other.
    Mutation(
        name="label order swapped",
        file="claimscore/pipeline/encoders/protocols.py",
        old='return named["entailment"], named["neutral"], named["contradiction"]',
        new='return named["contradiction"], named["neutral"], named["entailment"]',
        tests=("tests/integration/pipeline/encoders/test_nli.py",),
    ),
    # An input's markup becomes a part of the report.
    Mutation(
        name="escape removed",
        file="claimscore/report/html_page.py",
        old="autoescape=True,",
        new="autoescape=False,",
        tests=("tests/unit/report/test_report_page.py",),
    ),
    # A value in the cache may run code when it is read.
    Mutation(
        name="pickle allowed",
        file="claimscore/cache/store.py",
        old='return value if mode == diskcache.core.MODE_RAW and isinstance(value, bytes) else b""',
        new="return super().fetch(mode, filename, value, read)",
        tests=("tests/unit/cache/test_store.py",),
    ),
)


def main(wanted: list[str]) -> int:
    """Try all mutations, or those with one of the words in their names; 0 if all are noticed."""
    chosen = [m for m in MUTATIONS if not wanted or any(word in m.name for word in wanted)]
    if not chosen:
        print(f"known: {', '.join(m.name for m in MUTATIONS)}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=_ignored, symlinks=True)
        tests = tuple(
            dict.fromkeys(test for m in chosen for test in m.tests if _is_there(tree, test))
        )
        if _run_tests(tree, tests):
            print(f"the tests fail without any mutation: {' '.join(tests)}")
            return 1
        verdicts = [(mutation, *_verdict(tree, mutation)) for mutation in chosen]
    width = max(len(mutation.name) for mutation in chosen)
    for mutation, is_good, text in verdicts:
        print(f"{mutation.name:<{width}}  {'ok ' if is_good else 'BAD'}  {text}")
    return 0 if all(is_good for _, is_good, _ in verdicts) else 1


def _ignored(folder: str, names: list[str]) -> set[str]:
    """What is no source; `runs` is left out at the top alone, for a package has this name."""
    ignored = shutil.ignore_patterns(".git", ".venv*", "node_modules", "site", "*_cache")
    return {*ignored(folder, names), *({"runs"} if Path(folder) == ROOT else ())}


def misfit(tree: Path, mutation: Mutation) -> str:
    """Why a mutation does not fit the code any more; empty where it does."""
    path = tree / mutation.file
    found = path.read_text(encoding="utf-8").count(mutation.old) if path.exists() else 0
    if found != 1:
        return f"{mutation.file} has its text {found} times"
    return ", ".join(f"no {test}" for test in mutation.tests if not _is_there(tree, test))


def _verdict(tree: Path, mutation: Mutation) -> tuple[bool, str]:
    """Whether the tests notice it, and what to tell about it."""
    why = misfit(tree, mutation)
    if why:
        return False, f"move this mutation to the new code: {why}"
    path = tree / mutation.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    began = time.monotonic()
    try:
        code = _run_tests(tree, mutation.tests)
    finally:
        path.write_text(source, encoding="utf-8")
    seconds = time.monotonic() - began
    if code == 1:
        return True, f"noticed by {', '.join(mutation.tests)} in {seconds:.0f} s"
    told = "they pass all the same" if code == 0 else f"pytest ends with {code}"
    return False, f"{', '.join(mutation.tests)}: {told}"


def _is_there(tree: Path, test: str) -> bool:
    return (tree / test.partition("::")[0]).exists()


def _run_tests(tree: Path, tests: tuple[str, ...]) -> int:
    """pytest's exit code in the copy; the first failure is enough."""
    options = ("-q", "-x", "-p", "no:cacheprovider", "--timeout", "60")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
