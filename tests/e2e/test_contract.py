"""The contract with everybody's scripts: what was recorded is what is there.

The files in tests/e2e/contract hold it: every public name (`names`), of a session with every
command the exit codes, the keys of `--json`, the files and the columns of tables (`outcomes`), the
scores of the examples (`scores`) and what the server was asked (`requests`).
`python -m tests.e2e.record` writes them anew; a recorded value changes only in a commit that says
which decision changed it.

Scores from texts alone are compared exactly. Those with a model's numbers agree within what
`docs/` promises between machines, and exactly on the kind of machine that they were recorded on.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import claimscore
from claimscore.cli import cli
from tests.e2e.record import PLAIN, machine, recorded, score_rows
from tests.e2e.record import contract as contract_of
from tests.e2e.sessions import Session, play, private_environment
from tests.e2e.shapes import commands, differences, public_names

pytestmark = pytest.mark.timeout(600)  # the session, on a busy machine

OUTCOMES, SCORES, REQUESTS = recorded("outcomes"), recorded("scores"), recorded("requests")
AGAIN = "changed; `python -m tests.e2e.record` where a decision says so"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Every command, once."""
    folder = tmp_path_factory.mktemp("contract")
    with private_environment(folder):
        yield play()


@pytest.fixture(scope="module")
def now(session: Session) -> dict[str, Any]:
    """What is there now, through JSON and back."""
    return json.loads(json.dumps(contract_of(session)))


@pytest.mark.parametrize("name", sorted({*recorded("names"), *claimscore.__all__}))
def test_every_public_name_is_as_it_was(name: str) -> None:
    _check(recorded("names").get(name), public_names(claimscore).get(name))


def _check(before: Any, now: Any, notes: str = "") -> None:
    """Fails with a line for each difference."""
    assert before is not None, f"new: {AGAIN}"
    lines = differences(before, now)
    assert not lines, "\n".join([AGAIN, *lines, notes])


def test_the_session_has_the_recorded_cases(now: dict[str, Any]) -> None:
    for kind in ("outcomes", "scores", "requests"):
        assert set(now[kind]) == set(recorded(kind))


@pytest.mark.parametrize("case", OUTCOMES)
def test_exit_code_json_and_tables_of_a_command(case: str, session: Session, now: Any) -> None:
    _check(OUTCOMES[case], now["outcomes"][case], session.errors[case])


@pytest.mark.parametrize("run", SCORES)
def test_scores_of_the_examples(run: str, session: Session) -> None:
    """Exact where no model took part or the machine is of the kind of the recording, else within
    the tolerance between machines."""
    rows = score_rows(session.scores[run])
    is_exact = run in PLAIN or machine() == recorded("machine")["models"]
    _check(SCORES[run], rows if is_exact else _close(rows))


class _Near(float):
    """A number that equals those within 1e-4 of it, or 2.5e-5."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and float(self) == pytest.approx(
            other, rel=1e-4, abs=2.5e-5
        )

    __hash__ = float.__hash__


def _close(value: Any) -> Any:
    """The same with numbers that are compared within the tolerance."""
    if isinstance(value, dict):
        return {key: _close(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_close(item) for item in value]
    return _Near(value) if isinstance(value, float) else value


@pytest.mark.parametrize("case", REQUESTS)
def test_what_the_server_is_asked(case: str, now: Any) -> None:
    _check(REQUESTS[case], now["requests"][case])


def test_every_command_is_played(session: Session) -> None:
    played = set(session.outcomes)
    lacking = [name for name in commands(cli) if not any(c.startswith(name) for c in played)]
    assert lacking == []
