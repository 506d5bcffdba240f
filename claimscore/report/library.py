"""The plotting library that lies in every report: d3 and Observable Plot, compressed."""

from __future__ import annotations

import functools

from claimscore.report.markup import asset, packed

#: The files of others, in the order in which they are run, by the id of their block.
FILES = {"cs-d3": "vendor/d3.min.js", "cs-plot": "vendor/plot.umd.min.js"}

#: The style that Observable Plot 0.6.17 puts into each chart of the class `plot`; the page's
#: policy allows it by its hash.
PLOT_STYLE = """:where(.plot) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot text),
:where(.plot tspan) {
  white-space: pre;
}"""


@functools.cache
def library_blocks() -> str:
    """The library as blocks that the page's script unpacks and runs when it first draws."""
    return "".join(
        f'<script type="text/plain" id="{name}">{packed(asset(file))}</script>\n'
        for name, file in FILES.items()
    )


def library_scripts() -> tuple[str, ...]:
    """The same as the texts that are run: what the policy names the hashes of."""
    return tuple(map(asset, FILES.values()))
