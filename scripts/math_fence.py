"""The `math` blocks of the documentation as MathML, which browsers show without a script."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def math_fence(source: str, *_args: Any, **_options: Any) -> str:
    """The formula as a block; called by pymdownx.superfences for each fenced `math` block."""
    return f'<div class="math">{convert(" ".join(source.split()), display="block")}</div>'
