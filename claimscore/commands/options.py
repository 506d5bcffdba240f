"""Commands whose options are the fields of settings dataclasses, and options that several share."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import math
import re
import shlex
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from claimscore.config import read_toml
from claimscore.errors import ConfigError
from claimscore.option import Option

if TYPE_CHECKING:
    from claimscore.stats.gates import Gate

#: A function that decorators make a command.
F = TypeVar("F", bound=Callable[..., Any])

#: Exit statuses, as the README has them.
EXIT_OK, EXIT_BUG, EXIT_USAGE, EXIT_FAILED_RECORDS, EXIT_GATE, EXIT_STOPPED = 0, 1, 2, 3, 4, 75

#: The panels of a help page in their order; a command's own options stand first.
PANELS = (
    *("Essential", "Options", "Metrics", "Language model", "Limits", "Models", "Data", "Training"),
    *("Machines", "Output", "This command"),
)

#: Where a context says that its help page shows rare options too.
_SHOWS_ALL = "claimscore.shows_all"

#: Width of the column of names in a help page.
NAMES_WIDTH = 26


def complete_file(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shell's own files and folders."""
    return [CompletionItem(incomplete, type="file")]


# -- values


class Names(click.ParamType[Any]):
    """A comma-separated list of names, each one of `choices` where there are any."""

    name = "list"

    def __init__(self, choices: Sequence[str] = ()) -> None:
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = value.split(",") if isinstance(value, str) else value
        chosen = tuple(name.strip() for name in names if name.strip())
        for name in chosen:
            if self.choices and name not in self.choices:
                self.fail(f"{name!r} is none of {', '.join(self.choices)}", param, ctx)
        return chosen


