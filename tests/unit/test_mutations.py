"""The mutations of scripts/mutations.py fit the code; the script says whether tests notice them."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations", ROOT / "scripts" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutation_fits_the_code() -> None:
    script = _script()
    assert len(script.MUTATIONS) == 10
    misfits = {m.name: why for m in script.MUTATIONS if (why := script.misfit(ROOT, m))}
    assert misfits == {}
