"""The pieces of an HTML page: text, numbers with notes, tables, pictures.

The page around them is that of files/page.py, with the style in style.css; it loads nothing.
"""

from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from clearhead.files.page import write_page
from clearhead.inspection.picture import Picture
from clearhead.inspection.viewer import hash_script

WIDE_INCHES = 5.5  # a wider picture cannot be read in the width of a phone


def page(title: str, body: str) -> bytes:
    """The whole page with this body."""
    style = resources.files("clearhead.inspection.report").joinpath("style.css").read_text("utf-8")
    policy = f"img-src data:; script-src '{hash_script()}'"
    return write_page(title, body, style, policy).encode()


def text(value: object) -> str:
    """Any value as text, with all HTML escaped."""
    return escape(str(value))


def embed(picture: Picture, caption: str = "") -> str:
    """A picture inside the page; on a narrow screen a wide picture scrolls instead of shrinking."""
    words = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    kind = ' class="wide"' if picture.figure.get_figwidth() > WIDE_INCHES else ""
    return f"<figure{kind}><div>{picture._repr_html_()}</div>{words}</figure>"


def number_box(name: str, value: str, *notes: str) -> str:
    """A name and its value in a box, with small notes on the meaning."""
    small = "".join(f"<small>{text(note)}</small>" for note in notes if note)
    return f"<div><dt>{text(name)}</dt><dd>{text(value)}{small}</dd></div>"


def number(value: float) -> str:
    """A number with four digits."""
    return f"{value:.4g}"


def table(title: str, values: Mapping[str, Any], leave_out: str = "") -> str:
    """Names and their values under a title."""
    rows = "".join(
        f"<tr><td>{text(name)}<td>{text(_format(value))}</tr>"
        for name, value in values.items()
        if name != leave_out
    )
    return f"<div><h3>{text(title)}</h3><table>{rows}</table></div>"


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
