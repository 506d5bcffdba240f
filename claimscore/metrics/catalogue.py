"""The metrics that can be named: claimscore's, and those of one's own files.

A metric file is Python and is run; what it offers are the `Metric` and `MetricFamily` objects at
its top level.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from claimscore.errors import ClaimscoreError, ConfigError
from claimscore.metrics.base import ChunkTables, Metric, MetricFamily, MetricOption, Score

#: A name has no comma, colon or bar: lists, options and signatures are made with them.
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)

_T = TypeVar("_T")


class _Offer(NamedTuple):
    """A metric of a file: where it stands, the file and its digest."""

    metric: Metric | MetricFamily
    where: str
    file: Path
    digest: str


class Catalogue:
    """Metrics by name. `own` are claimscore's, "module:attribute"; each file is run once, here.

    `ConfigError` with file and line where a file cannot be run, offers nothing, or offers a
    name that is taken.
    """

    def __init__(self, own: Mapping[str, str], files: Iterable[Path] = ()) -> None:
        self._own = own
        self._offers: dict[str, _Offer] = {}
        #: The metric files, absolute, each once.
        self.files = tuple(dict.fromkeys(file.resolve() for file in files))
        for path in self.files:
            self._add(path)

    def names(self) -> list[str]:
        """claimscore's own in their order, then those of files."""
        return [*self._own, *self._offers]

    def options(self, spec: str) -> tuple[MetricOption, ...]:
        """The options of a family; a metric has none."""
        metric = self._named(spec.partition(":")[0])
        return metric.known_options() if isinstance(metric, MetricFamily) else ()

    def has(self, spec: str) -> bool:
        """Whether there is a metric of that name, whatever its options."""
        return spec.partition(":")[0] in self.names()

    def load(self, spec: str) -> Metric:
        """The metric of that name, or of a family with options: `summac-zs:variant=code`.

        `ConfigError` naming what is known where there is no such metric, option or value.
        """
        name, *given = spec.split(":")
        named = self._named(name)
        if name in self._own:
            return _chosen(named, name, given)
        offer = self._offers[name]
        metric = _guarded(lambda: _chosen(named, name, given), offer.file, name)
        return dataclasses.replace(
            metric,
            facts=(("file", offer.digest), *metric.facts),
            score=functools.partial(_score, metric, offer.file),
        )

    def load_all(self, specs: Iterable[str]) -> tuple[Metric, ...]:
        """The metrics of these names, each once, in the order given."""
        return tuple(self.load(spec) for spec in dict.fromkeys(specs))

    def _named(self, name: str) -> Metric | MetricFamily:
        if name in self._offers:
            return self._offers[name].metric
        if name not in self._own:
            word, known = name.lower().replace("_", "-"), self.names()
            near = [one for one in known if one.partition("-")[0] == word]
            near = near or difflib.get_close_matches(word, known, 1)
            meant = f"is {' or '.join(near)} meant? " if near else ""
            meant += f"known metrics: {', '.join(known)}"
            own = "" if self._offers else "; one of your own needs --metric-file FILE"
            raise ConfigError(f"unknown metric {name}; {meant}{own}")
        module, _, attribute = self._own[name].partition(":")
        metric: Metric | MetricFamily = getattr(importlib.import_module(module), attribute)
        return metric

    def _is_own(self, metric: Metric | MetricFamily) -> bool:
        """Whether it is one of claimscore's, which a file imports."""
        return metric.name in self._own and self._named(metric.name) is metric

    def _add(self, path: Path) -> None:
        offers = [offer for offer in _read_file(path) if not self._is_own(offer.metric)]
        if not offers:
            raise ConfigError(f"metric file {path}: no Metric or MetricFamily at its top level")
        for offer in offers:
            name = offer.metric.name
            if name in self._own:
                raise ConfigError(f"{offer.where}: claimscore has a metric {name}; rename yours")
            if name in self._offers:
                first = self._offers[name].where
                raise ConfigError(f"{offer.where}: metric {name} is in {first} too; rename one")
            self._offers[name] = offer


def _chosen(found: Metric | MetricFamily, name: str, given: Sequence[str]) -> Metric:
    if isinstance(found, MetricFamily):
        return found.metric(given)
    if given:
        raise ConfigError(f"metric {name} has no options, but {given[0]} is named")
    return found


def _score(metric: Metric, file: Path, tables: ChunkTables) -> list[Score]:
    scores: Any = _guarded(lambda: metric.score(tables), file, metric.name)
    if not isinstance(scores, Iterable):
        raise ConfigError(f"{file}: metric {metric.name}: score returned {scores!r}, no scores")
    return _guarded(lambda: list(scores), file, metric.name)


def _guarded(call: Callable[[], _T], file: Path, name: str) -> _T:
    """The call's result; what a metric's code raises is told with file and line."""
    try:
        return call()
    except ClaimscoreError:
        raise
    except Exception as exc:
        raise ConfigError(f"{_place(file, exc)}metric {name}: {_said(exc)}") from exc


def _said(exc: BaseException) -> str:
    text = str(exc).strip().partition("\n")[0]
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _read_file(path: Path) -> list[_Offer]:
    try:
        code = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"metric file {path}: there is no such file; put it back, or say with --metric-file "
            "where it is"
        ) from None
    except OSError as exc:
        raise ConfigError(f"metric file {path}: {exc.strerror}") from exc
    digest = hashlib.sha256(code).hexdigest()[:12]
    module = _run(path, code, digest)
    offers: dict[int, _Offer] = {}
    for variable, value in vars(module).items():
        if isinstance(value, Metric | MetricFamily):
            where = f"{path}, {variable}"
            if not _NAME.fullmatch(value.name):
                raise ConfigError(
                    f"{where}: metric name {value.name!r}: letters, digits and . _ + - only"
                )
            offers.setdefault(id(value), _Offer(value, where, path, digest))
    return list(offers.values())


def _run(path: Path, code: bytes, digest: str) -> ModuleType:
    """The file as a module: exactly the bytes that the digest is of, no bytecode beside it."""
    name = f"_claimscore_metric_file_{digest}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None, "a loader was given"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and typing look names up
    try:
        exec(compile(code, str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as exc:
        del sys.modules[name]
        place = _place(path, exc) or f"{path}: "
        raise ConfigError(f"{place}the metric file cannot be run: {_said(exc)}") from exc
    return module


def _place(path: Path, exc: BaseException) -> str:
    """`own.py, line 3: ` where that is the file's line that raised; else nothing."""
    if isinstance(exc, SyntaxError) and exc.filename == str(path):
        return f"{path}, line {exc.lineno}: "
    frames = traceback.extract_tb(exc.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}: " if lines else ""
