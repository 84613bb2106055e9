"""All findings on one page, which holds its pictures and needs nothing else.

write_page({"vanishing": finding, …}, "lab/index.html")
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from clearhead.files.writing import replace_file
from clearhead.inspection.report import html
from clearhead.lab.tools.finding import Finding, Table, written

TITLE = "The laboratory"
ABOUT = "Each claim was tried by the command beside it; the numbers below are what it gave."


def write_page(findings: Mapping[str, Finding], path: str | Path) -> Path:
    """Write the page, whole or not at all, and return where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(html.page(TITLE, "\n".join(_body(findings))))
    return path


def _body(findings: Mapping[str, Finding]) -> Iterator[str]:
    yield f'<h1>{TITLE}</h1><p class="soft">{ABOUT}</p><ol>'
    for name, finding in findings.items():
        yield f'<li><a href="#{html.text(name)}">{html.text(finding.claim)}</a></li>'
    yield "</ol>"
    for name, finding in findings.items():
        yield f'<section id="{html.text(name)}"><h2>{html.text(finding.claim)}</h2>'
        yield f'<p class="soft"><code>clearhead lab {html.text(name)}</code></p>'
        yield html.embed(finding.picture)
        yield f"<p>{html.text(finding.seen)}</p>"
        yield from map(_table, finding.tables)
        yield "</section>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.text(name)}</th>" for name in table.columns)
    rows = ("".join(f"<td>{html.text(written(cell))}</td>" for cell in row) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<figure><table class="numbers"><tr>{head}</tr>{body}</table>'
        f"<figcaption>{html.text(table.caption)}</figcaption></figure>"
    )