class Metrics(Names):
    """A list of metrics; the shell completes the last one."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from claimscore.metrics import METRICS

        before, comma, last = incomplete.rpartition(",")
        known = (name for name in METRICS if name.startswith(last))
        return [CompletionItem(f"{before}{comma}{name}") for name in known]


class Duration(click.ParamType[Any]):
    """Seconds as a number, or with a unit: `90s`, `30m`, `12h`, `30d`, `2w`."""

    name = "duration"
    UNITS = types.MappingProxyType({"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800})

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        duration = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", str(value).strip())
        if duration is None:
            self.fail(f"{value!r} is no duration; write 90, 90s, 30m, 12h, 30d or 2w", param, ctx)
        return float(duration[1]) * self.UNITS[duration[2]]


class _Place(click.Path):
    """A file or a folder on a disk; with `remote` also an address, as `s3://bucket/runs/a`."""

    def __init__(self, *, remote: bool = False, **details: Any) -> None:
        super().__init__(path_type=Path, **details)
        self._remote = remote

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "://" in value:
            if self._remote:
                return value
            kind = "folder" if self.dir_okay else "file"
            self.fail(f"an address; name a local {kind}", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = _Place(file_okay=False)
RUN_FOLDER = _Place(remote=True, file_okay=False)
RUN_PATH = _Place(remote=True)
NEW_FILE = _Place(dir_okay=False)
FILE = _Place(dir_okay=False, exists=True)

#: `Option.kind` -> the type of its value and what help pages call that.
KINDS: dict[str, tuple[click.ParamType[Any], str]] = {
    "folder": (FOLDER, "DIR"),
    "run": (RUN_FOLDER, "DIR"),
    "file": (NEW_FILE, "FILE"),
    "path": (click.Path(path_type=Path), "PATH"),
    "output": (_Place(remote=True, dir_okay=False), "FILE"),
    "duration": (Duration(), "DURATION"),
    "metrics": (Metrics(), "LIST"),
    "json": (click.STRING, "KEY=JSON"),
    "limit": (click.STRING, "METRIC=X"),
}
_PLAIN: dict[Any, tuple[click.ParamType[Any], str]] = {
    int: (click.INT, "N"),
    float: (click.FLOAT, "X"),
}


def _pairs(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str] | Mapping[str, str]
) -> dict[str, str]:
    """`KEY=VALUE` of an option that may be repeated, each key once."""
    chosen: dict[str, str] = {}
    if str(_param.metavar).endswith(",..."):
        values = [pair for value in values for pair in value.split(",")]
    for value in values:
        key, equals, text = value.partition("=")
        if not (key and equals and text):
            may_be_secret = str(_param.metavar).endswith("VARIABLE")
            shown = "what is given" if may_be_secret else repr(value)
            raise click.BadParameter(f"{shown} is not {_param.metavar}")
        if chosen.get(key, text) != text:
            raise click.BadParameter(f"{key} is given twice: {chosen[key]} and {text}")
        chosen[key] = text
    return chosen


def _json_pairs(
    ctx: click.Context, param: click.Parameter, values: Sequence[str] | Mapping[str, str]
) -> dict[str, Any]:
    """`KEY=JSON` of an option that may be repeated. A word that is no JSON is a text."""
    return {key: _json_value(key, text) for key, text in _pairs(ctx, param, values).items()}


def _limits(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str] | Mapping[str, float]
) -> dict[str, float]:
    """`METRIC=X` of an option that may be repeated; a metric may have options, as `qa:a=b=0.5`."""
    limits: dict[str, float] = {}
    for value in values:
        metric, _, text = value.rpartition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not metric or not math.isfinite(number):
            raise click.BadParameter(f"{value!r} is no metric and number, as faithfulness=0.8")
        if limits.setdefault(metric, number) != number:
            raise click.BadParameter(f"{metric} is given twice: {limits[metric]:g} and {number:g}")
    return limits


class _ByTask:
    """`VALUE` or `TASK=VALUE` of an option that may be repeated, as a dict by task; "" is that of
    the tasks without one. The last one counts, and what is typed goes before what a file has,
    task by task."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind

    def __call__(
        self, ctx: click.Context, param: click.Parameter, values: Sequence[str]
    ) -> dict[str, Any]:
        of_file = (ctx.default_map or {}).get(str(param.name)) or ()
        return {**self._read(ctx, param, of_file), **self._read(ctx, param, values)}

    def _read(
        self, ctx: click.Context, param: click.Parameter, values: Sequence[str]
    ) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for value in values:
            task, equals, text = value.partition("=")
            if not equals or ":" in task:  # a model's name may have an equals sign
                task, text = "", value
            elif not (task and text):
                raise click.BadParameter(f"{value!r} is not {param.metavar}")
            pairs[task] = text
        return {task: self.kind.convert(text, param, ctx) for task, text in pairs.items()}


