"""Joining a Ray cluster or starting one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from claimscore.config import set_environment
from claimscore.errors import ConfigError
from claimscore.pipeline.supervision import signals_held

# Ray reads these when it is imported.
set_environment(
    {
        "RAY_USAGE_STATS_ENABLED": "0",  # no statistics are sent
        "RAY_BACKEND_LOG_LEVEL": "fatal",  # its C++ parts write into our standard error
        "RAY_worker_niceness": "0",  # else workers of a Ray of our own yield to all others
    }
)

import ray  # noqa: E402  # after the settings above


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Use the Ray that this process is connected to, else join one or start one until the end.

    `ConfigError` where there is none at the address, or one that does not fit. Ctrl-C and SIGTERM
    mean afterwards what they meant before.
    """
    if ray.is_initialized():
        _silence()
        yield
        return
    start: dict[str, Any] = {"address": address}
    if address is None:
        start = {"address": "local", "include_dashboard": False}
    _silence()
    try:
        try:
            # Ray's C++ part crashes where its start is interrupted.
            with signals_held():
                ray.init(**start, log_to_driver=False, logging_level=logging.CRITICAL)
        except SystemExit:  # Ray sets a handler of SIGTERM that leaves so
            raise KeyboardInterrupt from None
        except (ConnectionError, RuntimeError, ValueError) as exc:
            is_own = start["address"] == "local"
            where = "on this machine" if is_own else f"at --address {address}"
            hint = "" if is_own else "; is it up, and does it want RAY_AUTH_MODE=token?"
            raise ConfigError(f"Ray {where}: {first_line(exc)}{hint}") from exc
        _silence()
        yield
    finally:
        ray.shutdown()


def _silence() -> None:
    """Leave Ray's messages to its own logs: standard error is for people."""
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # Its thread for errors of the cluster prints them to standard output, `log_to_driver` or not,
    # where the JSON object of `--json` stands. Ray 2.60 has no public setting for it.
    ray._private.worker._worker_logs_enabled = False


def working_nodes() -> list[dict[str, Any]]:
    """The nodes that may get work: those with CPUs or GPUs."""
    nodes: Any = ray.nodes  # without types
    return [
        node
        for node in nodes()
        if node["Alive"] and (node["Resources"].get("CPU") or node["Resources"].get("GPU"))
    ]


def first_line(exc: BaseException) -> str:
    """Of an error of Ray's, whose messages are long."""
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), repr(exc))
