"""The pieces of HTML that a page is made of: texts, figures with notes, tables, pictures.

The page itself, with the way it looks, is report.html beside this file. It holds its pictures and
asks nobody for anything.
"""

from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from clearhead.inspection.picture import Picture


def page(title: str, body: str) -> bytes:
    """A whole page of this body."""
    empty = resources.files("clearhead.inspection").joinpath("report.html").read_text("utf-8")
    return empty.replace("{{title}}", text(title)).replace("{{body}}", body, 1).encode()


def text(value: object) -> str:
    """Anything as a text in which no letter is a command."""
    return escape(str(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)


def drawn(picture: Picture, caption: str = "") -> str:
    """A picture inside the page."""
    words = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f"<figure>{picture._repr_html_()}{words}</figure>"


def figure(name: str, value: str, *notes: str) -> str:
    """One number in a box, with what it means in small letters."""
    small = "".join(f"<small>{text(note)}</small>" for note in notes if note)
    return f"<div><dt>{text(name)}</dt><dd>{text(value)}{small}</dd></div>"


def number(value: float) -> str:
    """Four digits of it."""
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """1.2 s, 3 min 20 s, 5 h 7 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{seconds:.1f} s" if seconds < 59.95 else f"{minutes} min {rest} s"


def table(title: str, values: Mapping[str, Any], leave_out: str = "") -> str:
    """Names and their values under a title."""
    rows = "".join(
        f"<tr><td>{text(name)}<td>{text(_plain(value))}</tr>"
        for name, value in values.items()
        if name != leave_out
    )
    return f"<div><h3>{text(title)}</h3><table>{rows}</table></div>"