def _json_value(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        is_word = re.fullmatch(r"[A-Za-z][\w./:-]*", text)
        if is_word and text.lower() not in ("true", "false", "none", "nan", "infinity"):
            return text
    raise click.BadParameter(f"{key}={text}: this is no JSON; quote it as '{key}={{\"a\": 1}}'")


# -- options


class PanelOption(click.Option):
    """An option that stands in a panel of the help page, with its default."""

    def __init__(self, *args: Any, panel: str | None = None, **details: Any) -> None:
        super().__init__(*args, **details)
        self.panel = panel or "Options"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names = sorted(self.opts, key=len)
        if self.secondary_opts:
            names[-1] = f"--[no-]{names[-1].removeprefix('--')}"
        value = "" if self.is_flag or self.count else f" {self.make_metavar(ctx)}"
        return ", ".join(names) + value, f"{self.help}{self._remark()}"

    def _remark(self) -> str:
        if self.required:
            return "  [required]"
        default = self.shown_default()
        return f"  [default: {default}]" if default else ""

    def shown_default(self) -> str:
        """The default as it is typed; empty where there is none, or only none is said by it."""
        if self.is_flag:
            return "yes" if self.secondary_opts and self.default is True else ""
        given = self.default if isinstance(self.default, str | int | float) else ""
        if isinstance(self.default, tuple):
            (given,) = self.default
        return f"{given:g}" if isinstance(given, float) else str(given)


class SettingsSource(NamedTuple):
    """A settings dataclass that a command takes, or where it is: "module:Class".

    `only` and `without` are the names of its fields that are options or not; `fixed` are values
    of fields; `defaults` are other defaults, `dataclasses.MISSING` for none.
    """

    source: type | str
    only: Collection[str] = ()
    without: Collection[str] = ()
    fixed: Mapping[str, Any] = types.MappingProxyType({})
    defaults: Mapping[str, Any] = types.MappingProxyType({})

    def load(self) -> Any:
        """The class itself, imported where only its place is known."""
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.partition(":")
        return getattr(importlib.import_module(module), name)

    def fields(self) -> Iterator[tuple[dataclasses.Field[Any], Any, SettingsSource | None]]:
        """Each field that the command line gives, its type, and of nested settings their source."""
        cls = self.load()
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            hint = hints[field.name]
            if dataclasses.is_dataclass(hint) and isinstance(hint, type):
                only = field.metadata.get("only") or self.only
                yield field, hint, SettingsSource(hint, only, self.without)
            elif "option" in field.metadata and self._takes(field.name):
                yield field, hint, None

    def _takes(self, name: str) -> bool:
        is_left_out = name in self.without or name in self.fixed
        return not is_left_out and (not self.only or name in self.only)

    def parameters(self) -> dict[str, click.Parameter]:
        """The options and arguments, by the names of the fields; each name once."""
        parameters: dict[str, click.Parameter] = {}
        for field, hint, inner in self.fields():
            if inner is None:
                parameters[field.name] = _parameter(field, hint, self.defaults)
            else:
                parameters |= {k: v for k, v in inner.parameters().items() if k not in parameters}
        return parameters

    def build(self, values: Mapping[str, Any]) -> Any:
        """The settings, of the values of their parameters."""
        given = {
            field.name: values[field.name] if inner is None else inner.build(values)
            for field, _, inner in self.fields()
        }
        return self.load()(**given, **self.fixed)


def _parameter(
    field: dataclasses.Field[Any], hint: Any, defaults: Mapping[str, Any]
) -> click.Parameter:
    option: Option = field.metadata["option"]
    kind, metavar = _kind(hint, option)
    several = get_origin(_bare(hint)) is tuple
    if option.positional:
        return click.Argument(
            [field.name],
            type=kind,
            nargs=-1 if several else 1,
            required=True,
            metavar=option.metavar,
            help=option.help,
            shell_complete=complete_file,
        )
    is_mapping = get_origin(_bare(hint)) is Mapping
    repeated = option.repeated or is_mapping or option.by_task
    default = defaults.get(field.name, field.default)
    required = default is field.default_factory is dataclasses.MISSING
    name = (option.name or field.name).replace("_", "-")
    details: dict[str, Any] = {}
    if _bare(hint) is bool:
        names = [f"--{name}/--no-{name}" if default is True else f"--{name}"]
        details = {"is_flag": True}
    else:
        names = [f"--{name}"]
        details = {"type": kind, "metavar": option.metavar or metavar, "multiple": repeated}
    if is_mapping:
        details["callback"] = {"json": _json_pairs, "limit": _limits}.get(option.kind or "", _pairs)
    if option.by_task:
        details |= {"callback": _ByTask(kind), "type": click.STRING}
        details |= {} if default is None else {"default": (str(default),)}
    if not repeated and default is not dataclasses.MISSING:
        if isinstance(default, tuple):
            default = ",".join(default)
        details["default"] = default
    return PanelOption(
        [field.name, *([f"-{option.short}"] if option.short else []), *names],
        required=required,
        help=option.help,
        panel=option.panel,
        hidden=option.hidden,
        **details,
    )


def _bare(hint: Any) -> Any:
    """A type without None; the first of several."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not types.NoneType)
    return hint


def _kind(hint: Any, option: Option) -> tuple[click.ParamType[Any], str | None]:
    """How the text of an option becomes its value, and what help pages call the text."""
    if option.kind is not None:
        return KINDS[option.kind]
    bare = _bare(hint)
    item = get_args(bare)[0] if get_origin(bare) is tuple else bare
    choices = get_args(item) if get_origin(item) is Literal else option.choices
    if item is not bare and not (option.repeated or option.positional):
        return Names(choices), "LIST"
    if choices:
        return click.Choice(choices), "|".join(choices)
    return _PLAIN.get(bare, (click.STRING, "TEXT"))


# -- settings from files


def _use_config(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    """`--config`: a TOML file whose keys are this command's options."""
    if value is not None:
        settings: dict[str, Any] = {}
        for key, setting in read_toml(value).items():
            option = _option_called(ctx, key, str(value))
            settings[str(option.name)] = _as_typed(ctx, setting, option, f"{value}: {key}")
        ctx.default_map = _over(ctx, settings, ctx.default_map or {})


def _use_settings(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> None:
    """`--set key=value`: goes before `--config`, and after what is typed as an option."""
    settings: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        option = _option_called(ctx, key, "--set")
        name = str(option.name)
        settings[name] = [*settings.get(name, ()), text] if option.multiple else text
    ctx.default_map = _over(ctx, ctx.default_map or {}, settings)


def _over(ctx: click.Context, below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that go before others; of options by task, task by task."""
    options = (option for option in ctx.command.get_params(ctx) if option.name in above)
    by_task = (str(option.name) for option in options if isinstance(option.callback, _ByTask))
    joined = {name: [*below.get(name, ()), *above[name]] for name in by_task}
    return {**below, **above, **joined}


def _option_called(ctx: click.Context, key: str, where: str) -> click.Option:
    """The option of the command with this name, with or without its dashes."""
    known = {
        opt.lstrip("-"): option
        for option in ctx.command.get_params(ctx)
        if isinstance(option, click.Option) and option.expose_value
        for opt in option.opts
        if opt.startswith("--")
    }
    option = known.get(key.replace("_", "-"))
    if option is None:
        near = difflib.get_close_matches(key, known, 1)
        meant = f"; is {near[0]!r} meant?" if near else f"; known: {', '.join(known)}"
        raise ConfigError(f"{where}: unknown option {key!r}{meant}")
    return option


def _as_typed(ctx: click.Context, value: Any, option: click.Option, where: str) -> Any:
    """A setting of TOML as the text, or the texts, that are typed for its option; `ConfigError`
    where its type takes no such text."""
    if isinstance(value, dict):
        write = json.dumps if option.callback is _json_pairs else _text
        value = [f"{key}={write(item)}" if key else _text(item) for key, item in value.items()]
    texts = [_text(item) for item in value] if isinstance(value, list) else [_text(value)]
    if option.multiple:
        return texts
    try:
        option.type.convert(",".join(texts), option, ctx)
    except click.BadParameter as exc:
        raise ConfigError(f"{where}: {exc.message}") from None
    return ",".join(texts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _help_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """`--help-all`: the help page with the options that `--help` leaves out."""
    if value:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _log(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """`--verbose`, until the command ends."""
    if value:
        from claimscore.console.diagnosis import log_to_terminal

        ctx.call_on_close(log_to_terminal())


def gates_status(gates: Sequence[Gate], *, silent: bool) -> int:
    """Print the gates, of a silent command those that do not pass; the exit status they ask for."""
    from claimscore.console.table import print_text

    for gate in gates:
        if not silent:
            print_text(f"gate: {gate}")
        elif gate.fails is not False:
            print(f"gate: {gate}", file=sys.stderr)
    if any(gate.fails for gate in gates):
        return EXIT_GATE
    return EXIT_USAGE if any(gate.fails is None for gate in gates) else EXIT_OK


def own_option(
    *names: str, help: str, panel: str | None = None, **details: Any
) -> Callable[[F], F]:
    """An option of one command that is no setting, or one that several commands share."""
    return click.option(*names, cls=PanelOption, panel=panel, help=help, **details)


json_option = own_option(
    "--json", "as_json", is_flag=True, panel="Output", help="Print one JSON object for scripts."
)
quiet_option = own_option(
    *("-q", "--quiet"),
    is_flag=True,
    panel="Output",
    help="Show no progress, and of a run only scores and gates.",
)


def setting_option(settings: type, name: str, **defaults: Any) -> Callable[[F], F]:
    """The option of one field of a settings dataclass, for commands that take it by itself."""
    source = SettingsSource(settings, only=(name,), defaults=defaults)
    parameter = source.parameters()[name]

    def decorate(function: F) -> F:
        added = [*getattr(function, "__click_params__", []), parameter]
        function.__dict__["__click_params__"] = added
        return function

    return decorate


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether a parameter was typed or set, and is not at its default."""
    return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT


def typed_command() -> str:
    """The command as it was typed, to be typed again; what a base URL may hide is left out."""
    arguments = list(click.get_current_context().obj or ())
    for place in range(len(arguments)):
        if place and arguments[place - 1] == "--base-url":
            arguments[place] = "..."
        arguments[place] = re.sub(r"(base[-_]url=|@\w+://).*", r"\1...", arguments[place])
    return shlex.join(["claimscore", *arguments])


def output_options(command: F) -> F:
    """`--quiet` and `--json`."""
    return quiet_option(json_option(command))


_COMMON = (
    PanelOption(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_log,
        panel="Output",
        help="Report each step and failed request on standard error.",
    ),
    PanelOption(
        ["--config"],
        type=FILE,
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_use_config,
        panel="This command",
        help="TOML file with options of this command.",
    ),
    PanelOption(
        ["--set", "settings"],
        multiple=True,
        metavar="KEY=VALUE",
        is_eager=True,
        expose_value=False,
        callback=_use_settings,
        panel="This command",
        help="Set any option, also a rare one. May be repeated.",
    ),
    PanelOption(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_help_all,
        panel="This command",
        help="Show all options, also the rare ones.",
    ),
)


class Command(click.Command):
    """A command that is called with settings: `settings` names each by the callback's parameter.

    Its options are fields of the settings, then what decorators add. The classes are imported
    when the options are asked for, so that `claimscore --help` needs none of them.
    """

    def __init__(
        self,
        *args: Any,
        settings: Mapping[str, SettingsSource | type | str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(*args, **details)
        self._sources = {
            name: source if isinstance(source, SettingsSource) else SettingsSource(source)
            for name, source in (settings or {}).items()
        }
        self._fields: dict[str, click.Parameter] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if self._sources and not self._fields:
            for source in self._sources.values():
                self._fields |= source.parameters()
            self.params = [*self._fields.values(), *self.params, *_COMMON]
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        settings = {name: source.build(ctx.params) for name, source in self._sources.items()}
        others = {name: value for name, value in ctx.params.items() if name not in self._fields}
        ctx.params = others | settings
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, panel by panel."""
        shows_all = ctx.meta.get(_SHOWS_ALL, False)
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (shows_all or not param.hidden):
                panel = param.panel if isinstance(param, PanelOption) else PANELS[-1]
                panels.setdefault(panel, []).append(param.get_help_record(ctx) or ("", ""))
        for panel in (name for name in PANELS if name in panels):
            with formatter.section(panel):
                formatter.write_dl(panels[panel], col_max=NAMES_WIDTH)


class Group(click.Group):
    """A family of commands."""

    command_class = Command


def command(
    name: str | None = None, **settings: SettingsSource | type | str
) -> Callable[[Callable[..., Any]], Command]:
    """A command of the first level that is called with these settings."""
    return click.command(name, cls=Command, settings=settings)
