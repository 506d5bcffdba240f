"""Which prompts there are: ours in the package, and the user's in a folder made alike.

`<folder>/<task>/<version>.toml`. The user's folder goes before the package.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from claimscore.errors import ConfigError
from claimscore.prompts.files import NAME, parents, read_prompt
from claimscore.prompts.prompt import Prompt

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
        return load_prompt(self.name or self.version, self.version, prompts_dir)

    def path(self, prompts_dir: Path | None = None) -> Path:
        """The file; `ConfigError` where there is none."""
        if self.version.endswith(".toml"):
            return Path(self.version)
        return find_prompt(self.name or "", self.version, prompts_dir)


@dataclasses.dataclass(frozen=True)
class Listed:
    """One prompt of a list. `source` is `claimscore` or the user's folder; `hidden` where the
    user's folder has another of the same name; `inherits` are the files it takes from."""

    prompt: Prompt
    source: str
    path: Path
    default: bool
    hidden: bool
    inherits: tuple[Path, ...]


def prompt_names(prompts_dir: Path | None = None) -> list[str]:
    """The tasks that have prompts in the package or the user's folder."""
    return sorted(
        {
            entry.name
            for folder in _roots(prompts_dir)
            for entry in folder.iterdir()
            if entry.is_dir() and any(entry.glob("*.toml"))
        }
    )


def available_versions(name: str, prompts_dir: Path | None = None) -> list[str]:
    """Versions of a prompt, the package's and the user's folder's, oldest first."""
    found = {file.stem for root in _roots(prompts_dir) for file in (root / name).glob("*.toml")}
    return sorted(filter(NAME.fullmatch, found), key=_version_order)


def list_prompts(
    prompts_dir: Path | None = None, on_broken: Callable[[ConfigError], None] | None = None
) -> list[Listed]:
    """Every prompt, by task and version; one that is hidden comes after the one that hides it.

    A broken file is told to `on_broken` and left out; without that it is raised.
    """
    found: list[Listed] = []
    for name in prompt_names(prompts_dir):
        for version in available_versions(name, prompts_dir):
            for number, (root, path) in enumerate(_places(name, version, prompts_dir)):
                try:
                    prompt = _load_found(path, name, version, prompts_dir)
                except ConfigError as exc:
                    if on_broken is None:
                        raise
                    on_broken(exc)
                    continue
                found.append(
                    Listed(
                        prompt,
                        "claimscore" if root == PACKAGE else str(prompts_dir),
                        path,
                        version == DEFAULT_VERSION and number == 0,
                        number > 0,
                        tuple(parents(path, functools.partial(_find, prompts_dir), name)),
                    )
                )
    return found


def load_prompt(
    name: str, version: str = DEFAULT_VERSION, prompts_dir: Path | None = None
) -> Prompt:
    """A task's prompt by version, or by the path of a TOML file (`version`, or `name` alone).

    The user's folder goes before the package. In such a folder the file's name is the version.
    `ConfigError` where there is none, or where it is broken.
    """
    if name.endswith(".toml"):
        return load_prompt_file(Path(name), prompts_dir)
    if version.endswith(".toml"):
        return read_prompt(Path(version), functools.partial(_find, prompts_dir), name)
    path = find_prompt(name, version, prompts_dir)
    return _load_found(path, name, version, prompts_dir)


def _load_found(path: Path, name: str, version: str, prompts_dir: Path | None) -> Prompt:
    """The prompt of a task in a folder of prompts."""
    prompt = read_prompt(path, functools.partial(_find, prompts_dir), name)
    if prompt.name != name:
        raise ConfigError(
            f'{path}: name = "{prompt.name}" in a folder of {name}; say name = "{name}", or move '
            "the file"
        )
    return dataclasses.replace(prompt, version=version)


def load_prompt_file(path: Path, prompts_dir: Path | None = None) -> Prompt:
    """One prompt file, checked; `ConfigError` names the file and what is wrong in it.

    `prompts_dir` is where it may inherit from, besides the package.
    """
    return read_prompt(path, functools.partial(_find, prompts_dir))


def find_prompt(
    name: str, version: str, prompts_dir: Path | None = None, besides: Path | None = None
) -> Path:
    """The file of a prompt, in the user's folder or in the package; `besides` is not meant."""
    if Path(version).suffix or len(Path(version).parts) != 1 or len(Path(name).parts) != 1:
        raise ConfigError(f"{version}: a prompt file must end in .toml; a version is like v1")
    if not NAME.fullmatch(version):
        raise ConfigError(
            f"prompt {name}={version!r}: a version is of letters, digits and . _ + - alone"
        )
    for _, file in _places(name, version, prompts_dir):
        if besides is None or file.resolve() != besides.resolve():
            return file
    known = available_versions(name, prompts_dir)
    raise ConfigError(
        f"there is no {'other ' if besides and version in known else ''}prompt {name}={version}; "
        + (
            f"versions of {name}: {', '.join(known)}"
            if known
            else f"tasks: {', '.join(prompt_names(prompts_dir))}"
        )
    )


def _find(prompts_dir: Path | None, name: str, version: str, asking: Path) -> Path:
    """The file that a version means: beside it, then in the user's folder, then ours."""
    beside = asking.parent / f"{version}.toml"
    if asking.parent.name == name and beside.is_file() and beside.resolve() != asking.resolve():
        return beside
    return find_prompt(name, version, prompts_dir, asking)


def _places(name: str, version: str, prompts_dir: Path | None) -> list[tuple[Path, Path]]:
    """The folders of prompts that have it, each with the file."""
    files = ((root, root / name / f"{version}.toml") for root in _roots(prompts_dir))
    return [(root, file) for root, file in files if file.is_file()]


def _roots(prompts_dir: Path | None) -> list[Path]:
    return [prompts_dir, PACKAGE] if prompts_dir else [PACKAGE]


def _version_order(version: str) -> tuple[int, str]:
    number = _VERSION_NUMBER.match(version)
    return (int(number.group(1)) if number else 1_000_000, version)
