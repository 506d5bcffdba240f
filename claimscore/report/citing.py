"""The texts to copy into a paper: the signature and the BibTeX of every metric."""

from __future__ import annotations

from collections.abc import Sequence

from claimscore.report.citations import citations
from claimscore.report.markup import text
from claimscore.report.overview import MetricOverview

_NOT_PRINTED = ' class="print-no"'


def citing(metrics: Sequence[MetricOverview]) -> str:
    """Signature and BibTeX of every metric, and all entries together."""
    signatures = "".join(
        _copyable(metric.facts.name, signature)
        for metric in metrics
        for signature in metric.signatures
    )
    if not signatures:
        return '<p class="note">There is nothing to cite.</p>'
    cited = {metric.facts.name: citations(metric.facts.name) for metric in metrics}
    entries = list(dict.fromkeys(entry for found in cited.values() for entry in found))
    uncited = [
        f"{metric.facts.name}: {metric.facts.reference or 'no reference is known'}"
        for metric in metrics
        if not cited[metric.facts.name]
    ]
    named = "".join(
        _copyable(name, "\n\n".join(found), "bibtex") for name, found in cited.items() if found
    )
    everything = (
        _copyable("all of them", "\n\n".join(entries), "bibtex every") if len(entries) > 1 else ""
    )
    return (
        "<h3>Signatures</h3>"
        '<p class="hint">Everything that changes a value, to stand beside it.</p>'
        f'<dl class="signatures">{signatures}</dl>'
        + (
            '<h3>BibTeX</h3><p class="hint">The papers that the metrics come from.</p>'
            f'<dl class="signatures">{named}{everything}</dl>'
            if named
            else ""
        )
        + "".join(f'<p class="hint" dir="auto">{text(said)}</p>' for said in uncited)
    )


def _copyable(name: str, value: str, kind: str = "") -> str:
    return (
        f"<div{_NOT_PRINTED if 'every' in kind else ''}><dt>{text(name)}</dt><dd>"
        f'<code class="copyable {kind}" tabindex="0">{text(value)}</code></dd></div>'
    )
