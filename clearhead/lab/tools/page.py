"""Findings on one HTML page, to read or to show, which contains its pictures and loads nothing.

write_page({"vanishing": finding, …}, "lab/index.html")
write_slides({"vanishing": finding}, "lab/vanishing-slides.html")
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from clearhead.inspection.picture import write_whole
from clearhead.inspection.report import html
from clearhead.lab.tools.finding import Finding, Table, format_cell

TITLE = "The laboratory"
SLIDES = """
html { scroll-snap-type: y mandatory; }
body { max-width: none; margin: 0; padding: 0; }
.slide { box-sizing: border-box; min-height: 100vh; padding: 4vmin 8vmin; display: flex;
  flex-direction: column; justify-content: center; scroll-snap-align: start; font-size: 3.2vmin;
  break-after: page; }
.slide h1 { font-size: 6vmin; line-height: 1.2; }
.slide p { max-width: none; }
.slide table { font-size: 3vmin; }
.slide figure { margin: 0 auto; max-width: 100%; overflow-x: auto; }
.slide img { width: auto !important; max-width: 100%; max-height: 88vh; min-height: 60vh;
  object-fit: contain; }
"""
ABOUT = "Each claim was tested by the command below it, which gave these numbers and pictures."


def write_page(findings: Mapping[str, Finding], path: str | Path) -> Path:
    """Write the page, whole or not at all; returns its path."""
    return write_whole(Path(path), html.page(TITLE, "\n".join(_write_body(findings))))


def write_slides(findings: Mapping[str, Finding], path: str | Path) -> Path:
    """Write slides for a lecture: for each finding its claim, its picture, its numbers.

    Each slide fills the window. The arrow keys scroll from one to the next, and printing gives a
    PDF with a page for each.
    """
    title = next(iter(findings.values())).claim if len(findings) == 1 else TITLE
    slides = [slide for name, finding in findings.items() for slide in _slides(name, finding)]
    body = "".join(f'<section class="slide">{slide}</section>' for slide in slides)
    return write_whole(Path(path), html.page(title, f"<style>{SLIDES}</style>{body}"))


def _slides(name: str, finding: Finding) -> Iterator[str]:
    command = f'<p class="soft"><code>clearhead lab {html.text(name)}</code></p>'
    yield f"<h1>{html.text(finding.claim)}</h1>{command}"
    yield html.embed(finding.picture)
    yield f"<h2>What was measured</h2><p>{html.text(finding.seen)}</p>"
    for table in finding.tables:
        yield _write_table(table)


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
