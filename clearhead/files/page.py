"""An HTML page of its own: one file with its style, which loads nothing. The frame is page.html."""

import re
from html import escape
from importlib import resources


def write_page(title: str, body: str, style: str, policy: str = "") -> str:
    """The whole page. body: HTML. style: CSS after the common one. policy: what else it may load
    and run, as in a Content-Security-Policy, such as "img-src data:"."""
    frame = resources.files("clearhead.files").joinpath("page.html").read_text("utf-8")
    allowed = "; ".join(filter(None, ("default-src 'none'", "style-src 'unsafe-inline'", policy)))
    parts = {"title": escape(title), "body": body, "style": style.rstrip(), "policy": allowed}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], frame)
