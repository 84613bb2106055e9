"""The files of the page, read once: the server answers from this table and opens no other file.

read_page()["/main.js"]            a PageFile: its bytes and its content type
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clearhead.studio.whole_page import read_whole

FOLDER = Path(__file__).parent / "page"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    data: bytes
    content_type: str


@cache
def read_page() -> dict[str, PageFile]:
    """The files by the path in the address; / is index.html, /whole.html the page in one file."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in CONTENT_TYPES)
    files = {
        "/" + path.relative_to(FOLDER).as_posix(): PageFile(
            path.read_bytes(), CONTENT_TYPES[path.suffix]
        )
        for path in paths
    }
    whole = PageFile(read_whole().encode(), CONTENT_TYPES[".html"])
    return {"/": files["/index.html"], "/whole.html": whole, **files}
