"""Completion of commands and options by the user's shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

#: What the shell sets when it asks this program; click derives it from the program's name.
VARIABLE = "_CLAIMSCORE_COMPLETE"

#: Where each shell reads the script from.
_PLACES = {
    "bash": '~/.bashrc: eval "$(claimscore completion bash)"',
    "zsh": '~/.zshrc: eval "$(claimscore completion zsh)"',
    "fish": "~/.config/fish/completions/claimscore.fish: claimscore completion fish | source",
}


@click.command(epilog="\b\nPut it into\n" + "\n".join(f"  {line}" for line in _PLACES.values()))
@click.argument("shell", type=click.Choice(tuple(_PLACES)), help="Shell to complete words in.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    root = ctx.find_root()
    print(kind(root.command, {}, "claimscore", VARIABLE).source())
