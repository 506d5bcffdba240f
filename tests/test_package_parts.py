"""Single modules of a package, without its own file; and the package whole for everybody else."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading

import pytest

from claimscore.package_parts import parts_of

FILES = {
    "__init__.py": "from {p}.inner import shout\nfrom {p}.heavy import *\nfrom {p} import data\n",
    "heavy.py": "import sys\nsys.{p}_heavy = getattr(sys, '{p}_heavy', 0) + 1\nweight = 7\n",
    "data.py": "path = ['here']\n",
    "rules.py": "from {p} import data\nfound = data.path\n",
    "inner/__init__.py": "from {p}.heavy import weight\nfrom {p}.inner.part import part\n"
    "def shout():\n    return part() * weight\n",
    "inner/part.py": "from {p} import rules\nfrom {p}.inner import base\n"
    "def part():\n    return rules.found[0]\n",
    "inner/base.py": "",
}
_names = iter(f"parted{number}" for number in range(100))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose file imports a module that counts how often it is run."""
    name = next(_names)
    for path, text in FILES.items():
        file = tmp_path / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{p}", name))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
    vars(sys).pop(f"{name}_heavy", None)


def times_loaded(package):
    return getattr(sys, f"{package}_heavy", 0)


def take_part(package):
    with parts_of(package, f"{package}.inner"):
        return importlib.import_module(f"{package}.inner.part")


def test_a_part_comes_without_its_package(package):
    """The modules that the part imports come too, nothing else does."""
    assert take_part(package).part() == "here"
    assert times_loaded(package) == 0
    loaded = {name for name in sys.modules if name.startswith(f"{package}.")}
    inside = ("data", "rules", "inner", "inner.part", "inner.base")
    assert loaded == {f"{package}.{name}" for name in inside}


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("from {p} import shout", id="a name of the package"),
        pytest.param("from {p}.inner import shout", id="a name of the package inside"),
        pytest.param("import {p}.inner; shout = {p}.inner.shout", id="as an attribute"),
        pytest.param("import {p}; shout = {p}.inner.shout", id="of an attribute"),
        pytest.param("from {p} import *", id="everything"),
        pytest.param("import {p}.heavy; from {p} import shout", id="another module"),
    ],
)
def test_whoever_asks_for_more_finds_it_whole(package, statement):
    """The package's file is run once, and the part is the one that was there."""
    part = take_part(package)
    found: dict[str, object] = {}
    exec(statement.replace("{p}", package), found)
    assert found["shout"]() == "here" * 7
    assert times_loaded(package) == 1
    assert sys.modules[f"{package}.inner.part"] is part
    assert type(sys.modules[package]) is type(sys)
    take_part(package)
    assert times_loaded(package) == 1


def test_another_module_of_it_is_imported_as_ever(package):
    """Outside of the block the package's file is run before any of its modules."""
    take_part(package)
    importlib.import_module(f"{package}.heavy")
    assert sys.modules[package].weight == 7


def test_a_name_that_there_is_not(package):
    """It is missing as from any other module, also while parts are taken."""
    take_part(package)
    module = sys.modules[package]
    with pytest.raises(AttributeError, match=f"{package}.*nothing"):
        _ = module.nothing
    assert not hasattr(module, "nothing")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), parts_of("no_such_package"):
        pass


def test_a_package_that_is_loaded_stays(package):
    """Nothing is put off that somebody has imported."""
    whole = importlib.import_module(package)
    take_part(package)
    assert sys.modules[package] is whole
    assert whole.shout() == "here" * 7


def test_other_threads_find_it_whole_meanwhile(package):
    """They wait for the one that takes parts, and then get all of it."""
    got = []

    def ask():
        got.append(importlib.import_module(f"{package}.heavy").weight)

    with parts_of(package, f"{package}.inner"):
        thread = threading.Thread(target=ask)
        thread.start()
        importlib.import_module(f"{package}.inner.part")
        assert times_loaded(package) == 0
    thread.join(10)
    assert got == [7]
    assert sys.modules[package].shout() == "here" * 7


def test_words_and_stems_do_not_import_all_of_nltk():
    """scipy and scikit-learn are nobody's who splits sentences, stems or counts ROUGE."""
    code = (
        "import sys; from claimscore.text import ds_tokens, split_sentences;"
        "from claimscore.metrics.rouge_counts import by_rouge_score as rouge;"
        "assert split_sentences('One. Two.') == ['One.', 'Two.'];"
        "assert ds_tokens('running') == ['run'];"
        "assert rouge('rouge-1', 'a dog runs', 'a dog ran', stemmer=True).f1 > 0.5;"
        "more = {'scipy', 'sklearn', 'nltk.parse', 'nltk.corpus'} & set(sys.modules);"
        "sys.exit(' '.join(more) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
