"""Write constraints.txt: every version that the package with all its extras installs.

`python scripts/lock.py` asks pip what it would install on Python 3.11, 3.12 and 3.13, and installs
nothing. Versions that differ get a marker. torch stays at the version pinned here: another way of
asking for it may bring gigabytes of CUDA packages, which are left out of the file.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
TORCH = "torch==2.13.0"
#: Packages without a wheel, which pip cannot look at for another Python, and what they need.
WITHOUT_WHEEL = {"rouge-score": ("absl-py", "nltk", "numpy", "six")}
CUDA = re.compile(r"nvidia-|cuda-|triton$")
HEADER = f"""\
# Every version that the README's commands and CI install, on Python {", ".join(PYTHONS)};
# written by `python scripts/lock.py`. {TORCH} is pinned because another way of asking
# for it may bring gigabytes of CUDA packages.
"""


def requirements() -> list[str]:
    """Those of the package and of every extra, with wheels only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {*project["dependencies"], TORCH, "hatchling>=1.27"}
    found.update(*project["optional-dependencies"].values())
    for name, needs in WITHOUT_WHEEL.items():
        found = {item for item in found if not item.startswith(name)} | {*needs}
    return sorted(found)


def resolved(python: str) -> dict[str, str]:
    """Versions by name that pip would install on a version of Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--python-version", python]
        command += ["--target", folder, "--report", str(report), *requirements()]
        subprocess.run(command, check=True)
        packages = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = (package["metadata"] for package in packages)
    return {
        re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"].partition("+")[0]
        for one in found
    }


def lines(versions: dict[str, dict[str, str]]) -> list[str]:
    """Constraints from versions by Python and name; a marker where not all Pythons agree."""
    names = {name for found in versions.values() for name in found if not CUDA.match(name)}
    result = [f"{name}=={version(name)}" for name in WITHOUT_WHEEL]
    for name in names:
        pythons: dict[str, list[str]] = {}
        for python, found in versions.items():
            if name in found:
                pythons.setdefault(found[name], []).append(python)
        if len(pythons) == 1:
            result.append(f"{name}=={next(iter(pythons))}")
            continue
        for pinned, those in pythons.items():
            marker = " or ".join(f'python_version == "{python}"' for python in those)
            result.append(f"{name}=={pinned}; {marker}")
    return sorted(result)


def main() -> None:
    """Write the file."""
    versions = {python: resolved(python) for python in PYTHONS}
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(lines(versions)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
