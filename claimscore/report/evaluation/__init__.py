"""One self-contained HTML file about an evaluation."""
