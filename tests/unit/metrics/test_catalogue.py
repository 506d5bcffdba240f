"""Metrics from files: what is offered, what is refused, what the signature says."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.metrics import catalogue, load_metric
from claimscore.metrics.base import signature
from claimscore.metrics.caspr import CASPR

WriteFile = Callable[..., Path]

HEAD = """\
from claimscore.metrics.base import *
from claimscore.metrics.base import Metric, MetricFamily, Requirements, option, scored
from claimscore.metrics.caspr import CASPR
from dataclasses import dataclass

@dataclass(frozen=True)
class Kin:
    by: str = option("1", "The way.", ("1", "2"))

def made(name, score=lambda tables: [scored(i, 1.0, {}) for i in tables.records["id"]]):
    return Metric(name, Requirements(()), score, (), "better", (0.0, 1.0), "a test", "none")

"""
FIRST_LINE = HEAD.count("\n") + 1


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(code: str, name: str = "own.py", head: str = HEAD) -> Path:
        path = tmp_path / name
        path.write_text(head + code, encoding="utf-8")
        return path

    return write_file


def refused(*files: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        catalogue(files)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_metrics_and_families_of_a_file_are_offered(write: WriteFile) -> None:
    path = write(
        'A = B = made("mine")\nF = MetricFamily("kin", Kin, lambda name, chosen: made(name))\n'
    )
    known = catalogue([path, path])
    assert known.files == (path.resolve(),)
    assert all(map(known.has, ("mine", "kin:by=2", "caspr")))
    assert not known.has("other")
    names = ["mine", "kin:by=2", "kin"]
    assert [metric.name for metric in known.load_all([*names, "mine"])] == names
    assert known.load("caspr").name == CASPR.name
    with pytest.raises(ConfigError, match="by is one of 1, 2"):
        known.load("kin:by=3")
    with pytest.raises(ConfigError, match="mine has no options"):
        known.load("mine:by=3")
    with pytest.raises(ConfigError, match=r"unknown metric other; known metrics: .*, mine, kin$"):
        known.load("other")
    assert not list(path.parent.glob("__pycache__"))


def test_the_signature_has_the_file(write: WriteFile) -> None:
    path = write('A = made("mine")\nF = MetricFamily("kin", Kin, lambda name, _: made(name))\n')
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    known = catalogue([path])
    assert signature(known.load("mine"), {}) == f"mine|v1|file:{digest}"
    assert signature(known.load("kin"), {}) == f"kin|v1|file:{digest}"
    path.write_text(path.read_text() + "# more\n")
    assert signature(catalogue([path]).load("mine"), {}) != f"mine|v1|file:{digest}"
    assert "file:" not in signature(load_metric("caspr"), {})


@pytest.mark.parametrize(
    ("code", "place", "said"),
    [
        ('A = made("caspr")\n', "A", "claimscore has a metric caspr"),
        ('A = made("m")\n\nB = made("m")\n', "B", "metric m is in .*own.py, A too"),
        ('A = made("a:b")\n', "A", "metric name 'a:b'"),
        ("x = 1\nraise KeyError('no')\n", 1, "cannot be run: KeyError: 'no'"),
        ("x = 1\nmade()\n", 1, "cannot be run: TypeError: "),
        ("x = 1\nx = = 1\n", 1, "cannot be run: SyntaxError: invalid syntax"),
        ("import sys; sys.exit(3)\n", 0, "cannot be run: SystemExit: 3"),
        ("import nothing_of_that_name\n", 0, "cannot be run: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    write: WriteFile, code: str, place: str | int, said: str
) -> None:
    path = write(code)
    message = refused(path)
    where = f"line {FIRST_LINE + place}" if isinstance(place, int) else place
    assert message.startswith(f"{path}, {where}: ")
    assert re.search(said, message), message


def test_files_without_a_metric_or_that_are_not_there(write: WriteFile, tmp_path: Path) -> None:
    assert refused(write("")).endswith("own.py: no Metric or MetricFamily at its top level")
    assert "there is no such file" in refused(tmp_path / "gone.py")
    assert "Is a directory" in refused(tmp_path)


def test_what_a_family_raises_names_the_line(write: WriteFile) -> None:
    path = write(
        'F = MetricFamily("f", Kin, lambda name, chosen: made(1 / 0))\n'
        'G = MetricFamily("g", Kin, lambda name, chosen: made(chosen))\n'
    )
    known = catalogue([path])
    with pytest.raises(ConfigError, match=f"line {FIRST_LINE}: metric f: ZeroDivisionError"):
        known.load("f")
    with pytest.raises(ConfigError, match=r"metric g: make.* gave no Metric g"):
        known.load("g")
