"""Options as users type them: every command's help, lists, durations, flags, files of settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from claimscore.cli import cli as command_tree
from claimscore.commands.options import PANELS, PanelOption, SettingsSource
from claimscore.config import RunConfig
from tests.support.command_line import Command


def every_command(group: click.Group, path: str = "claimscore") -> Iterator[Any]:
    """Each command of the tree that is no group."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")
        else:
            yield pytest.param(command, id=f"{path} {name}")


COMMANDS = [*every_command(command_tree)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_sentence(command: click.Command) -> None:
    assert re.match(r"[A-Z]", command.help or "")
    for param in command.get_params(click.Context(command)):
        assert re.fullmatch(r"(?s)[A-Zeo].{8,}\.", param.help or ""), (param.name, param.help)
        if isinstance(param, PanelOption):
            assert param.panel in PANELS, param.name


@pytest.mark.parametrize("command", COMMANDS)
def test_one_name_has_one_meaning(command: click.Command) -> None:
    options = {
        max(param.opts, key=len): param
        for param in command.get_params(click.Context(command))
        if isinstance(param, click.Option)
    }
    shorts = {"--out": "-o", "--metrics": "-m", "--llm": "-l", "--quiet": "-q", "--verbose": "-v"}
    for name, param in options.items():
        assert shorts.get(name) in (None, *param.opts), name
        assert not name.startswith("--no-"), name
        if name.endswith(("-s", "older-than")):
            assert param.type.name == "duration", name
    assert "--json" not in options or options["--json"].is_flag


def test_the_help_of_run_fits_two_screens(cli: Command) -> None:
    """80 columns, 45 lines each; the rare options are in --help-all only, and all are accepted."""
    shown, everything = (cli("run", name).out for name in ("--help", "--help-all"))
    lines = shown.splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 80
    places = [shown.index(f"\n{panel}:") for panel in PANELS if f"\n{panel}:" in shown]
    assert places == sorted(places)
    assert "--input-price" not in shown
    assert "--input-price" in everything


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        pytest.param(("run", "x", "--metrcs", "ds"), "--metrics", id="option"),
        pytest.param(("rum", "x"), "run", id="command"),
        pytest.param(("run", "x", "-o", "d", "-m", "rouge-11"), "rouge-1", id="metric"),
        pytest.param(("run", "x", "-o", "d", "--set", "input-prce=2"), "input-price", id="setting"),
        pytest.param(("run", "x", "-o", "d", "--engine", "locl"), "'local'", id="choice"),
    ],
)
def test_a_typing_error_is_answered_with_the_near_word(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], near: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text('{"summary_a": "a", "summary_b": "b"}\n')
    status, out, err = cli(*typed)
    assert (status, out) == (2, "")
    assert near in err
    assert "Traceback" not in err


def built(*arguments: str) -> RunConfig:
    """The settings of `run` for these arguments."""
    command = command_tree.commands["run"]
    with command.make_context("run", ["pairs.jsonl", "-o", "d", *arguments]) as ctx:
        config: RunConfig = SettingsSource(RunConfig).build(ctx.params)
    return config


def test_without_options_the_settings_are_those_of_python() -> None:
    assert built() == RunConfig("pairs.jsonl", "d")


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("12h", 43_200), ("2w", 1_209_600), (" 1.5 h ", 5400)],
)
def test_durations(typed: str, seconds: float) -> None:
    assert built("--timeout-s", typed).llm.timeout_s == seconds
    assert built("--set", f"timeout_s={typed}").llm.timeout_s == seconds


@pytest.mark.parametrize("typed", ["", "d", "-1d", "-5", "1y", "1d2h", "nan", "1e9d"])
def test_what_is_no_duration_is_refused(cli: Command, typed: str) -> None:
    status, _, err = cli("cache", "prune", f"--older-than={typed}")
    assert (status, "30d or 2w" in err) == (2, True)


def test_an_option_of_two_parts_is_set_in_both() -> None:
    """A server that is down may be that of the language model or that of an encoder."""
    config = built("--max-outage-s", "5", "--allow-http-key", "--offline")
    for part in (config.llm, config.encoders):
        assert (part.max_outage_s, part.allow_http_key) == (5, True)
    assert not built("--no-model-store").model_store


def test_typed_options_go_before_set_and_set_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        'rpm = 1\ntpm = 1\nseed = 1\nmetrics = ["ds"]\nmax_outage_s = "1h"\noffline = true\n'
        '[prompt]\ndecompose = "v1"\n'
    )
    config = built("--rpm", "3", "--set", "tpm=2", "--set", "rpm=2", "--config", str(file))
    assert (config.llm.rpm, config.llm.tpm, config.seed, config.metrics) == (3, 2, 1, ("ds",))
    assert (config.llm.max_outage_s, config.encoders.offline) == (3600, True)
    assert not built("--set", "offline=false", "--config", str(file)).encoders.offline
    assert config.prompts == {"decompose": "v1"}
    several = ("--set", "base-url=http://a/v1", "--set", "base-url=http://b/v1")
    assert built(*several).llm.base_url == ("http://a/v1", "http://b/v1")


@pytest.fixture
def call(tmp_path: Path) -> tuple[object, ...]:
    """A run that asks nobody."""
    records = tmp_path / "r.jsonl"
    records.write_text('{"summary": "It is warm.", "references": ["It is cold."]}\n')
    return ("run", records, "-o", tmp_path / "run", "-m", "rouge-1", "--json")


def test_the_report_of_the_steps(
    cli: Command, monkeypatch: pytest.MonkeyPatch, call: tuple[object, ...]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    status, out, err = cli(*call, "-v", "--quiet")
    assert (status, bool(json.loads(out))) == (0, True)
    assert re.search(r"^claimscore: \S+ \S+ phase: scoring$", err, re.M)
    assert "sk-secret" not in err
    assert "phase" not in cli(*call).err


@pytest.mark.parametrize("option", ["--rpm", "--tpm"])
@pytest.mark.parametrize("value", ["inf", "nan", "0", "-1"])
def test_a_limit_is_a_number_above_zero(cli: Command, option: str, value: str) -> None:
    status, out, err = cli("run", "x", "-o", "d", option, value)
    said = f"claimscore: error: {option} must be a number above zero, not {float(value)}\n"
    assert (status, out, err) == (2, "", said)
