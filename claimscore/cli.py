"""The command line: every error of ours is one clear line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import re
import signal
import sys
from collections.abc import Sequence

import click

from claimscore import __version__
from claimscore.commands.cache import cache
from claimscore.commands.compare import compare
from claimscore.commands.evaluate import calibrate, evaluate, label
from claimscore.commands.metrics import metrics
from claimscore.commands.models import models, train
from claimscore.commands.options import EXIT_BUG, EXIT_OK, EXIT_STOPPED, EXIT_USAGE
from claimscore.commands.prompts import prompts
from claimscore.commands.run import estimate, map_table, report, run, score, status
from claimscore.config import set_environment
from claimscore.console import harmless
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly

#: Why standard output cannot be written, beside a reader that has gone.
_NO_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1, 2, 3, 4 or 75.

    Results go to standard output, progress and errors to standard error; each error of ours is one
    line. Without arguments the command is the process's own: it is named by `sys.argv`, and Ctrl-C
    and SIGTERM stop it with status 75 from then on. With arguments the signals stay as they are.
    """
    return _process(sys.argv[1:]) if arguments is None else _status(arguments)


def _process(arguments: Sequence[str]) -> int:
    """The exit status of a command that has the process, its signals and streams, for itself."""
    # Sentences are parsed in threads beside each other: numpy's own would only be in their way.
    set_environment({"OPENBLAS_NUM_THREADS": "1"})
    # Modules, models and answers are many objects and hardly any garbage: to look through them as
    # often as Python does by itself takes a fifth of the time of a run whose answers are cached; a
    # threshold of 50,000 is no faster and leaves more garbage.
    gc.set_threshold(30_000, 6, 100)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _open_streams()
    status = _status(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # all is said: no traceback while Python ends
        signal.signal(number, lambda *_: os._exit(status))
    if status == EXIT_STOPPED and "ray" in sys.modules:
        # After a start that was interrupted, Ray's C++ part may abort while Python ends.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    return status


#: Packages that a light install leaves out; only commands that load or train models need them.
MODEL_PACKAGES = frozenset(
    ("torch", "transformers", "safetensors", "tokenizers", "huggingface_hub")
)


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM.

    `python -m` kills itself by SIGINT after a plain KeyboardInterrupt has left an `exec` of text,
    such as a dataclass makes at import, although it was caught. It leaves subclasses alone.
    """


def _interrupt(*_: object) -> None:
    raise _Interrupted


def _open_streams() -> None:
    """Streams that the caller closed read and write nothing; what a terminal cannot show is
    escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _status(arguments: Sequence[str]) -> int:
    try:
        _refuse_bytes(arguments)
        code = cli.main(
            args=list(arguments), prog_name="claimscore", standalone_mode=False, obj=arguments
        )
        sys.stdout.flush()
    except click.ClickException as exc:
        exc.show()
        return EXIT_USAGE
    except StoppedEarly as exc:
        how = "" if "the same command" in str(exc) else "; run the same command to go on"
        return _complain(f"stopped: {exc}{how}", EXIT_STOPPED)
    except (KeyboardInterrupt, click.Abort):
        return _complain("stopped: interrupted; run the same command to go on", EXIT_STOPPED)
    except ConfigError as exc:
        return _complain(f"error: {exc}", EXIT_USAGE)
    except ClaimscoreError as exc:
        return _complain(f"error: {exc}", EXIT_BUG)
    except (BrokenPipeError, SystemExit):  # `| head`: the reader has gone; click exits then
        _drop_output()
        return EXIT_OK
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package not in MODEL_PACKAGES:
            raise
        install = "pip install torch transformers safetensors"
        return _complain(
            f"error: {package} is not installed, and models need it; {install}", EXIT_USAGE
        )
    except OSError as exc:
        if exc.errno is None and "object-store error" in str(exc):
            return _complain(_store_refusal(str(exc)), EXIT_STOPPED)
        if exc.filename is not None or exc.errno not in _NO_OUTPUT:
            raise
        _drop_output()
        return _complain(f"stopped: what was to be printed is lost: {exc.strerror}", EXIT_STOPPED)
    return code if isinstance(code, int) else EXIT_OK


def _store_refusal(text: str) -> str:
    """Polars' message about a table in an object store, without what may be a secret."""
    where = re.search(r"\(path: ([^?)]*)", text)
    status = re.search(r"status code: (\d{3})", text)
    why = f"the store answers {status[1]}" if status else "the store was not reached"
    return (
        f"stopped: {where[1] if where else 'a table'}: {why}; check the network, the credentials "
        "and the rights, then run the same command again"
    )


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Arguments that are no text could be neither kept nor shown."""
    for number, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"argument {number} is not UTF-8 text") from None


def _drop_output() -> None:
    """Let nothing more be written, also not when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(harmless(f"claimscore: {message}"), file=sys.stderr)
    return code


#: What a newcomer needs; the rest is in `--help`.
FIRST_COMMANDS = """\
claimscore run pairs.jsonl --out runs/first    score pairs of summaries; again: it goes on
claimscore status runs/first                   what is done, spent and left
claimscore report runs/first                   a page with the scores and the claims"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"Claim-level scores for text summaries.\n\n\b\n{FIRST_COMMANDS}",
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="claimscore")
@click.pass_context
def cli(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(f"{FIRST_COMMANDS}\n\nall commands: claimscore --help")


for command in (
    *(run, status, score, report, compare, estimate, map_table),
    *(label, calibrate, evaluate, train, prompts, metrics, cache, models),
):
    cli.add_command(command)
