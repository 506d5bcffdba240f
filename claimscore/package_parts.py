"""Single modules of a package that imports more than anybody needs.

`import nltk.stem.porter` first runs nltk's own file, which imports all of nltk and, where they are
installed, scipy, scikit-learn and pandas: two to three seconds of a processor for a stemmer
that needs none of them. Here the package's file is put off instead, until somebody asks for more.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: How long somebody who needs a package whole waits for a thread that takes parts of it. That
#: thread may in turn wait for the very module that this one is importing, so not for ever.
WAIT_S = 5.0

#: Held while parts are taken and while a package that was put off is loaded after all.
_lock = threading.RLock()
#: The thread that takes parts just now.
_taking: set[int] = set()
#: The packages that were put off, and all inside of them.
_outermost: set[str] = set()
#: The packages whose files are being run.
_loading: set[str] = set()


@contextmanager
def parts_of(*packages: str) -> Iterator[None]:
    """In this block modules inside of `packages` (outer ones first) are imported without them.

    Whoever else imports from such a package, or asks it for a name, finds it whole: its file
    is run then. A package that is loaded already stays as it is.
    """
    with _lock, _taking_parts():
        for package in packages:
            if package not in sys.modules:
                _put_off(package)
        yield


def _put_off(package: str) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    if not _outermost:
        sys.meta_path.insert(0, _OnceOnly())
    _outermost.add(package.partition(".")[0])
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _PutOff
    sys.modules[package] = module
    outer, _, name = package.rpartition(".")
    if outer:
        setattr(sys.modules[outer], name, module)


class _PutOff(ModuleType):
    """A package whose own file has not been run; what it is asked for beside parts runs it."""

    @property
    def __path__(self) -> MutableSequence[str]:  # type: ignore[override] # asked for at imports
        if threading.get_ident() not in _taking and _lock.acquire(timeout=WAIT_S):
            try:
                _load(self)
            finally:
                _lock.release()
        path: MutableSequence[str] = self.__dict__["__path__"]
        return path

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() in _taking and not name.startswith("__"):
            part = f"{self.__name__}.{name}"
            if importlib.util.find_spec(part) is not None:
                return importlib.import_module(part)
        with _lock:
            if _load(self):
                return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _OnceOnly:
    """Finds what a package's file, run by `__path__`, has imported before it was looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that others look for it, unless it is there and nobody asked to reload it."""
        imported = sys.modules.get(fullname)
        if imported is None or target is not None or fullname.partition(".")[0] not in _outermost:
            return None
        return ModuleSpec(fullname, _Imported(imported))


class _Imported(Loader):
    """Loads a module that there is already: as it is, and not a second time."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _load(module: ModuleType) -> bool:
    """Run the package's file, that of its package first, as an ordinary import would have done.

    False where this very thread is at it: what a file that is being run lacks, it lacks.
    """
    outer = sys.modules.get(module.__name__.rpartition(".")[0])
    if isinstance(outer, _PutOff):
        _load(outer)
    if module.__name__ in _loading:
        return False
    if isinstance(module, _PutOff):
        with _taking_parts():
            _run_file(module)
    return True


def _run_file(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    _loading.add(module.__name__)
    try:
        spec.loader.exec_module(module)
        module.__class__ = ModuleType
    finally:
        _loading.discard(module.__name__)


@contextmanager
def _taking_parts() -> Iterator[None]:
    thread = threading.get_ident()
    nested = thread in _taking
    _taking.add(thread)
    try:
        yield
    finally:
        if not nested:
            _taking.discard(thread)
