"""Tiny models that the tests of a worker share."""

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_models
from tests.support.tiny_models import Folders


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a tiny model of a family and kind, made once: copy it to change it."""

    @functools.cache
    def folder(family: str = "bert", kind: str = "encoder", **options: Any) -> Path:
        save = getattr(tiny_models, f"save_tiny_{kind}")
        made: Path = save(tmp_path_factory.mktemp(kind) / family, family, **options)
        return made

    return folder
