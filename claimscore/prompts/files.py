"""Which prompts there are: ours in the package, and the user's in a folder made alike.

`<folder>/<task>/<version>.toml`. The user's folder goes before the package.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from claimscore.errors import ConfigError
from claimscore.prompts.prompt import NAME, Prompt

#: The folder of the released prompts.
PACKAGE = Path(__file__).parent

#: The version where none is named.
DEFAULT_VERSION = "v1"

_VERSION_NUMBER = re.compile(r"v(\d+)\Z")


class Spec(NamedTuple):
    """A prompt as people name it: `TASK`, `TASK=VERSION`, `TASK=FILE.toml` or `FILE.toml`."""

    name: str | None
    version: str

    @classmethod
    def parse(cls, text: str) -> Spec:
        name, equals, version = text.partition("=")
        if not equals and text.endswith(".toml"):
            return cls(None, text)
        return cls(name, version or DEFAULT_VERSION)

    def load(self, prompts_dir: Path | None = None) -> Prompt:
        """The prompt; raises as `load_prompt`."""
        return load_prompt(self.name or self.version, self.version, prompts_dir)

    def path(self, prompts_dir: Path | None = None) -> Path:
        """The file; `ConfigError` where there is none."""
        if self.version.endswith(".toml"):
            return Path(self.version)
        return find_prompt(self.name or "", self.version, prompts_dir)


def load_prompt(
    name: str, version: str = DEFAULT_VERSION, prompts_dir: Path | None = None
) -> Prompt:
    """A task's prompt by version, or by the path of a TOML file (`version`, or `name` alone).

    The user's folder goes before the package. `ConfigError` where there is none, or where it is
    broken or says another name or version than its place does.
    """
    for given in (name, version):
        if given.endswith(".toml"):
            return load_prompt_file(Path(given))
    path = find_prompt(name, version, prompts_dir)
    prompt = load_prompt_file(path)
    if (prompt.name, prompt.version) != (name, version):
        raise ConfigError(
            f"{path}: it says {prompt.name}={prompt.version}; a prompt in a folder is called as "
            f"its place: {name}={version}"
        )
    return prompt


def load_prompt_file(path: Path) -> Prompt:
    """One prompt file, checked; `ConfigError` names the file and the keys that are wrong."""
    from claimscore.prompts.file_model import read_prompt_file  # with pydantic: 0.2 s

    return read_prompt_file(path)


def find_prompt(name: str, version: str, prompts_dir: Path | None = None) -> Path:
    """The file of a prompt, in the user's folder or in the package; `ConfigError` where there is
    none."""
    if not (re.fullmatch(NAME, name) and re.fullmatch(NAME, version)) or Path(version).suffix:
        raise ConfigError(
            f"{name}={version!r}: a prompt file must end in .toml; a version is like v1, of "
            "letters, digits and . _ + - alone"
        )
    for root in _roots(prompts_dir):
        if (path := root / name / f"{version}.toml").is_file():
            return path
    known = available_versions(name, prompts_dir)
    others = f"versions of {name}: {', '.join(known)}" if known else ""
    others = others or f"tasks: {', '.join(prompt_names(prompts_dir))}"
    raise ConfigError(f"there is no prompt {name}={version}; {others}")


def prompt_names(prompts_dir: Path | None = None) -> list[str]:
    """The tasks that have prompts in the package or the user's folder."""
    files = (file for root in _roots(prompts_dir) for file in root.glob("*/*.toml"))
    return sorted({file.parent.name for file in files})


def available_versions(name: str, prompts_dir: Path | None = None) -> list[str]:
    """Versions of a prompt, the package's and the user's folder's, oldest first."""
    versions = {file.stem for root in _roots(prompts_dir) for file in root.glob(f"{name}/*.toml")}
    return sorted((one for one in versions if re.fullmatch(NAME, one)), key=_version_order)


def _roots(prompts_dir: Path | None) -> list[Path]:
    if prompts_dir is not None and not prompts_dir.is_dir():
        raise ConfigError(f"--prompts-dir {prompts_dir}: there is no such folder")
    return [prompts_dir, PACKAGE] if prompts_dir else [PACKAGE]


def _version_order(version: str) -> tuple[int, str]:
    number = _VERSION_NUMBER.match(version)
    return (int(number.group(1)) if number else 1_000_000, version)
