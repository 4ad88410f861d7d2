"""HTML tables that show objects of nnhw in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return an HTML table with a row for each fact; facts that are None are left out."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f'<table><caption style="text-align:left"><b>{escape(title)}</b></caption>{rows}</table>'
