"""What a place must have for a worker to be there: asked of each node, and by each worker itself,
which may have been started on a node that came later."""

from __future__ import annotations

from collections.abc import Sequence

from claimscore import __version__
from claimscore.config import missing_environment
from claimscore.errors import ConfigError
from claimscore.storage import Folder, open_folder

#: A file in the run directory that says which call works there: who reads it sees that folder, and
#: not another one of its name.
_MARK = ".state/cluster"


def mark_place(folder: Folder, mark: str) -> None:
    """Leave in the run directory what `what_lacks` looks for."""
    folder.write(_MARK, mark.encode())


def what_lacks(where: str, mark: str, key_names: Sequence[str]) -> str | None:
    """What this machine lacks, as the rest of a sentence that begins with its name; None where it
    has all. `mark` was left in the run directory `where`."""
    try:
        found = open_folder(where).read(_MARK).decode()
    except FileNotFoundError:
        found = ""
    except (OSError, ConfigError) as exc:
        return f"cannot read {where}: {exc}"
    if found != mark:
        return (
            f"does not see {where}, or has another folder of that name; name an --out that all "
            "nodes share: a folder on a network, or s3://BUCKET/FOLDER"
        )
    missing = missing_environment(key_names)
    if missing:
        return (
            f"has no {', '.join(missing)}: keys are not sent to other machines; set it there "
            "before `ray start`"
        )
    return None


def refuse_version(there: str, version: str) -> None:
    """`ConfigError` where a place has not the version of this process; "" is none."""
    if version != __version__:
        has = f"claimscore {version}" if version else "no claimscore"
        raise ConfigError(
            f"{there} has {has}, this process {__version__}; on every node: "
            f"pip install 'claimscore[ray]=={__version__}'"
        )
