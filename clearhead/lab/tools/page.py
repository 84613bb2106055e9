"""All findings on one HTML page, which contains its pictures and loads nothing.

write_page({"vanishing": finding, …}, "lab/index.html")
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from clearhead.inspection.picture import write_whole
from clearhead.inspection.report import html
from clearhead.lab.tools.finding import Finding, Table, format_cell

TITLE = "The laboratory"
ABOUT = "Each claim was tested by the command below it, which gave these numbers and pictures."


def write_page(findings: Mapping[str, Finding], path: str | Path) -> Path:
    """Write the page, whole or not at all; returns its path."""
    return write_whole(Path(path), html.page(TITLE, "\n".join(_write_body(findings))))


def _write_body(findings: Mapping[str, Finding]) -> Iterator[str]:
    yield f'<h1>{TITLE}</h1><p class="soft">{ABOUT}</p><ol>'
    for name, finding in findings.items():
        yield f'<li><a href="#{html.text(name)}">{html.text(finding.claim)}</a></li>'
    yield "</ol>"
    for name, finding in findings.items():
        yield f'<section id="{html.text(name)}"><h2>{html.text(finding.claim)}</h2>'
        yield f'<p class="soft"><code>clearhead lab {html.text(name)}</code></p>'
        yield html.embed(finding.picture)
        yield f"<p>{html.text(finding.seen)}</p>"
        yield from map(_write_table, finding.tables)
        yield "</section>"


def _write_table(table: Table) -> str:
    head = "".join(f"<th>{html.text(name)}</th>" for name in table.columns)
    body = ""
    for row in table.rows:
        cells = (f"<td>{html.text(format_cell(cell))}</td>" for cell in row)
        body += f"<tr>{''.join(cells)}</tr>"
    return (
        f'<figure><table class="numbers"><tr>{head}</tr>{body}</table>'
        f"<figcaption>{html.text(table.caption)}</figcaption></figure>"
    )
